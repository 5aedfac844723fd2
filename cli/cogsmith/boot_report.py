"""The boot report in a log: read, and drawn as a waterfall."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cogsmith.errors import UserError

MARK = "cogsmith boot report: "
FORMATS = (".png", ".svg")
_BAR = 40
_NAMES = {
    "fetch": "fetch",
    "verify": "verify",
    "engine_import": "engine import",
    "load": "load",
    "warm_up": "warm-up",
}


@dataclass(frozen=True)
class Phase:
    """One phase of a boot.

    Attributes:
        start, seconds: when it began, counted from the start of setup, and how long it took.
        note: its other figures, for a person.
    """

    name: str
    start: float
    seconds: float
    note: str


@dataclass(frozen=True)
class BootReport:
    """Seconds of the whole setup, and its phases in order."""

    seconds: float
    phases: tuple[Phase, ...]


def read_boot_report(path: Path) -> BootReport:
    """The last boot report in a log (of Docker, of Replicate, of `cogsmith serve`), or a boot.json.

    Raises:
        UserError: there is no such file, or no report in it.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    report = None
    for line in text.splitlines():
        _, mark, rest = line.partition(MARK)
        report = parse(rest if mark else line) or report
    if report is None:
        hint = "give the log of a setup that ended well, or a boot.json"
        raise UserError(f"{path} holds no boot report", hint)
    return report


def parse(text: str) -> BootReport | None:
    """The report that a text begins with; None where there is none."""
    try:
        # Cog's logger puts fields behind a line.
        data, _ = json.JSONDecoder().raw_decode(text)
        phases = tuple(_phase(each) for each in data["phases"])
        return BootReport(float(data["seconds"]), phases) if phases else None
    except (ValueError, KeyError, TypeError):
        return None


def _phase(data: dict[str, Any]) -> Phase:
    name = str(data["phase"])
    parts = []
    if received := data.get("bytes"):
        parts.append(f"{float(received) / 1e9:.3f} GB")
    if rate := data.get("bytes_per_second"):
        parts.append(f"{float(rate) / 1e9:.2f} GB/s")
    parts += [f"{int(data[key])} {key}" for key in ("connections", "retries") if key in data]
    return Phase(
        _NAMES.get(name, re.sub(r"[^\w ]", "?", name)[:40]),
        float(data["start"]),
        float(data["seconds"]),
        ", ".join(parts),
    )


def waterfall(report: BootReport) -> Sequence[str]:
    """A line for each phase, with a bar where it lies in time."""
    lines = []
    for phase in report.phases:
        left = round(phase.start / report.seconds * _BAR) if report.seconds else 0
        length = max(1, round(phase.seconds / report.seconds * _BAR)) if report.seconds else 1
        bar = (" " * min(left, _BAR - 1) + "█" * length)[:_BAR]
        lines.append(f"{phase.name:<14}{phase.seconds:8.2f} s  {bar:<{_BAR}}  {phase.note}".rstrip())
    lines.append(f"{'ready after':<14}{report.seconds:8.2f} s")
    return lines


def draw(report: BootReport, path: Path) -> None:
    """The waterfall as a picture: PNG or SVG, by the name's ending.

    Raises:
        UserError: another ending, matplotlib is not installed, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path} is not a picture that can be drawn", f"name it *{' or *'.join(FORMATS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            "matplotlib is not installed, which draws pictures", "pip install 'cogsmith[plot]'"
        ) from None
    figure = Figure(figsize=(9, 0.5 * len(report.phases) + 1.2), layout="constrained")
    axes = figure.subplots()
    names = [phase.name for phase in report.phases]
    bars = axes.barh(
        names, [phase.seconds for phase in report.phases], left=[phase.start for phase in report.phases]
    )
    labels = [f"{phase.seconds:.2f} s  {phase.note}".rstrip() for phase in report.phases]
    axes.bar_label(bars, labels, padding=4)
    axes.invert_yaxis()
    # Room for the label of the last bar.
    axes.set_xlim(0, max(report.seconds, 0.01) * 1.5)
    axes.set_xlabel("seconds since setup began")
    axes.set_title(f"ready after {report.seconds:.2f} s", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror})") from None
