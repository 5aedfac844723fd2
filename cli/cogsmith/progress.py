"""How far a long read or upload is, told a few times a second."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

_SECONDS_BETWEEN_REPORTS = 0.25

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""

Bar = Callable[[str], AbstractContextManager[Progress]]
"""Makes a progress bar with a title."""


@contextlib.contextmanager
def no_bar(_title: str) -> Iterator[Progress]:
    """A bar that shows nothing."""
    yield lambda _done, _total: None


class StoppedError(Exception):
    """The work was given up elsewhere; nobody is told of this one."""


class Reporter:
    """Passes progress on a few times a second. Used by several threads.

    Args:
        total: bytes in all.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._last = time.monotonic()
        self._lock = threading.Lock()
        self._stopped = False

    def add(self, size: int) -> None:
        """So many bytes more; fewer where it is negative, since they are sent again. Raises StoppedError after `stop`."""
        with self._lock:
            if self._stopped:
                raise StoppedError
            self._done += size
            if self._progress and time.monotonic() - self._last >= _SECONDS_BETWEEN_REPORTS:
                self._last = time.monotonic()
                self._progress(self._done, self._total)

    def stop(self) -> None:
        """Make every thread that reports end at its next block."""
        self._stopped = True

    def end(self) -> None:
        """Report once more, where it ended."""
        if self._progress:
            self._progress(self._done, self._total)
