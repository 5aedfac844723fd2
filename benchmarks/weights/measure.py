"""How fast packed weights come off a web server, against what else is used for that.

    .venv/bin/python benchmarks/weights/measure.py [--size GIB] [--rounds N] [PROFILE ...]

Prints tables in Markdown; --out FOLDER gets every single figure (results.json) and a plot (results.svg).
"""

from __future__ import annotations

import argparse
import dataclasses
import filecmp
import random
import shutil
import tempfile
from pathlib import Path

from model import write_model
from peers import PROGRAMS, Object, absent, commands
from servers import PROFILES, serve
from tables import keep, table, versions
from watch import Run, run

from cogsmith.bucket import FolderBucket
from cogsmith.pack import pack
from cogsmith_runtime.weights import Index

_LONGEST = 300.0
# So that no disk is measured.
_MEMORY = "/dev/shm"  # noqa: S108


def _unchecked(index: Index, path: Path) -> None:
    """An index that wants a crc32c of 0 from every granule."""
    files = tuple(dataclasses.replace(each, crc32c="0" * len(each.crc32c)) for each in index.files)
    path.write_text(dataclasses.replace(index, files=files).dumps())


def _same(model: Path, to: Path) -> bool:
    """Whether the folder, or the one folder in it, holds the files of the model."""
    if not (to / "config.json").exists():
        to = next(each for each in to.iterdir() if each.is_dir())
    names = [path.name for path in model.iterdir()]
    return filecmp.cmpfiles(model, to, names, shallow=False)[0] == names


def _round(what: Object, folder: Path, model: Path, order: list[str], first: bool) -> dict[str, Run]:
    """Every command once, in this order."""
    known = commands()
    found = {}
    for name in order:
        to = folder / "to"
        done = run(known[name](what, to), {"SSL_CERT_FILE": str(what.certificate)}, _LONGEST)
        if first and done.error is None and not _same(model, to):
            done = dataclasses.replace(done, error="exit 0, but the files are not the model's")
        found[name] = done
        for path in folder.glob("to*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found


def _measure(profiles: list[str], size: int, rounds: int, folder: Path) -> dict[str, dict[str, list[Run]]]:
    """Profile -> command -> its runs."""
    root = folder / "served"
    root.mkdir()
    files = write_model(root / "model", size)
    packed = pack(root / "model", files, FolderBucket(root))
    (folder / "weights.json").write_text(packed.index.dumps())
    _unchecked(packed.index, folder / "unchecked.json")
    chance = random.Random(5)  # noqa: S311
    found: dict[str, dict[str, list[Run]]] = {}
    with serve(root, folder / "nginx") as urls:
        for profile in profiles:
            what = Object(
                tar=urls[profile] + packed.key,
                files=f"{urls[profile]}model/",
                index=folder / "weights.json",
                unchecked=folder / "unchecked.json",
                certificate=folder / "nginx" / "tls.crt",
                capped=profile.startswith("capped"),
            )
            runs: dict[str, list[Run]] = {name: [] for name in commands()}
            for number in range(rounds):
                order = chance.sample(list(runs), len(runs))
                for name, done in _round(what, folder, root / "model", order, number == 0).items():
                    runs[name].append(done)
            found[profile] = runs
            print(table(profile, PROFILES[profile], runs, packed.index.content, absent()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=float, default=1.0, help="GiB of tensors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for results.json and results.svg")
    parser.add_argument(
        "profiles", nargs="*", metavar="PROFILE", help=f"of {', '.join(PROFILES)}; all without any"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.profiles) - PROFILES.keys():
        parser.error(f"there is no profile {sorted(unknown)[0]}")
    print(versions(arguments.size, arguments.rounds, PROGRAMS), flush=True)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as folder:
        found = _measure(
            arguments.profiles or list(PROFILES), int(arguments.size * 2**30), arguments.rounds, Path(folder)
        )
    if arguments.out:
        keep(found, arguments.out, "results")


if __name__ == "__main__":
    main()
