"""`cogsmith status --boot`: the report in a log, as text and as a picture."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPORT = {
    "seconds": 20.0,
    "phases": [
        {
            "phase": "fetch",
            "start": 0.0,
            "seconds": 5.0,
            "bytes": 16_000_000_000,
            "bytes_per_second": 3_200_000_000,
        }
        | {"connections": 48, "retries": 2},
        {"phase": "verify", "start": 5.0, "seconds": 0.01},
        {"phase": "engine_import", "start": 5.0, "seconds": 10.0},
        {"phase": "load", "start": 15.0, "seconds": 4.0},
        {"phase": "warm_up", "start": 19.0, "seconds": 1.0},
    ],
}
WATERFALL = """\
fetch             5.00 s  ██████████                                16.000 GB, 3.20 GB/s, 48 connections, 2 retries
verify            0.01 s            █
engine import    10.00 s            ████████████████████
load              4.00 s                                ████████
warm-up           1.00 s                                        ██
ready after      20.00 s
"""


def status(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cogsmith", "status", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """With what Cog's logger puts around a line, and an earlier boot that took longer."""
    earlier = json.dumps({"seconds": 99.0, "phases": [{"phase": "load", "start": 0, "seconds": 99}]})
    path = tmp_path / "server.log"
    path.write_text(
        "starting\n"
        f"cogsmith boot report: {earlier}\n"
        '{"prompt": "not a report"}\n'
        "cogsmith boot: load 4.00 s\n"
        f'\x1b[2m2026-12-07\x1b[0m INFO cogsmith boot report: {json.dumps(REPORT)} field="x"\n'
        "ready\n"
    )
    return path


def test_the_last_boot_in_a_log(log: Path) -> None:
    done = status("--boot", log)
    assert (done.returncode, done.stdout, done.stderr) == (0, WATERFALL, "")


def test_the_file_that_a_boot_leaves(tmp_path: Path) -> None:
    path = tmp_path / "boot.json"
    path.write_text(json.dumps(REPORT) + "\n")
    assert status("--boot", path).stdout == WATERFALL


@pytest.mark.parametrize(("name", "begins"), [("boot.png", b"\x89PNG"), ("boot.svg", b"<?xml")])
def test_a_picture(log: Path, tmp_path: Path, name: str, begins: bytes) -> None:
    done = status("--boot", log, "--output", tmp_path / name)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"Wrote {tmp_path / name}\n"
    assert (tmp_path / name).read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, (), "there is no file"),
        ("nothing here\n", (), "holds no boot report"),
        ("cogsmith boot report: {broken\n", (), "holds no boot report"),
        ('cogsmith boot report: {"seconds": 1, "phases": [3]}\n', (), "holds no boot report"),
        (f"cogsmith boot report: {json.dumps(REPORT)}\n", ("-o", "x.gif"), "name it *.png or *.svg"),
        (f"cogsmith boot report: {json.dumps(REPORT)}\n", ("-o", "/nowhere/x.svg"), "cannot be written"),
    ],
    ids=["no file", "no report", "broken", "no phases", "gif", "no folder"],
)
def test_what_cannot_be_shown(
    tmp_path: Path, text: str | None, arguments: tuple[str, ...], message: str
) -> None:
    log = tmp_path / "log"
    if text is not None:
        log.write_text(text)
    done = status("--boot", log, *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
