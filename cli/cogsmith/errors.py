"""The one kind of error that is the user's to fix. Anything else is a bug and shows a traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cogsmith_runtime.weights import WeightsError

# How an error of the container reads: Cog puts words of its own before it.
CODED = re.compile(r"\bE\d{4} [A-Z]\w+: .*")


class UserError(Exception):
    """What is wrong, and what to do about it.

    Args:
        message: one sentence without a final full stop.
        hint: one sentence that says what to do, or None where the message already does.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def lines(self) -> list[str]:
        """The lines that a person sees, without colour."""
        text = [f"Error: {self.message}"]
        if self.hint:
            text.append(f"Hint: {self.hint}")
        return text


@dataclass(frozen=True, order=True)
class Mistake:
    """One mistake in a file the user wrote: where, which field, what is wrong, what to do."""

    path: str
    line: int
    field: str
    message: str
    hint: str

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.path}:{self.line}: {field}{self.message}. Hint: {self.hint}"


class MistakesError(UserError):
    """Every mistake of one file at once, one line each."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes))
        super().__init__("\n".join(map(str, self.mistakes)))

    def lines(self) -> list[str]:
        return [str(mistake) for mistake in self.mistakes]


class SeveralError(UserError):
    """Independent errors, told one after the other."""

    def __init__(self, errors: Sequence[UserError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(error.message for error in errors))

    def lines(self) -> list[str]:
        return [line for error in self.errors for line in error.lines()]


class PredictionError(UserError):
    """The model answered a prediction with an error, or the prediction was canceled."""

    exit_code = 3


def of_weights(error: WeightsError, field: str = "") -> UserError:
    """What the reader of the weights says, as this command line says it.

    Args:
        field: of the spec that led there.
    """
    message = f"{field}: {error.message}" if field else error.message
    return UserError(message, error.hint[:1].lower() + error.hint[1:].rstrip("."))
