"""How fast the files of a model go into a bucket of S3, against what else is used for that.

    .venv/bin/python benchmarks/weights/pack.py [--size GIB] [--rounds N] [PROFILE ...]

Prints tables in Markdown; --out FOLDER gets every single figure (packing.json) and a plot (packing.svg).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from correctness import check
from model import write_model
from peers import OURS
from sink import PROFILES, Sink, sink
from tables import keep, table, versions
from uploaders import BUCKET, PROGRAMS, Job, absent, commands, environment
from watch import Run, run

from cogsmith.bucket import FolderBucket
from cogsmith.layout import layout
from cogsmith.pack import pack

_LONGEST = 300.0
# Several parts of any uploader.
_CHECKED = 128 << 20
# So that no disk is measured.
_MEMORY = "/dev/shm"  # noqa: S108
_SPEC = f"""\
model: weights/bench
backend: vllm
hardware: cpu
weights:
  bucket: s3://{BUCKET}/bench
"""
_PHASES = ("start", "reading", "sending", "end")


@dataclasses.dataclass
class Found:
    """What was measured of one profile.

    Attributes:
        runs: of each command.
        phases: of each run of ours, seconds.
        served: of each run of any, nginx's processor time in seconds.
    """

    runs: dict[str, list[Run]]
    phases: list[list[float]] = dataclasses.field(default_factory=list)
    served: dict[str, list[float]] = dataclasses.field(default_factory=dict)


def _forget(job: Job) -> None:
    """As if nothing had been packed yet."""
    shutil.rmtree(job.project / ".cogsmith", ignore_errors=True)
    (job.project / "models" / "bench.lock").unlink(missing_ok=True)
    job.tar.unlink(missing_ok=True)


def _phases(server: Sink, began: float, ended: float) -> list[float]:
    """An upload that only tries the permissions is begun before a file is read, the real one when all are."""
    times = [began, *(when for when, _ in server.asked), ended]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def _once(job: Job, name: str, size: int, server: Sink, profile: str, found: Found) -> None:
    """One run of one command; all bytes of its tar must have come."""
    _forget(job)
    server.forget()
    before, began = server.cpu, time.monotonic()
    done = run(commands()[name](job), environment(server.urls[profile], server.certificate), _LONGEST)
    came = [stored.size for path, stored in server.objects.items() if path.endswith(".tar")]
    if done.error is None and came != [size]:
        done = dataclasses.replace(done, error=f"exit 0, but {came} bytes came instead of {size}")
    found.runs[name].append(done)
    found.served.setdefault(name, []).append(server.cpu - before)
    if name == OURS and done.error is None:
        found.phases.append(_phases(server, began, began + done.seconds))


def _about(found: Found, content: int) -> str:
    """What the table does not say: where our time goes, and what the server takes."""
    lines = []
    if found.phases:
        medians = [statistics.median(each) for each in zip(*found.phases, strict=True)]
        parts = ", ".join(f"{name} {each:.2f}" for name, each in zip(_PHASES, medians, strict=True))
        lines.append(f"\nOurs, seconds: {parts}.")
    served = [statistics.median(each) / content * 1e9 for each in found.served.values()]
    lines.append(f"\nnginx takes {min(served):.2f} to {max(served):.2f} CPU s/GB more.")
    return "\n".join(lines)


def _job(folder: Path, size: int) -> tuple[Job, list[str]]:
    """A project with a model of its own, and the names of the model's files."""
    job = Job(folder, folder / "weights" / "bench", folder / "to.tar", "llm.tar")
    files = write_model(job.model, size)
    (folder / "models").mkdir()
    (folder / "models" / "bench.yaml").write_text(_SPEC)
    return job, files


def _wrong(folder: Path) -> dict[str, str]:
    """What is wrong with each command, tried on a small model."""
    job, files = _job(folder, _CHECKED)
    packed = pack(job.model, files, FolderBucket(folder / "bucket"))
    (folder / "moto").mkdir()
    return check(job, folder / "bucket" / packed.key, folder / "moto", _LONGEST)


def _sizes(job: Job, files: list[str]) -> dict[str, int]:
    """How many bytes the object of each command must have."""
    with subprocess.Popen(["tar", "c", "-C", job.model, "."], stdout=subprocess.PIPE) as tar:
        assert tar.stdout is not None
        size = sum(map(len, iter(lambda: tar.stdout.read(1 << 20), b"")))
    return dict.fromkeys(commands(), size) | {OURS: layout(job.model, files).size}


def _measure(profiles: list[str], size: int, rounds: int, folder: Path) -> dict[str, dict[str, list[Run]]]:
    """Profile -> command -> its runs."""
    wrong = _wrong(folder / "small")
    shutil.rmtree(folder / "small")
    job, files = _job(folder / "project", size)
    sizes = _sizes(job, files)
    content = sum((job.model / name).stat().st_size for name in files)
    chance = random.Random(5)  # noqa: S311
    measured = {}
    with sink(folder / "nginx") as server:
        for profile in profiles:
            found = Found({name: [] for name in commands()})
            for _ in range(rounds):
                for name in chance.sample(list(found.runs), len(found.runs)):
                    _once(job, name, sizes[name], server, profile, found)
            for name, error in wrong.items():
                found.runs[name] = [dataclasses.replace(each, error=error) for each in found.runs[name]]
            print(table(profile, PROFILES[profile], found.runs, content, absent()), flush=True)
            print(_about(found, content), flush=True)
            measured[profile] = found.runs
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=float, default=2.0, help="GiB of tensors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for packing.json and packing.svg")
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
        keep(found, arguments.out, "packing")


if __name__ == "__main__":
    main()
