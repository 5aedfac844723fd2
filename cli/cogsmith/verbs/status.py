"""`cogsmith status`: so far, what a boot was made of."""

from __future__ import annotations

from pathlib import Path

from cogsmith.boot_report import draw, read_boot_report, waterfall
from cogsmith.output import data, step


def boot(log: Path, output: Path | None) -> None:
    """Show the boot report in a log as a waterfall: on stdout, or as a picture.

    Raises:
        UserError: there is none, or the picture cannot be drawn.
    """
    report = read_boot_report(log)
    if output is None:
        data("\n".join(waterfall(report)) + "\n")
        return
    draw(report, output)
    step(f"Wrote {output}")
