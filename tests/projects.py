"""A small project in a temporary folder, with a checkpoint of zeros, for tests of the stages after the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints import write_checkpoint
from cogsmith.paths import Project

SPEC = """\
model: weights/tiny
backend: vllm
hardware: cpu
"""


def make_project(
    root: Path, monkeypatch: pytest.MonkeyPatch, spec: str = SPEC, name: str = "tiny"
) -> Project:
    """models/NAME.yaml and weights/tiny in `root`, which becomes the current folder."""
    (root / "models").mkdir(parents=True)
    (root / "models" / f"{name}.yaml").write_text(spec)
    write_checkpoint(root / "weights" / "tiny")
    monkeypatch.chdir(root)
    return Project.here()
