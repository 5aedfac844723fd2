"""CPU time of `cogsmith --help` against its peer, importing click: what the verbs' own imports must not add to.

    .venv/bin/python benchmarks/help/measure.py [ROUNDS]

Runs alternate; each is one process, user + system seconds. Prints the medians and their ratio, with the range of the per-round ratios.
"""

from __future__ import annotations

import os
import statistics
import sys

CASES = {
    "import click": [sys.executable, "-c", "import click"],
    "cogsmith --help": [sys.executable, "-m", "cogsmith", "--help"],
}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of one run."""
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    # Both write byte code in the first round, which is not counted.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    child = os.posix_spawn(command[0], command, environment, file_actions=silent)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime


def main(rounds: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(rounds + 1):
        for name, command in CASES.items():
            seconds = cpu_seconds(command)
            if number > 0:
                taken[name].append(seconds)
    base, ours = taken.values()
    ratios = [mine / theirs for mine, theirs in zip(ours, base, strict=True)]
    for name, seconds in taken.items():
        print(f"{name:16} median {statistics.median(seconds) * 1000:6.1f} ms CPU of {rounds} runs")
    ratio = statistics.median(ours) / statistics.median(base)
    print(f"ratio {ratio:.2f} (per round {min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
