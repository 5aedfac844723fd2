"""The wheel that is built from the committed files works by itself, in an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import uv

from projects import make_project

REPOSITORY = Path(__file__).parent.parent


def test_an_installed_wheel_packs_and_renders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file() and not name.startswith("tests/"):
            target = tmp_path / "tree" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target)
    build = [
        uv.find_uv_bin(),
        "build",
        "--quiet",
        "--wheel",
        "--out-dir",
        str(tmp_path / "dist"),
        str(tmp_path / "tree"),
    ]
    subprocess.run(build, check=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    project = make_project(tmp_path / "project", monkeypatch)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    where = [
        sys.executable,
        "-c",
        "import cogsmith, cogsmith_runtime as r; print(cogsmith.__file__, r.__file__)",
    ]
    printed = subprocess.run(where, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.count(str(tmp_path / "installed")) == 2
    for verb in ("check", "pack", "render"):
        command = [sys.executable, "-m", "cogsmith", verb, "tiny"]
        done = subprocess.run(
            command, cwd=project.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (project.root / "build/tiny/cogsmith_runtime/weights/fetch.py").is_file()
