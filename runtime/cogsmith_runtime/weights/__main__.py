"""Fetch packed weights by hand, or hold a folder to its index.

    python -m cogsmith_runtime.weights --index weights.json --url URL --to DIR [--connections N]
    python -m cogsmith_runtime.weights --index weights.json --verify FOLDER

The first makes DIR/<digest> with the files and prints that folder; a rerun fetches only what is missing. The second
reads every file of a folder through and prints a line for each mistake. Needs Python and the crc32c package, nothing
of the CLI; with pycurl it is faster over https.

Exit status:
  0  done
  2  wrong usage
  3  refused by the server (401, 403)
  4  not found
  5  another object than the index describes
  6  damaged
  7  the disk is full or cannot be used
  8  the server cannot be reached, does not serve, or shows a certificate that is not trusted
  9  no usable index or source
130  interrupted; what is fetched is kept
143  ended by SIGTERM; what is fetched is kept
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import NoReturn

from . import Index, Limits, WeightsError, fetch, source_of, verify
from .errors import DAMAGED

_INTERRUPTED = 130
_TERMINATED = 143
_MOST_CONNECTIONS = 256


def main() -> int:
    """Run the command that the arguments name; returns the exit status."""
    arguments = _arguments()
    # A plain `kill` closes the journal as Ctrl-C does.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        index = Index.load(arguments.index)
        if arguments.verify is not None:
            return _verify(index, arguments.verify)
        return _fetch(index, arguments)
    except WeightsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.kind.status
    except KeyboardInterrupt:
        return _INTERRUPTED


def _terminated(*_: object) -> NoReturn:
    sys.exit(_TERMINATED)


def _connections(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST_CONNECTIONS:
        raise argparse.ArgumentTypeError(f"must be 1 to {_MOST_CONNECTIONS}")
    return number


def _arguments() -> argparse.Namespace:
    usual = Limits()
    usage, _, status = (__doc__ or "").partition("Exit status:")
    parser = argparse.ArgumentParser(
        prog="python -m cogsmith_runtime.weights",
        description=usage,
        epilog=f"Exit status:{status}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s --index FILE (--url URL --to DIR [--connections N] | --verify FOLDER)",
    )
    parser.add_argument("--index", type=Path, required=True, metavar="FILE", help="weights.json")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", help="the packed tar: http(s)://, file:// or a path")
    what.add_argument("--verify", type=Path, metavar="FOLDER", help="the folder to read through")
    parser.add_argument("--to", type=Path, metavar="DIR", help="the files come to DIR/<digest>")
    parser.add_argument(
        "--connections",
        type=_connections,
        metavar="N",
        help=f"exactly N; otherwise {usual.connections}, growing to {usual.most_connections} while that helps",
    )
    arguments = parser.parse_args()
    if (arguments.url is None) != (arguments.to is None):
        parser.error("--url and --to belong together")
    if arguments.verify is not None and arguments.connections is not None:
        parser.error("--connections belongs to --url")
    return arguments


def _fetch(index: Index, arguments: argparse.Namespace) -> int:
    limits = Limits()
    if count := arguments.connections:
        limits = Limits(connections=count, most_connections=count)

    def progress(done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{done / 1e6:.0f} of {total / 1e6:.0f} MB", end="", file=sys.stderr)  # noqa: T201

    done = fetch(index, source_of(arguments.url, limits), arguments.to, progress, limits)
    if sys.stderr.isatty():
        print(file=sys.stderr)  # noqa: T201
    print(done.summary(), file=sys.stderr)  # noqa: T201
    print(done.folder)  # noqa: T201
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
