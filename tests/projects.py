"""A small project in a temporary folder, with a checkpoint of zeros, for tests of the stages after the spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoints import write_checkpoint
from cogsmith.lock import Lock
from cogsmith.paths import Project
from cogsmith.verbs.pack import pack

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


def of(project: Project, model: str, verb: Callable[[Project, str], Lock] = pack) -> Lock:
    """Have the project's model come from another address, and run a verb on it."""
    (project.root / "models" / "tiny.yaml").write_text(SPEC.replace("weights/tiny", model))
    return verb(project, "tiny")


def packed_facts(locked: Lock) -> tuple[str | None, str | None, list[str]]:
    """Source, revision and paths of what was packed."""
    assert locked.weights is not None
    index = locked.weights.parsed()
    return index.source, index.revision, [member.path for member in index.files]
