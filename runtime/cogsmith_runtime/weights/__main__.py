"""python -m cogsmith_runtime.weights: fetch and verify packed weights by hand."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import Index, WeightsError, fetch, source_of, verify
from .errors import DAMAGED

_STATUS = """exit status: 0 done; 2 wrong usage; 3 refused by the server; 4 not found; 5 another object than the index
describes; 6 damaged; 7 the disk is full or cannot be used; 8 the server cannot be reached; 9 no usable index or source"""

_INTERRUPTED = 130


def main() -> int:
    """Run the command that the arguments name; returns the exit status."""
    arguments = _parser().parse_args()
    try:
        index = Index.load(arguments.index)
        if arguments.verb == "fetch":
            return _fetch(index, arguments.source, arguments.to)
        return _verify(index, arguments.folder)
    except WeightsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.kind.status
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cogsmith_runtime.weights", epilog=_STATUS)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("fetch", help="fetch the files of an index and print their folder", epilog=_STATUS)
    one.add_argument("--index", type=Path, required=True, help="weights.json")
    one.add_argument(
        "--from", dest="source", required=True, help="the packed tar: a path, file:// or http(s)://"
    )
    one.add_argument("--to", type=Path, required=True, help="the cache: the files come to TO/<digest>")
    two = verbs.add_parser("verify", help="read every file of a folder and say what is wrong", epilog=_STATUS)
    two.add_argument("--index", type=Path, required=True, help="weights.json")
    two.add_argument("folder", type=Path, help="where the files are")
    return parser


def _fetch(index: Index, source: str, cache: Path) -> int:
    start = time.monotonic()

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done / 1e6:.0f} of {total / 1e6:.0f} MB", end="", file=sys.stderr)  # noqa: T201

    folder = fetch(index, source_of(source), cache, progress)
    seconds = time.monotonic() - start
    print(f"\r{index.content / 1e6:.0f} MB in {seconds:.1f} s", file=sys.stderr)  # noqa: T201
    print(folder)  # noqa: T201
    return 0


def _verify(index: Index, folder: Path) -> int:
    problems = verify(index, folder)
    for problem in problems:
        print(problem)  # noqa: T201
    if not problems:
        print(f"{len(index.files)} files, {index.content} bytes: all as they were packed", file=sys.stderr)  # noqa: T201
    return DAMAGED.status if problems else 0


if __name__ == "__main__":
    sys.exit(main())
