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
        connections: at once, to begin with. Not a function of the cores: an object store caps each connection.
        most_connections: up to which they grow while that brings more bytes per second.
        part: bytes asked for by one request, about.
        timeout: seconds without a byte until a connection counts as dead.
        tries: failures in a row, with next to no bytes between them, until a connection is given up.
        pause: seconds before the first new try; doubles with each, up to `longest_pause`.
    """

    connections: int = 32
    most_connections: int = 64
    part: int = 16 << 20
    timeout: float = 30.0
    tries: int = 8
    pause: float = 0.25
    longest_pause: float = 10.0


class InterruptedRead(Exception):  # noqa: N818 - no error yet: it is tried again
    """The source failed in a way that may pass.

    Args:
        reason: a few words.
        wait: seconds that the server asks to stay away.
    """

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Sink(Protocol):
    """Takes the bytes that a reader brings, in order. Used by one thread at a time."""

    def begin(self, position: int) -> None:
        """What follows starts at this offset of the object, at or before the byte that was asked for."""
        ...

    def room(self) -> memoryview:
        """Where the next bytes go, as many as fit; empty when no more are wanted."""
        ...

    def filled(self, count: int) -> None:
        """So many bytes are in the room now. Raises WeightsError."""
        ...

    def put(self, data: bytes) -> bool:
        """Take bytes that are in memory already; False once no more are wanted. Raises WeightsError."""
        ...


class Reader(Protocol):
    """One thread's way to a source."""

    def read(self, start: int, end: int, sink: Sink) -> None:
        """Give the sink the bytes from start to end (exclusive), until it wants no more.

        Raises InterruptedRead, also when the bytes end too early; WeightsError.
        """
        ...

    def interrupt(self) -> None:
        """From any thread: make a read that waits for bytes fail with InterruptedRead."""
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


def ended_early(position: int) -> InterruptedRead:
    """The bytes stopped at this offset of the object, and more were promised."""
    return InterruptedRead(f"the body ended early, at byte {position} of the object")


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


class _FileReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable(str(path), error) from None

    def read(self, start: int, end: int, sink: Sink) -> None:
        sink.begin(start)
        while room := sink.room():
            try:
                count = os.preadv(self._descriptor, [room], start)
            except OSError as error:
                raise _unreadable(str(self._path), error) from None
            if not count:
                raise ended_early(start)
            start += count
            sink.filled(count)

    def interrupt(self) -> None:
        """A disk answers by itself."""

    def close(self) -> None:
        os.close(self._descriptor)


def _unreadable(name: str, error: OSError) -> WeightsError:
    return WeightsError(
        DISK, f"{name} cannot be read ({error.strerror})", "Check the disk and the permissions."
    )
