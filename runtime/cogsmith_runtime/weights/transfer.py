"""Parts of an object into files, by several threads, checked as they arrive."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from crc32c import crc32c

from .errors import DAMAGED, UNREACHABLE, WeightsError
from .journal import Journal
from .plan import Cursor, Part
from .sources import InterruptedRead, Limits, Reader, Source, Stream
from .target import Target

_BLOCK = 1 << 20
_TRIES_OF_A_DAMAGED_GRANULE = 3
_SECONDS_BETWEEN_REPORTS = 0.25
_SECONDS_FOR_THREADS_TO_END = 2.0


class Tries:
    """Counts failures in a row and waits between them; bytes that arrive set the count back.

    Args:
        limits: see Limits.
        name: of the source, for the error.
        stop: ends a wait early.
    """

    def __init__(self, limits: Limits, name: str, stop: threading.Event) -> None:
        self._limits = limits
        self._name = name
        self._stop = stop
        self._count = 0

    def progressed(self) -> None:
        self._count = 0

    def failed(self, reason: InterruptedRead) -> None:
        """Wait for the next try. Raises WeightsError when there were enough of them."""
        self._count += 1
        if self._count >= self._limits.tries:
            message = f"{self._name} cannot be read after {self._count} tries ({reason})"
            raise WeightsError(
                UNREACHABLE, message, "Check the network and the server; what is fetched is kept."
            )
        pause = min(self._limits.pause * 2 ** (self._count - 1), self._limits.longest_pause)
        # Spread, so that many readers do not come back all at once.
        self._stop.wait(pause * random.uniform(0.5, 1))  # noqa: S311


class Transfer:
    """One fetch from one source into one target.

    Args:
        journal: told of each granule that is on the disk and right.
    """

    def __init__(self, source: Source, target: Target, journal: Journal, limits: Limits) -> None:
        self._source = source
        self._target = target
        self._journal = journal
        self._limits = limits
        self._queue: deque[Part] = deque()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._received: list[int] = []

    def probe(self, size: int) -> bool:
        """Whether the object can be read by ranges. Raises WeightsError if it is not there or another one."""
        tries = Tries(self._limits, self._source.name, self._stop)
        while True:
            try:
                return self._source.probe(size)
            except InterruptedRead as reason:
                tries.failed(reason)

    def run(self, parts: Sequence[Part], report: Callable[[int], None]) -> None:
        """Fetch every part. Raises the first WeightsError of any thread; what is done stays done.

        Args:
            report: called a few times a second, from this thread, with the bytes received so far.
        """
        self._queue.extend(parts)
        count = min(self._limits.connections, len(parts))
        self._received = [0] * count
        threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(count)
        ]
        try:
            for thread in threads:
                thread.start()
            while self._failure is None and any(thread.is_alive() for thread in threads):
                self._wait(threads)
                report(sum(self._received))
        finally:
            self._stop.set()
            if any(thread.is_alive() for thread in threads):
                self._source.abort()
            # One that hangs in a name server's answer is left behind: target and journal are closed to it.
            limit = time.monotonic() + _SECONDS_FOR_THREADS_TO_END
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, limit - time.monotonic()))
        if self._failure is not None:
            raise self._failure

    @staticmethod
    def _wait(threads: list[threading.Thread]) -> None:
        for thread in threads:
            if thread.is_alive():
                thread.join(_SECONDS_BETWEEN_REPORTS)
                return

    def _work(self, number: int) -> None:
        block = memoryview(bytearray(_BLOCK))
        try:
            reader = self._source.reader()
            try:
                while not self._stop.is_set() and (part := self._next()):
                    self._fetch(reader, Cursor(part), block, number)
            finally:
                reader.close()
        except BaseException as failure:
            if self._failure is None and not self._stop.is_set():
                self._failure = failure

    def _next(self) -> Part | None:
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def _fetch(self, reader: Reader, cursor: Cursor, block: memoryview, number: int) -> None:
        tries = Tries(self._limits, self._source.name, self._stop)
        while not cursor.done and not self._stop.is_set():
            before = self._received[number]
            try:
                stream = reader.open(cursor.start, cursor.end)
                try:
                    self._scatter(stream, cursor, block, number)
                finally:
                    stream.close()
            except InterruptedRead as reason:
                if self._received[number] > before:
                    tries.progressed()
                tries.failed(reason)

    def _scatter(self, stream: Stream, cursor: Cursor, block: memoryview, number: int) -> None:
        """Write what the stream brings to where it belongs, until the part is done or a granule is damaged."""
        while not cursor.done and not self._stop.is_set():
            gap = cursor.start - stream.position
            wanted = gap or cursor.granule.size - cursor.filled
            view = block[: min(wanted, _BLOCK)]
            count = stream.readinto(view)
            if not count:
                raise InterruptedRead(f"the body ended early, at byte {stream.position} of the object")
            if gap:
                continue
            self._store(cursor, view[:count])
            self._received[number] += count
            if cursor.full and not self._finish(cursor, number):
                return

    def _store(self, cursor: Cursor, view: memoryview) -> None:
        crc = crc32c(view, cursor.crc)
        granule = cursor.granule
        if self._target.write(granule.file, view, granule.position + cursor.filled):
            cursor.took(len(view), crc)

    def _finish(self, cursor: Cursor, number: int) -> bool:
        granule = cursor.granule
        if cursor.crc == granule.crc:
            self._journal.add(granule.file, granule.number)
            cursor.advance()
            return True
        self._received[number] -= granule.size
        cursor.restart()
        if cursor.bad >= _TRIES_OF_A_DAMAGED_GRANULE:
            message = (
                f"{self._target.path_of(granule.file)} is damaged in {self._source.name}: the {granule.size} bytes "
                f"at {granule.position} of the file (at {granule.start} of the object) do not have their crc32c"
            )
            raise WeightsError(
                DAMAGED, message, "Pack the model again under a new key, or copy the object again."
            )
        return False
