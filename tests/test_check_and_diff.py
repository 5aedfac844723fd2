"""What programs and careful people ask first: `check --format json` and `render --diff`. Neither writes anything."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from projects import make_project
from test_cli import cogsmith


def checked(root: Path, *names: str) -> tuple[int, list[dict[str, Any]]]:
    done = cogsmith("check", *names, "--format", "json", cwd=root)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)["models"]


def test_check_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    good = {"name": "tiny", "file": "models/tiny.yaml", "ok": True, "locked": False, "mistakes": []}
    assert checked(tmp_path) == (0, [good])
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    good["locked"] = True
    assert checked(tmp_path, "tiny") == (0, [good])
    (tmp_path / "models/bad.yaml").write_text("model: 3\nbackend: vlm\nhardware: cpu\n")
    code, [bad, tiny] = checked(tmp_path)
    assert (code, tiny) == (1, good)
    assert not bad["ok"]
    assert [(found["line"], found["field"]) for found in bad["mistakes"]] == [(1, "model"), (2, "backend")]
    text = cogsmith("check", "bad", cwd=tmp_path).stderr.splitlines()
    spelled = "{file}:{line}: {field}: {message}. Hint: {hint}"
    assert text == [spelled.format(**found) for found in bad["mistakes"]]


def test_what_has_no_line_is_in_the_json_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    (tmp_path / "models/tiny.lock").write_text("version: 7\n")
    code, [tiny, absent] = checked(tmp_path, "tiny", "absent")
    assert code == 1
    assert tiny["locked"]
    assert tiny["mistakes"][0]["line"] is None
    assert "models/tiny.lock cannot be read" in tiny["mistakes"][0]["message"]
    assert "cogsmith lock tiny" in tiny["mistakes"][0]["hint"]
    assert absent["mistakes"][0]["message"] == "there is no models/absent.yaml"


def test_no_spec_at_all_is_told(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    done = cogsmith("check", "--format", "json", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "Error: models/ holds no spec",
        "Hint: `cogsmith init NAME` writes one",
    ]


def test_a_diff_is_what_a_render_would_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, monkeypatch)
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    first = cogsmith("render", "tiny", "--diff", cwd=tmp_path)
    assert first.returncode == 0
    assert "--- /dev/null\n+++ b/build/tiny/cog.yaml\n" in first.stdout
    assert not (tmp_path / "build").exists()
    assert cogsmith("render", "tiny", cwd=tmp_path).returncode == 0
    same = cogsmith("render", "tiny", "--diff", cwd=tmp_path)
    assert (same.stdout, same.stderr) == ("", "build/tiny is up to date\n")

    spec = project.root / "models/tiny.yaml"
    spec.write_text(f"{spec.read_text()}stop: ['END']\n")
    (tmp_path / "weights/tiny/vocab.json").write_text("{}")
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    before = {path: path.read_bytes() for path in (tmp_path / "build").rglob("*") if path.is_file()}
    done = cogsmith("render", "tiny", "--diff", cwd=tmp_path)
    assert done.returncode == 0
    assert "build/tiny: " in done.stderr
    assert "--- a/build/tiny/weights.json\n+++ /dev/null\n" in done.stdout
    assert before == {path: path.read_bytes() for path in (tmp_path / "build").rglob("*") if path.is_file()}
    subprocess.run(["git", "apply", "-p1"], cwd=tmp_path, input=done.stdout, text=True, check=True)
    assert cogsmith("render", "tiny", cwd=tmp_path).stderr.splitlines()[0] == "build/tiny is up to date"


def test_two_backends_are_two_diffs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(
        tmp_path, monkeypatch, "model: weights/tiny\nbackend: [vllm, tensorrt-llm]\nhardware: l40s\n"
    )
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    done = cogsmith("render", "tiny", "--diff", cwd=tmp_path)
    assert "+++ b/build/tiny@vllm/cog.yaml" in done.stdout
    assert "+++ b/build/tiny@tensorrt-llm/engine.yaml" in done.stdout
    assert not (tmp_path / "build").exists()
