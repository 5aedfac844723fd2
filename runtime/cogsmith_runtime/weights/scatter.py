"""Bytes of the object, in order -> the files that they belong to, checked as they arrive."""

from __future__ import annotations

import threading

from crc32c import crc32c

from .errors import DAMAGED, WeightsError
from .journal import Journal
from .plan import Cursor
from .target import Target

# Smaller blocks cost time in calls, larger ones memory for each connection.
_BLOCK = 1 << 20
_TRIES_OF_A_DAMAGED_GRANULE = 3
_NOTHING = memoryview(b"")


class Scatter:
    """One connection's sink (see sources.Sink): gathers bytes to a block, sums and writes it, skips what is between files.

    Args:
        journal: told of each granule that is on the disk and right.
        stop: once set, no more bytes are wanted.
        name: of the source, for errors.

    Attributes:
        received: bytes taken so far, but for those of damaged granules.
    """

    def __init__(self, target: Target, journal: Journal, stop: threading.Event, name: str) -> None:
        self._target = target
        self._journal = journal
        self._stop = stop
        self._name = name
        self._block = memoryview(bytearray(_BLOCK))
        self._cursor = Cursor(())
        self._position = 0
        self._held = 0
        # Up to here the block takes bytes with no question asked.
        self._limit = 0
        self._spoiled = False
        self.received = 0

    def take(self, cursor: Cursor) -> None:
        """What comes next is of this part."""
        self._cursor = cursor
        self._limit = 0

    def begin(self, position: int) -> None:
        self._position = position
        self._held = self._limit = 0
        self._spoiled = False

    def room(self) -> memoryview:
        cursor = self._cursor
        if self._spoiled or cursor.done or self._stop.is_set():
            return _NOTHING
        gap = cursor.start + self._held - self._position
        if gap > 0:
            return self._block[: min(gap, _BLOCK)]
        return self._block[self._held : self._held + cursor.granule.size - cursor.filled - self._held]

    def filled(self, count: int) -> None:
        gap = self._cursor.start + self._held - self._position
        self._position += count
        if gap > 0:
            return
        self._held += count
        self.received += count
        if self._held == _BLOCK or self._cursor.filled + self._held == self._cursor.granule.size:
            self.flush()

    def put(self, data: bytes) -> bool:
        end = self._held + len(data)
        if end < self._limit:
            self._block[self._held : end] = data
            self._held = end
            self._position += len(data)
            self.received += len(data)
            return True
        left = memoryview(data)
        while left:
            room = self.room()
            count = min(len(room), len(left))
            if not count:
                return False
            room[:count] = left[:count]
            self.filled(count)
            left = left[count:]
        room = self.room()
        between = not room or self._position < self._cursor.start + self._held
        self._limit = 0 if between else self._held + len(room)
        return True

    def flush(self) -> None:
        """Write what is held; to be called too when a read was interrupted. Raises WeightsError."""
        if not self._held:
            return
        view = self._block[: self._held]
        self._held = self._limit = 0
        cursor = self._cursor
        crc = crc32c(view, cursor.crc)
        granule = cursor.granule
        if not self._target.write(granule.file, view, granule.position + cursor.filled):
            return
        cursor.took(len(view), crc)
        if cursor.full:
            self._finish(cursor)

    def _finish(self, cursor: Cursor) -> None:
        granule = cursor.granule
        if cursor.crc == granule.crc:
            self._journal.add(granule.file, granule.number)
            cursor.advance()
            return
        self._spoiled = True
        self.received -= granule.size
        cursor.restart()
        if cursor.bad >= _TRIES_OF_A_DAMAGED_GRANULE:
            message = (
                f"{self._target.path_of(granule.file)} is damaged in {self._name}: the {granule.size} bytes "
                f"at {granule.position} of the file (at {granule.start} of the object) do not have their crc32c"
            )
            hint = "Pack the model again under a new key, or copy the object again."
            raise WeightsError(DAMAGED, message, hint)
