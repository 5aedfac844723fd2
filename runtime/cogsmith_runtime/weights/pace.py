"""How many connections there are, and which of them are too slow: told the time and the bytes, never looks itself."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping

from .sources import Limits

_SECONDS_BETWEEN_STEPS = 0.5
_STEP = 16
# Less than this is the noise of a shared network.
_WORTH_IT = 1.1
_SECONDS_OF_A_SLOW_ONE = 4.0
_SLOW = 0.2
_FEWEST_TO_COMPARE = 4
SLOWEST = 1024
"""Bytes per second of one connection; less over the time of a timeout counts as none."""


class Growth:
    """Adds connections while that brings more bytes per second.

    Args:
        now: seconds, of any clock.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._since = now
        self._bytes = 0
        self._rate = 0.0
        self._over = False

    def more(self, now: float, received: int, connections: int) -> int:
        """How many to add now.

        Args:
            received: bytes, by all connections since the start.
            connections: that there are.
        """
        seconds = now - self._since
        if self._over or seconds < _SECONDS_BETWEEN_STEPS:
            return 0
        rate = (received - self._bytes) / seconds
        if not rate:
            return 0
        self._since, self._bytes = now, received
        if rate < self._rate * _WORTH_IT:
            self._over = True
            return 0
        self._rate = rate
        return max(0, min(_STEP, self._limits.most_connections - connections))


class Stragglers:
    """Finds connections that are far slower than the others, which a new one is likely to cure, and those that stand."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._timeout = limits.timeout
        self._began = now
        self._samples: dict[int, deque[tuple[float, int]]] = {}
        self._usual: float | None = None

    def forget(self, number: int) -> None:
        """This one does not wait for bytes, or has a new connection."""
        self._samples.pop(number, None)

    def slow(self, now: float, received: Mapping[int, int], average: float) -> dict[int, bool]:
        """Connections to replace -> whether that is a failure: True where next to nothing came for a whole timeout.

        Args:
            received: bytes so far of every connection that waits for bytes, by its number.
            average: bytes that one connection received so far, of all that there were.
        """
        rates = {}
        failed = {}
        for number, count in received.items():
            samples = self._samples.setdefault(number, deque())
            samples.append((now, count))
            if (rate := self._rate(samples, now, _SECONDS_OF_A_SLOW_ONE)) is not None:
                rates[number] = rate
            whole = self._rate(samples, now, self._timeout)
            if whole is not None and whole < SLOWEST:
                failed[number] = True
            while len(samples) > 1 and samples[1][0] < now - max(self._timeout, _SECONDS_OF_A_SLOW_ONE):
                samples.popleft()
        if len(rates) >= _FEWEST_TO_COMPARE:
            self._usual = statistics.median(rates.values())
        # At the end few are left to compare with, so what was usual before still holds. A fetch that was all but
        # over before there was anything to compare has its average.
        usual = average / (now - self._began) if self._usual is None else self._usual
        limit = usual * _SLOW
        found = {number: False for number, rate in rates.items() if rate < limit} | failed
        for number in found:
            self.forget(number)
        return found

    @staticmethod
    def _rate(samples: deque[tuple[float, int]], now: float, seconds: float) -> float | None:
        """Bytes per second over the last seconds; None where it is not watched that long."""
        start = None
        for time, count in samples:
            if time > now - seconds:
                break
            start = (time, count)
        return None if start is None else (samples[-1][1] - start[1]) / (now - start[0])
