"""A disk that is full, runs full or cannot be written: a real one, small, in a mount namespace of the test's own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from .packed import Object, packed

OBJECT: Object = packed()
MIB = 1 << 20
# Root in a user namespace of its own may mount; where the kernel or a container forbids that, only real root can.
UNSHARE = ["unshare", "--mount", "--map-root-user"] if os.geteuid() else ["unshare", "--mount"]


def on_a_disk(folder: Path, options: str) -> subprocess.CompletedProcess[str]:
    """Fetch to a tmpfs mounted with these options; the output ends with what its cache holds then."""
    tar = OBJECT.write(folder)
    disk = folder / "disk"
    disk.mkdir()
    fetch = [sys.executable, "-m", "cogsmith_runtime.weights", "--index", str(folder / "weights.json")]
    lines = (
        f"mount -t tmpfs -o {options.replace(',ro', '')} none {shlex.quote(str(disk))}",
        f"cd {shlex.quote(str(disk))}",
        f"mount -o remount,{options} none ." if ",ro" in options else "true",
        f"{shlex.join([*fetch, '--url', str(tar), '--to', str(disk / 'cache')])}; status=$?",
        "ls cache",
        "exit $status",
    )
    done = subprocess.run(
        [*UNSHARE, "sh", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=False
    )
    if "unshare" in done.stderr or "mount: " in done.stderr:
        pytest.skip("this machine lets nobody mount a small disk")
    return done


def test_room_for_all(tmp_path: Path) -> None:
    done = on_a_disk(tmp_path, f"size={len(OBJECT.content) + MIB}")
    assert done.returncode == 0
    assert OBJECT.index.digest in done.stdout.splitlines()


def test_too_small_from_the_start(tmp_path: Path) -> None:
    done = on_a_disk(tmp_path, f"size={MIB}")
    assert done.returncode == 7
    assert done.stderr.startswith("E2209 NoSpace: the disk of ")
    assert OBJECT.index.digest not in done.stdout.splitlines()


def test_no_room_for_another_file(tmp_path: Path) -> None:
    """The bytes would fit, the files do not: nothing tells so before the last one is made."""
    done = on_a_disk(tmp_path, f"size={len(OBJECT.content) + MIB},nr_inodes=8")
    assert done.returncode == 7
    assert done.stderr.startswith("E2209 NoSpace: the disk of ")


def test_a_disk_that_may_only_be_read(tmp_path: Path) -> None:
    done = on_a_disk(tmp_path, f"size={len(OBJECT.content) + MIB},ro")
    assert done.returncode == 7
    assert done.stderr.startswith("E2210 DiskError: ")
    assert "Read-only file system" in done.stderr
    assert "Traceback" not in done.stderr
