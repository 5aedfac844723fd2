"""What can go wrong between a bucket and a folder of weights: one code, one name, one exit status each."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of failure: the code and name that logs are searched for, and the command's exit status."""

    code: str
    name: str
    status: int


NO_WEIGHTS = Kind("E2201", "NoWeights", 9)
BAD_INDEX = Kind("E2202", "BadIndex", 9)
NO_INDEX = Kind("E2203", "NoIndex", 9)
BAD_SOURCE = Kind("E2204", "BadSource", 9)
REFUSED = Kind("E2205", "Refused", 3)
NOT_FOUND = Kind("E2206", "NotFound", 4)
OTHER_OBJECT = Kind("E2207", "OtherObject", 5)
DAMAGED = Kind("E2208", "Damaged", 6)
NO_SPACE = Kind("E2209", "NoSpace", 7)
DISK = Kind("E2210", "DiskError", 7)
UNREACHABLE = Kind("E2211", "Unreachable", 8)


class WeightsError(Exception):
    """Weights that cannot be had.

    Args:
        kind: one of the constants of this module.
        message: one sentence without a final full stop; names files, offsets and URLs without query strings.
        hint: one sentence that says what to do.
    """

    def __init__(self, kind: Kind, message: str, hint: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.kind.code} {self.kind.name}: {self.message}. {self.hint}"


def bare(url: str) -> str:
    """The URL without what may be secret in it: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(a URL that cannot be read)"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
