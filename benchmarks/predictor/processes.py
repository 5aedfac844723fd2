"""What the kernel says of the processes that this one started."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cogsmith.errors import UserError

TICK = 1 / os.sysconf("SC_CLK_TCK")


def engine_root() -> str:
    """The URL of the engine below Cog's server, from its command line.

    Raises:
        UserError: none runs.
    """
    for pid in _descendants(os.getpid()):
        words = _words(pid)
        if "--port" in words:
            return f"http://127.0.0.1:{words[words.index('--port') + 1]}"
    raise UserError("no engine runs below Cog's server")


def server_cpu() -> float:
    """Processor time in seconds that Cog's server and its worker have used; the engine has a session of its own.

    Includes that of their threads and of children that ended, and of the lifeline that they hang on (next to none).
    """
    ours = [pid for pid, fields in _stats().items() if int(fields[1]) == os.getpid()]
    session = next(pid for pid in ours if "cog.server.http" in _words(pid))
    used = [sum(map(int, fields[11:15])) for fields in _stats().values() if int(fields[3]) == session]
    return sum(used) * TICK


def _stats() -> dict[int, list[str]]:
    """Process id -> the fields of /proc/PID/stat from the state on."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may hold anything.
            found[int(entry.parent.name)] = entry.read_text(errors="replace").rpartition(")")[2].split()
    return found


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, fields in _stats().items():
        children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    level = [root]
    while level:
        level = [child for pid in level for child in children.get(pid, [])]
        found += level
    return found


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
