"""Few threads that drive many connections of libcurl.

libcurl hands over 16 KiB at a time, and Python's lock is taken for each: with a thread for every connection they would
wait for the lock, and for each other, longer than the decryption takes.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import pycurl

ABORTED = -1
"""The code of a transfer that `Loop.abort` ended."""
# Each has a core's worth of decryption; Python's lock makes more of them wait for each other.
_MOST_THREADS = 4
_SECONDS_BETWEEN_LOOKS = 1.0


class _Running:
    """A transfer that a thread waits for."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.code = ABORTED
        self.text = "the thread of libcurl ended"

    def end(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        self.ended.set()


class Loop:
    """One thread, and the handles that it drives. Every method may be called from any other thread."""

    def __init__(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._orders: deque[Callable[[], None]] = deque()
        self._running: dict[pycurl.Curl, _Running] = {}
        self._due: float | None = None
        self._over = False
        self._thread = threading.Thread(target=self._run, name="libcurl", daemon=True)
        self._thread.start()

    def perform(self, curl: pycurl.Curl) -> tuple[int, str]:
        """Drive a handle to its end, and wait for that: libcurl's code, 0 for success, and what it says of it."""
        running = _Running()
        self._order(lambda: self._begin(curl, running))
        while not running.ended.wait(_SECONDS_BETWEEN_LOOKS) and self._thread.is_alive():
            pass
        return running.code, running.text

    def abort(self, curl: pycurl.Curl) -> None:
        """End a handle's transfer, if there is one."""
        self._order(lambda: self._end(curl, ABORTED, "interrupted"))

    def close(self) -> None:
        """End the thread, and whatever it drives."""
        self._order(self._stop)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        # A full pipe wakes as well as one byte more; a closed one belongs to a thread that is gone.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _begin(self, curl: pycurl.Curl, running: _Running) -> None:
        self._running[curl] = running
        self._multi.add_handle(curl)

    def _end(self, curl: pycurl.Curl, code: int, text: str) -> None:
        if running := self._running.pop(curl, None):
            self._multi.remove_handle(curl)
            running.end(code, text)

    def _stop(self) -> None:
        self._over = True

    def _run(self) -> None:
        try:
            while not self._over:
                self._turn()
        finally:
            for curl in list(self._running):
                self._end(curl, ABORTED, "interrupted")
            self._multi.close()
            self._selector.close()
            self._woken.close()
            self._waker.close()

    def _turn(self) -> None:
        """Wait for whatever comes first, and let libcurl deal with it."""
        wait = None if self._due is None else max(0.0, self._due - time.monotonic())
        for key, events in self._selector.select(wait):
            if key.fileobj is self._woken:
                self._obey()
            else:
                read = pycurl.CSELECT_IN if events & selectors.EVENT_READ else 0
                write = pycurl.CSELECT_OUT if events & selectors.EVENT_WRITE else 0
                self._multi.socket_action(key.fd, read | write)
        if self._due is not None and self._due <= time.monotonic():
            self._due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._reap()

    def _obey(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        while self._orders:
            self._orders.popleft()()

    def _reap(self) -> None:
        left = 1
        while left:
            left, succeeded, failed = self._multi.info_read()
            for curl in succeeded:
                self._end(curl, pycurl.E_OK, "")
            for curl, code, text in failed:
                self._end(curl, code, text)

    def _watch(self, what: int, descriptor: int, _multi: object, _data: object) -> None:
        """libcurl wants to hear of this socket, or no more."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)
        if what != pycurl.POLL_REMOVE:
            read = selectors.EVENT_READ if what & pycurl.POLL_IN else 0
            write = selectors.EVENT_WRITE if what & pycurl.POLL_OUT else 0
            self._selector.register(descriptor, read | write)

    def _set_timer(self, milliseconds: int) -> None:
        self._due = None if milliseconds < 0 else time.monotonic() + milliseconds / 1000


class Loops:
    """The threads of one source: begun with its first reader, ended with its last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: list[Loop] = []
        self._next = self._readers = 0

    def join(self) -> Loop:
        """One reader more: the thread that drives it."""
        with self._lock:
            self._readers += 1
            self._next += 1
            if len(self._loops) < min(_MOST_THREADS, os.cpu_count() or 1):
                self._loops.append(Loop())
                return self._loops[-1]
            return self._loops[self._next % len(self._loops)]

    def leave(self) -> None:
        """One reader less."""
        with self._lock:
            self._readers -= 1
            if not self._readers:
                for loop in self._loops:
                    loop.close()
                self._loops = []
