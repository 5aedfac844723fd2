"""What a person sees while work is done. Data goes to stdout; steps, progress and tables go to stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_console: Console | None = None
_quiet = False


def be_quiet() -> None:
    """From now on say warnings and errors alone."""
    global _quiet
    _quiet = True


def console() -> Console:
    """The console on stderr, made on first use: rich is slow to import."""
    global _console
    if _console is None:
        from rich.console import Console as RichConsole

        _console = RichConsole(stderr=True, highlight=False, soft_wrap=True)
    return _console


def step(text: str) -> None:
    """One line about what was done or is being done."""
    if not _quiet:
        console().print(text, markup=False)


def warn(text: str) -> None:
    """One line about something odd that does not stop the work."""
    console().print(f"Warning: {text}", style="yellow", markup=False)


def problem(text: str) -> None:
    """One line of an error."""
    console().print(text, style="red", markup=False)


@contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """Show that something slow goes on; the function given changes what is said.

    On a terminal a spinner; elsewhere (a log, CI) one line for each new text.
    """
    screen = console()
    if screen.is_terminal and not _quiet:
        with screen.status(text) as status:
            yield lambda new: status.update(new)
        return
    said = [text]
    step(text)

    def say(new: str) -> None:
        if new != said[-1]:
            said.append(new)
            step(new)

    yield say


@contextmanager
def bytes_bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over bytes; call what is given with (done, total).

    Without a terminal: one line when it is done, with the rate.
    """
    screen = console()
    started = time.monotonic()
    if not screen.is_terminal or _quiet:
        seen = [0]

        def note(done: int, _total: int) -> None:
            seen[0] = done

        yield note
        if not seen[0]:
            return
        seconds = max(time.monotonic() - started, 1e-3)
        step(f"{text}: {size(seen[0])} in {seconds:.1f} s ({size(seen[0] / seconds)}/s)")
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(binary_units=True),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=screen) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def seconds_table(title: str, rows: Mapping[str, float]) -> None:
    """A two-column table: what, and how many seconds it took."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False, box=None)
    table.add_column("phase")
    table.add_column("seconds", justify="right")
    for name, seconds in rows.items():
        table.add_row(name, f"{seconds:.2f}")
    console().print(table)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows below a title, on stdout; a line that says so where there are none."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in ((columns, *rows) if rows else ())
    ]
    data("\n".join([title, *(lines or ["nothing"])]) + "\n")


def data(text: str) -> None:
    """What a program reads: to stdout, at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def size(count: float) -> str:
    """Bytes as a person reads them, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
