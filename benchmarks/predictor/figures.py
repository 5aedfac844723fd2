"""Figures with their range, and the tables of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from client import Api


@dataclass
class Figure:
    """A value over all rounds, and the value of each round."""

    value: float
    rounds: Sequence[float]

    def __str__(self) -> str:
        return f"{_digits(self.value)} ({_digits(min(self.rounds))} to {_digits(max(self.rounds))})"


def table(title: str, columns: Mapping[int, Mapping[str, Figure]]) -> str:
    """A Markdown table that is straight as text too.

    Args:
        title: what was measured; the head of the first column.
        columns: number of streams -> what -> figure.
    """
    rows = [[title, *(f"{count} stream{'' if count == 1 else 's'}" for count in columns)]]
    for name in next(iter(columns.values())):
        rows.append([name, *(str(figures[name]) for figures in columns.values())])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"| {' | '.join(map(str.ljust, row, widths))} |" for row in rows]
    lines.insert(1, f"|{'|'.join('-' * (width + 2) for width in widths)}|")
    return "\n".join(lines)


def turns(direct: Api, cog: Api, number: int) -> tuple[Api, Api]:
    """In which order a round asks. It changes, so that a machine that becomes slower or faster favours neither."""
    return (direct, cog) if number % 2 == 0 else (cog, direct)


def _digits(value: float) -> str:
    """About three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
