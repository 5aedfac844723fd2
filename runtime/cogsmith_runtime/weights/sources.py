"""Where the bytes of an object come from: what every source offers, and the source that is a file."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .errors import BAD_SOURCE, DISK, NOT_FOUND, OTHER_OBJECT, WeightsError


@dataclass(frozen=True, slots=True)
class Limits:
    """How hard a source is asked.

    Attributes:
        connections: at once. Not a function of the cores: an object store caps each connection.
        part: bytes asked for by one request, about.
        timeout: seconds without a byte until a connection counts as dead.
        tries: failures in a row, with no byte between them, until the fetch is given up.
        pause: seconds before the first new try; doubles with each, up to `longest_pause`.
    """

    connections: int = 16
    part: int = 16 << 20
    timeout: float = 30.0
    tries: int = 8
    pause: float = 0.25
    longest_pause: float = 10.0


class InterruptedRead(Exception):  # noqa: N818 - no error yet: it is tried again
    """The source failed in a way that may pass."""


class Stream(Protocol):
    """Bytes of the object, in order. `position` is the offset in the object of the next byte."""

    position: int

    def readinto(self, view: memoryview) -> int:
        """Fill the view as far as the bytes reach; 0 at the end. Raises InterruptedRead."""
        ...

    def close(self) -> None: ...


class Reader(Protocol):
    """One thread's way to a source."""

    def open(self, start: int, end: int) -> Stream:
        """The bytes from start to end, or from an earlier byte on. Raises InterruptedRead, WeightsError."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """An object. `name` may be shown to anybody."""

    name: str

    def probe(self, size: int) -> bool:
        """Check that the object is there and has this size; whether it can be read by ranges.

        Raises InterruptedRead, WeightsError.
        """
        ...

    def reader(self) -> Reader: ...

    def abort(self) -> None:
        """Wake every reader that waits for bytes; they fail with InterruptedRead."""
        ...


def other_size(name: str, found: int, wanted: int) -> WeightsError:
    """The object is not the one that was packed."""
    message = f"{name} has {found} bytes, the index says {wanted}: it is another object"
    return WeightsError(OTHER_OBJECT, message, "Pack again, or correct the URL.")


class FileSource:
    """A tar on this machine's disk.

    Args:
        path: of the tar.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path

    def probe(self, size: int) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            hint = "Pack the model again, or correct the path."
            raise WeightsError(NOT_FOUND, f"there is no file {self.name}", hint) from None
        except OSError as error:
            raise _unreadable(self.name, error) from None
        if not stat.S_ISREG(found.st_mode):
            hint = "Give a tar that cogsmith packed, or a folder."
            raise WeightsError(BAD_SOURCE, f"{self.name} is neither a file nor a folder", hint)
        if found.st_size != size:
            raise other_size(self.name, found.st_size, size)
        return True

    def reader(self) -> Reader:
        return _FileReader(self._path)

    def abort(self) -> None:
        """A disk answers by itself."""


class _FileReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(str(path), error) from None

    def open(self, start: int, end: int) -> Stream:
        return _FileStream(self._path, self._descriptor, start)

    def close(self) -> None:
        os.close(self._descriptor)


class _FileStream:
    def __init__(self, path: Path, descriptor: int, position: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self.position = position

    def readinto(self, view: memoryview) -> int:
        try:
            count = os.preadv(self._descriptor, [view], self.position)
        except OSError as error:
            raise _unreadable(str(self._path), error) from None
        self.position += count
        return count

    def close(self) -> None:
        """The reader keeps the file open."""


def _unreadable(name: str, error: OSError) -> WeightsError:
    return WeightsError(
        DISK, f"{name} cannot be read ({error.strerror})", "Check the disk and the permissions."
    )
