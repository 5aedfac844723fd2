"""Which granules are on the disk already, so that a fetch that was killed goes on where it was.

A line is appended after a granule's bytes were written. The kernel keeps the bytes of a killed process, but a host
that went down may have lost them: claims made under another boot are checked again before they are believed.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from .disk import disk_errors

_MAGIC = "cogsmith-journal-1"


def boot_id() -> str:
    """Names this boot of the kernel; empty where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Journal:
    """The finished granules of one fetch. `add` may be called from several threads.

    Args:
        path: the journal's file; made anew by `begin`.
        digest: the index it belongs to; a journal of another index claims nothing.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        self._digest = digest
        self._file = -1
        self._lock = threading.Lock()
        self.claims: set[tuple[int, int]] = set()
        self.same_boot = False
        self._read()

    def _read(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return
        with os.fdopen(descriptor, "rb") as file:
            lines = file.read().decode("ascii", "replace").split("\n")
        head = lines[0].split(" ")
        if head[:2] != [_MAGIC, self._digest]:
            return
        self.same_boot = bool(boot_id()) and head[2:] == [boot_id()]
        # The last line has no newline behind it when the writer was killed inside it.
        for line in lines[1:-1]:
            numbers = line.split(" ")
            if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
                self.claims.add((int(numbers[0]), int(numbers[1])))

    def begin(self, claims: set[tuple[int, int]], *, trusted: bool = True) -> None:
        """Start the file anew with what is there; not trusted: it is checked again before it is believed."""
        self.close()
        self.claims = set(claims)
        lines = [f"{_MAGIC} {self._digest} {boot_id() if trusted else ''}"]
        lines += [f"{file} {granule}" for file, granule in sorted(claims)]
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        self._file = os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(self._file, ("\n".join(lines) + "\n").encode())
        fresh.replace(self._path)
        self.same_boot = trusted

    def add(self, file: int, granule: int) -> None:
        """Claim one granule."""
        with self._lock, disk_errors(self._path):
            if self._file >= 0:
                os.write(self._file, f"{file} {granule}\n".encode())

    def forget(self) -> None:
        """Claim nothing any more."""
        self.close()
        self._path.unlink(missing_ok=True)
        self.claims = set()

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
