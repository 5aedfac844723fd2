"""What one argument of an engine takes, and what is said of a value that it does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Argument:
    """What an argument takes.

    Attributes:
        kind: flag, integer, number, text, value (one number or text), list or json (a mapping).
        choices: the only texts it takes; empty where any is taken or none is known.
    """

    kind: str
    choices: tuple[str, ...] = ()

    def problem(self, value: Any) -> str | None:
        """What it takes instead of a value, as "must be …", or None where it takes the value."""
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        fits, wanted = _KINDS[self.kind]
        return None if fits(value) else f"must be {wanted}"


def _is_single(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "flag": (lambda value: isinstance(value, bool), "true or false"),
    "integer": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "number": (_is_number, "a number"),
    "text": (lambda value: isinstance(value, str), "text"),
    "value": (_is_single, "one number or text"),
    "list": (
        lambda value: bool(items := value if isinstance(value, list) else [value])
        and all(map(_is_single, items)),
        "a list of one or more numbers or texts",
    ),
    "json": (lambda value: isinstance(value, Mapping | list | str), "a mapping"),
}
