"""One command: how long it takes, what it costs, how much memory it has of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SECONDS_BETWEEN_LOOKS = 0.03


@dataclass(frozen=True)
class Run:
    """What one command took.

    Attributes:
        seconds: from its start to its end.
        cpu: user and system seconds of it and of its children.
        memory: peak of RssAnon, MiB, of all its processes together; looked at 33 times a second.
        error: its last line of output, if it failed.
    """

    seconds: float
    cpu: float
    memory: float
    error: str | None


def run(command: Sequence[str], environment: Mapping[str, str], limit: float) -> Run:
    """Run a command to its end, or kill it after `limit` seconds."""
    began = time.monotonic()
    child = subprocess.Popen(
        command,
        # A program that is in use has its bytecode.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    peak = [0.0]
    over = threading.Event()
    sampler = threading.Thread(target=_sample, args=(child.pid, peak, over))
    sampler.start()
    killer = threading.Timer(limit, lambda: os.killpg(child.pid, 9))
    killer.start()
    assert child.stdout is not None
    with child.stdout:
        output = child.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    killer.cancel()
    over.set()
    sampler.join()
    child.returncode = os.waitstatus_to_exitcode(status)
    error = None
    if child.returncode:
        last = (output.strip().splitlines() or ["no output"])[-1]
        error = (
            f"killed after {limit:.0f} s" if seconds >= limit else f"exit {child.returncode}: {last[:200]}"
        )
    return Run(seconds, usage.ru_utime + usage.ru_stime, peak[0], error)


def _sample(root: int, peak: list[float], over: threading.Event) -> None:
    while not over.wait(_SECONDS_BETWEEN_LOOKS):
        peak[0] = max(peak[0], sum(map(_anonymous, _tree(root))) / 1024)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def _anonymous(pid: int) -> int:
    """KiB."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    return 0
