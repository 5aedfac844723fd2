"""Parts of an object into files, by several connections, checked as they arrive."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from .errors import UNREACHABLE, WeightsError
from .journal import Journal
from .pace import SLOWEST, Growth, Stragglers
from .plan import Cursor, Part
from .scatter import Scatter
from .sources import InterruptedRead, Limits, Reader, Source
from .target import Target

_SECONDS_BETWEEN_LOOKS = 0.25
_SECONDS_FOR_THREADS_TO_END = 2.0
# A server that sends less than this between two failures does not serve.
_PROGRESS = 64 << 10
_LONGEST_WAIT = 60.0


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
            hint = "Check the network and the server; what is fetched is kept."
            raise WeightsError(UNREACHABLE, message, hint)
        pause = min(self._limits.pause * 2 ** (self._count - 1), self._limits.longest_pause)
        # Spread, so that many readers do not come back all at once; never before the server asks for it.
        pause *= random.uniform(0.5, 1)  # noqa: S311
        self._stop.wait(max(pause, min(reason.wait, _LONGEST_WAIT) * random.uniform(1, 1.2)))  # noqa: S311


class _Connection:
    """One thread that reads part after part, and what the others may know of it."""

    def __init__(self, number: int, sink: Scatter) -> None:
        self.number = number
        self.sink = sink
        self.thread: threading.Thread | None = None
        self.reader: Reader | None = None
        self.reading = False
        self.ended = False
        self.replaced: InterruptedRead | None = None
        self.retries = 0

    def interrupt(self) -> None:
        if self.reader is not None:
            self.reader.interrupt()

    def replace(self, reason: InterruptedRead) -> None:
        """End the connection under a read; the part goes on over a new one."""
        self.replaced = reason
        self.interrupt()


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
        self._queue: deque[Cursor] = deque()
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._connections: list[_Connection] = []
        self._retries = 0

    @property
    def received(self) -> int:
        """Bytes of files that came over so far."""
        return sum(connection.sink.received for connection in self._connections)

    @property
    def connections(self) -> int:
        """How many there were."""
        return len(self._connections)

    @property
    def retries(self) -> int:
        """How often something was asked for again."""
        return self._retries + sum(connection.retries for connection in self._connections)

    def probe(self, size: int) -> bool:
        """Whether the object can be read by ranges. Raises WeightsError if it is not there or another one."""
        tries = Tries(self._limits, self._source.name, self._stop)
        while True:
            try:
                return self._source.probe(size)
            except InterruptedRead as reason:
                self._retries += 1
                tries.failed(reason)

    def run(self, parts: Sequence[Part], report: Callable[[int], None]) -> None:
        """Fetch every part. Raises the first error of any connection; what is done stays done.

        Args:
            report: called a few times a second, from this thread, with the bytes received so far.
        """
        self._queue.extend(Cursor(part) for part in parts)
        try:
            self._start(min(self._limits.connections, len(parts)))
            self._watch(report)
        finally:
            self._stop.set()
            for connection in self._connections:
                if not connection.ended:
                    connection.interrupt()
            # One that hangs in a name server's answer is left behind: target and journal are closed to it.
            limit = time.monotonic() + _SECONDS_FOR_THREADS_TO_END
            for connection in self._connections:
                if connection.thread is not None and connection.thread.ident is not None:
                    connection.thread.join(max(0.0, limit - time.monotonic()))
        if self._failure is not None:
            raise self._failure

    def _start(self, count: int) -> None:
        for _ in range(count):
            sink = Scatter(self._target, self._journal, self._stop, self._source.name)
            connection = _Connection(len(self._connections), sink)
            connection.thread = threading.Thread(target=self._work, args=(connection,), daemon=True)
            self._connections.append(connection)
            connection.thread.start()

    def _watch(self, report: Callable[[int], None]) -> None:
        """Wait for the end, and meanwhile add connections and replace slow ones."""
        growth = Growth(self._limits, time.monotonic())
        stragglers = Stragglers(self._limits, time.monotonic())
        while self._failure is None:
            living = [connection for connection in self._connections if not connection.ended]
            if not living:
                if not self._queue:
                    return
                # The last one ended just when another gave its part back.
                self._start(1)
                continue
            self._ended.wait(_SECONDS_BETWEEN_LOOKS)
            self._ended.clear()
            report(self.received)
            now = time.monotonic()
            self._start(min(growth.more(now, self.received, len(living)), len(self._queue)))
            for connection in living:
                if not connection.reading:
                    stragglers.forget(connection.number)
            reading = {each.number: each.sink.received for each in living if each.reading}
            average = self.received / len(self._connections)
            for number, failed in stragglers.slow(now, reading, average).items():
                self._connections[number].replace(self._too_slow(failed))

    def _too_slow(self, failed: bool) -> InterruptedRead:
        if failed:
            return InterruptedRead(f"less than {SLOWEST} bytes/s for {self._limits.timeout:g} s")
        return _FarSlower("far slower than the other connections")

    def _work(self, connection: _Connection) -> None:
        try:
            connection.reader = self._source.reader()
            try:
                while not self._stop.is_set() and (cursor := self._next()):
                    if not self._fetch(connection, cursor):
                        break
            finally:
                connection.reader.close()
        except BaseException as failure:
            if self._failure is None and not self._stop.is_set():
                self._failure = failure
        finally:
            connection.ended = True
            self._ended.set()

    def _next(self) -> Cursor | None:
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def _fetch(self, connection: _Connection, cursor: Cursor) -> bool:
        """Read one part to its end; False where this connection had better not be used any more."""
        tries = Tries(self._limits, self._source.name, self._stop)
        sink = connection.sink
        sink.take(cursor)
        others = self.received - sink.received
        while not cursor.done and not self._stop.is_set():
            before = sink.received
            try:
                self._read(connection, cursor)
            except InterruptedRead as reason:
                connection.retries += 1
                reason, connection.replaced = connection.replaced or reason, None
                progressed = sink.received - before >= _PROGRESS
                if progressed:
                    tries.progressed()
                    others = self.received - sink.received
                # A server that serves and cuts is asked for the rest at once.
                at_once = isinstance(reason, _FarSlower) or (progressed and not reason.wait)
                if at_once or self._stop.is_set():
                    continue
                try:
                    tries.failed(reason)
                except WeightsError:
                    # A server that refuses this one may serve as many as it likes; a part fails when two gave it up.
                    if cursor.given_up or self.received - sink.received <= others:
                        raise
                    cursor.given_up = True
                    self._queue.appendleft(cursor)
                    return False
        return True

    @staticmethod
    def _read(connection: _Connection, cursor: Cursor) -> None:
        assert connection.reader is not None
        try:
            connection.reading = True
            connection.reader.read(cursor.start, cursor.end, connection.sink)
        finally:
            connection.reading = False
            connection.sink.flush()


class _FarSlower(InterruptedRead):
    """No failure of the source: nothing is counted and nobody waits."""
