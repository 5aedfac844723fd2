"""`cogsmith init`: an empty folder becomes a project that passes `check`, and nothing of the user's is overwritten."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from checkpoints import write_checkpoint
from cogsmith.spec_schema import schema_text
from test_cli import cogsmith

WRITTEN = {".gitignore", "Makefile", "models/my-model.yaml", "models/spec.schema.json"}


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_an_empty_folder_becomes_a_project(tmp_path: Path) -> None:
    done = cogsmith("init", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert files(tmp_path) == WRITTEN
    assert (tmp_path / "models/spec.schema.json").read_text() == schema_text()
    spec = (tmp_path / "models/my-model.yaml").read_text()
    assert spec.splitlines()[0] == "# yaml-language-server: $schema=spec.schema.json"
    checked = cogsmith("check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "models/my-model.yaml: ok" in checked.stderr
    listed = subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert {"check", "pack", "predict", "serve"} <= set(re.findall(r"make (\w+)", listed.stdout))


def test_what_its_comments_offer_passes_check_too(tmp_path: Path) -> None:
    assert cogsmith("init", cwd=tmp_path).returncode == 0
    path = tmp_path / "models/my-model.yaml"
    written, optional, rest = path.read_text().partition("# What follows is optional")
    offered = written + optional + re.sub(r"(?m)^# (?=\w+:(?: [{]|$)|  )", "", rest)
    assert {"prompt", "sampling", "output", "engine", "weights"} <= yaml.safe_load(offered).keys()
    path.write_text(offered)
    done = cogsmith("check", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_project_renders_once_its_checkpoint_is_there(tmp_path: Path) -> None:
    assert cogsmith("init", "tiny", cwd=tmp_path).returncode == 0
    write_checkpoint(tmp_path / "weights/tiny")
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    done = cogsmith("render", "tiny", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build/tiny/cog.yaml").is_file()


def test_nothing_of_the_users_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("mine\n")
    (tmp_path / ".gitignore").symlink_to("elsewhere")
    done = cogsmith("init", "one", cwd=tmp_path)
    assert done.returncode == 0
    assert "Makefile is there already and stays as it is" in done.stderr
    assert ".gitignore is there already and stays as it is" in done.stderr
    assert not (tmp_path / "elsewhere").exists()
    assert (tmp_path / "Makefile").read_text() == "mine\n"
    (tmp_path / "models/one.yaml").write_text("mine too\n")
    again = cogsmith("init", "one", cwd=tmp_path)
    assert again.returncode == 1
    assert again.stderr.splitlines() == [
        "Error: models/one.yaml is there already",
        "Hint: run `cogsmith check one`, or give another name",
    ]
    assert (tmp_path / "models/one.yaml").read_text() == "mine too\n"
    assert cogsmith("init", "two", cwd=tmp_path).returncode == 0
    assert (tmp_path / "models/two.yaml").is_file()


@pytest.mark.parametrize("name", ["My-Model", "../x", "a/b", "x" * 65, "", "a--b"])
def test_a_name_that_no_model_can_have_writes_nothing(name: str, tmp_path: Path) -> None:
    done = cogsmith("init", name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: the name of a model must be at most 64 of a-z and 0-9")
    assert files(tmp_path) == set()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    done = cogsmith("init", cwd=tmp_path)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
