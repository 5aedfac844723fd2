"""The figures of a run as Markdown and as a plot."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from peers import OURS
from watch import Run

Runs = Mapping[str, Sequence[Run]]


def table(profile: str, title: str, runs: Runs, size: int, absent: Sequence[str]) -> str:
    """One profile: a row for each command.

    Args:
        size: bytes of all files.
        absent: peers that were not there.
    """
    lines = [
        f"\n**{profile}**: {title}\n",
        "| command | s | GB/s | ours is faster by | CPU s/GB | peak RssAnon, MiB |",
        "|---|---|---|---|---|---|",
    ]
    ours = [each.seconds for each in runs[OURS]]
    for name, each_runs in runs.items():
        failed = [each.error for each in each_runs if each.error]
        if failed:
            lines.append(f"| {_cell(name)} | {len(failed)} of {len(each_runs)} failed: {failed[0]} | | | | |")
            continue
        seconds = [each.seconds for each in each_runs]
        ratios = [theirs / mine for theirs, mine in zip(seconds, ours, strict=True)]
        bold = "**" if name == OURS else ""
        ratio = "" if name == OURS else _figure(statistics.median(seconds) / statistics.median(ours), ratios)
        cpu = statistics.median(each.cpu for each in each_runs) / size * 1e9
        lines.append(
            f"| {bold}{_cell(name)}{bold} | {_figure(statistics.median(seconds), seconds)} "
            f"| {size / 1e9 / statistics.median(seconds):.2f} | {ratio} | {cpu:.2f} "
            f"| {max(each.memory for each in each_runs):.0f} |"
        )
    lines += [f"| {_cell(name)} | absent | | | | |" for name in absent]
    return "\n".join(lines)


def _cell(name: str) -> str:
    return name.replace("|", "\\|")


def _figure(value: float, rounds: Sequence[float]) -> str:
    return f"{value:.2f} ({min(rounds):.2f} to {max(rounds):.2f})"


def versions(size: float, rounds: int, programs: Mapping[str, Sequence[str]]) -> str:
    """One paragraph that says what was measured with what.

    Args:
        programs: name -> command that says its version.
    """
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    found = [
        f"{name}: {_first_line(command)}" for name, command in programs.items() if shutil.which(command[0])
    ]
    return (
        f"{datetime.date.today()}, {os.cpu_count()} processors ({model}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, {size:g} GiB, {rounds} rounds, all in /dev/shm. {'; '.join(found)}."
    )


def _first_line(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[0][:60]


def keep(found: Mapping[str, Runs], folder: Path, name: str) -> None:
    """Every single figure as name.json, and the plot as name.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        profile: {
            command: [dataclasses.asdict(each) for each in each_runs] for command, each_runs in runs.items()
        }
        for profile, runs in found.items()
    }
    (folder / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    plot(found, folder / f"{name}.svg")


def plot(found: Mapping[str, Runs], path: Path) -> None:
    """For each profile a bar for each command, as long as its median, with its range; SVG or PNG by the name's ending."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.2 * len(found)), layout="constrained")
    for axes, (profile, runs) in zip(
        figure.subplots(len(found), squeeze=False)[:, 0], found.items(), strict=True
    ):
        good = {
            name: [each.seconds for each in each_runs]
            for name, each_runs in runs.items()
            if not any(each.error for each in each_runs)
        }
        medians = [statistics.median(seconds) for seconds in good.values()]
        ranges = [
            [median - min(seconds) for median, seconds in zip(medians, good.values(), strict=True)],
            [max(seconds) - median for median, seconds in zip(medians, good.values(), strict=True)],
        ]
        colours = ["#2a6fb0" if name == OURS else "#b8c4cf" for name in good]
        axes.barh(list(good), medians, xerr=ranges, color=colours)
        axes.invert_yaxis()
        axes.set_title(f"{profile}, seconds", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
