"""Run a program so that neither it nor anything it starts can outlive whoever asked for it.

    python lifeline.py [--grace SECONDS] -- PROGRAM ARGUMENT…

The program runs in a process group of its own. All of it is ended (SIGTERM, SECONDS of grace, SIGKILL) when
- stdin reaches its end. The parent holds the other end of that pipe and the kernel closes it however the parent
  dies, SIGKILL included; no handler of the parent's has to run.
- SIGTERM, SIGINT or SIGHUP arrives,
- or the program exits by itself and leaves others behind.

Killing a group misses a process that opened a session of its own. So this process makes itself the "subreaper" of
its descendants: an orphan among them becomes its child instead of init's, and is found by its parent id. Should this
process itself be killed, the kernel kills the program (PR_SET_PDEATHSIG).

The exit status is the program's own, 128 + n when signal n ended it, 127 when it could not be started.
Standard library only and nothing slow to import: it starts in a few milliseconds.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

GRACE = 5.0
_LAST_RESORT = 10.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def command(argv: list[str], grace: float = GRACE) -> list[str]:
    """The argv that runs `argv` under a lifeline. Start it with a pipe as stdin and keep that pipe open.

    Start it in a session of its own too (`start_new_session=True`), so that a Ctrl-C in the terminal reaches only the
    parent, which then decides. The session's id is the process id, and the program's processes are in it.
    """
    # Isolated and without site: no PYTHONPATH, no folder of the caller's can change what this process imports.
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--grace", str(grace), "--", *argv]


def start(argv: list[str], grace: float = GRACE, **options: Any) -> subprocess.Popen[bytes]:
    """Start `argv` under a lifeline. `stop` ends it; so does the death of this process.

    options: as for `subprocess.Popen`, except stdin and start_new_session.
    """
    return subprocess.Popen(command(argv, grace), stdin=subprocess.PIPE, start_new_session=True, **options)


def stop(process: subprocess.Popen[bytes]) -> int:
    """End what `start` started, wait until all of it is gone, and return the exit status."""
    if process.stdin is not None:
        process.stdin.close()
    return process.wait()


class _Supervisor:
    def __init__(self, argv: list[str], grace: float) -> None:
        self.grace = grace
        self.status: int | None = None
        self.wake_read, wake_write = os.pipe()
        for end in (self.wake_read, wake_write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self.asked_to_end = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        # A handler, though it does nothing: an ignored signal would not wake the loop.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        prctl = _prctl()
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.program = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            process_group=0,
            # Safe after a fork only because this process has one thread.
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )

    def _on_signal(self, *_: object) -> None:
        self.asked_to_end = True

    def run(self) -> int:
        poll = select.poll()
        poll.register(0, select.POLLIN | select.POLLHUP)
        poll.register(self.wake_read, select.POLLIN)
        while self.status is None and not self.asked_to_end:
            for fd, _ in poll.poll():
                if fd == self.wake_read:
                    os.read(self.wake_read, 4096)
                elif not os.read(0, 65536):
                    self.asked_to_end = True
            self._reap()
        self._end()
        # Popen warns about a child it has not waited for itself.
        self.program.returncode = self.status
        return 128 + signal.SIGKILL if self.status is None else self.status

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.program.pid:
                    code = os.waitstatus_to_exitcode(wait_status)
                    self.status = code if code >= 0 else 128 - code

    def _end(self) -> None:
        self._signal_all(signal.SIGTERM)
        if not self._all_gone(self.grace):
            deadline = time.monotonic() + _LAST_RESORT
            # Again and again: a process may have forked between the look and the kill.
            while time.monotonic() < deadline:
                self._signal_all(signal.SIGKILL)
                if self._all_gone(0.1):
                    break

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.program.pid, number)
        for pid in _descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getpgid(pid) != self.program.pid:
                    os.kill(pid, number)

    def _all_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            self._reap()
            if self.status is not None and not _descendants():
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


def _descendants() -> list[int]:
    """Process ids below this one, the dead but unreaped left out. Empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may hold anything; the fields after it are plain.
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(entry.parent.name))
    found: list[int] = []
    level = [os.getpid()]
    while level:
        level = [child for pid in level for child in children.get(pid, [])]
        found += level
    return found


def _prctl() -> Any:
    """Linux's prctl; elsewhere a function that does nothing, and the group and the pipe must do."""
    try:
        return ctypes.CDLL(None).prctl
    except AttributeError:
        return lambda *_: 0


def main(arguments: list[str]) -> int:
    grace = GRACE
    if arguments[:1] == ["--grace"]:
        grace, arguments = float(arguments[1]), arguments[2:]
    if arguments[:1] != ["--"] or len(arguments) < 2:
        sys.stderr.write("usage: lifeline [--grace SECONDS] -- PROGRAM ARGUMENT...\n")
        return 2
    try:
        supervisor = _Supervisor(arguments[1:], grace)
    except OSError as error:
        sys.stderr.write(f"lifeline: cannot start {arguments[1]}: {error.strerror}\n")
        return 127
    return supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
