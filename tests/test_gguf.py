"""GGUF: what is refused before a child is started, and what a failing child comes to. The real conversion is in real/."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cogsmith.errors import UserError
from cogsmith.gguf import check, convert

HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "is not a GGUF file", "config.json and safetensors"),
        (b"PK\3\4....", "is not a GGUF file", "config.json and safetensors"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is not a GGUF file", "git lfs pull"),
        (b"GGUF", "version that is not known (0, known are 2 and 3)", "current llama.cpp"),
        (b"GGUF" + struct.pack("<I", 1), "version that is not known (1,", "current llama.cpp"),
        (b"GGUF" + struct.pack(">I", 3), "version that is not known (50331648,", "big-endian"),
    ],
)
def test_refused_by_its_first_bytes(tmp_path: Path, data: bytes, message: str, hint: str) -> None:
    (tmp_path / "model.gguf").write_bytes(data)
    with pytest.raises(UserError) as caught:
        convert(
            tmp_path / "model.gguf", lambda: Path("/nowhere/python"), tmp_path / "cache", tmp_path / "log"
        )
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert not (tmp_path / "cache").exists()


def test_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        check(tmp_path / "none.gguf")


def python_that(tmp_path: Path, script: str) -> Path:
    """An interpreter that runs this instead of the converter; $3 is the GGUF, $4 the folder to make."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    (tmp_path / "model.gguf").write_bytes(HEAD)
    return tmp_path / "model.gguf"


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "cache" / "converted").iterdir() if path.suffix != ".lock"]


def test_converted_once(tmp_path: Path, gguf: Path) -> None:
    python = python_that(tmp_path, f'mkdir "$4"; cp "$3" "$4/config.json"; echo x >>{tmp_path}/calls')
    folders = {convert(gguf, lambda: python, tmp_path / "cache", tmp_path / "logs" / "log") for _ in range(2)}
    digest = hashlib.sha256(HEAD).hexdigest()
    assert folders == {tmp_path / "cache" / "converted" / f"{digest}-1"}
    assert (tmp_path / "calls").read_text() == "x\n"
    assert left(tmp_path) == [f"{digest}-1"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            'mkdir "$4"; echo progress; echo "error: no such architecture" >&2; exit 1',
            "converted: no such architecture",
        ),
        ("exit 7", "the converter ended with status 7"),
        ("kill -9 $$", "the memory ran out"),
        ("kill -ILL $$", "died of SIGILL"),
    ],
)
def test_a_failing_child(tmp_path: Path, gguf: Path, script: str, message: str) -> None:
    log = tmp_path / "log"
    with pytest.raises(UserError, match=message) as caught:
        convert(gguf, lambda: python_that(tmp_path, script), tmp_path / "cache", log)
    assert str(log) in (caught.value.hint or "")
    assert left(tmp_path) == []


def test_an_environment_without_the_packages(tmp_path: Path, gguf: Path) -> None:
    """The real child: it must not take our own gguf.py for the package of that name."""
    with pytest.raises(UserError, match=r"No module named '(gguf|transformers)'"):
        convert(gguf, lambda: Path(sys.executable), tmp_path / "cache", tmp_path / "log")


def test_no_python(tmp_path: Path, gguf: Path) -> None:
    with pytest.raises(UserError, match="/nowhere/python cannot be started"):
        convert(gguf, lambda: Path("/nowhere/python"), tmp_path / "cache", tmp_path / "log")


def test_ctrl_c_ends_the_child_and_its_children(tmp_path: Path, gguf: Path) -> None:
    python = python_that(tmp_path, f'mkdir "$4"; sleep 60 & echo $! >{tmp_path}/pid; wait')
    code = (
        "import sys; from pathlib import Path; from cogsmith.gguf import convert;"
        "gguf, python, cache, log = map(Path, sys.argv[1:]); convert(gguf, lambda: python, cache, log)"
    )
    command = [sys.executable, "-c", code, *map(str, (gguf, python, tmp_path / "cache", tmp_path / "log"))]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    pid = tmp_path / "pid"
    limit = time.monotonic() + 20
    while time.monotonic() < limit and not (pid.exists() and pid.read_text().strip()):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    assert running.wait(timeout=20) != 0
    assert left(tmp_path) == []
    while time.monotonic() < limit and _alive(int(pid.read_text())):
        time.sleep(0.02)
    assert not _alive(int(pid.read_text()))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
