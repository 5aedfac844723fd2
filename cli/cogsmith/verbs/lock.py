"""`cogsmith lock`: read the checkpoint and write down what the spec resolves to."""

from __future__ import annotations

from pathlib import Path

from cogsmith.checkpoint import Checkpoint
from cogsmith.errors import UserError
from cogsmith.lock import Lock, PackedWeights, load_lock, resolve
from cogsmith.output import step
from cogsmith.paths import Project
from cogsmith.plan import engine_of, make_plan
from cogsmith.source import read_source
from cogsmith.spec import Spec, load_spec


def lock(project: Project, name: str) -> Lock:
    """Write models/NAME.lock; what was packed stays in it while it is the same checkpoint.

    Raises:
        UserError: the spec or the checkpoint is wrong, or they do not go together.
    """
    spec = load_spec(project.spec_path(name))
    checkpoint = read_source(spec, project)
    return write_lock(project, spec, checkpoint, _still_packed(project, spec, checkpoint))


def checked_lock(spec: Spec, checkpoint: Checkpoint, weights: PackedWeights | None) -> Lock:
    """Resolve a spec and see that it goes together with its checkpoint."""
    resolved = resolve(spec, checkpoint, engine_of(spec), weights)
    make_plan(spec, resolved)
    return resolved


def write_lock(project: Project, spec: Spec, checkpoint: Checkpoint, weights: PackedWeights | None) -> Lock:
    """Write the file of a checked lock if it changes."""
    resolved = checked_lock(spec, checkpoint, weights)
    path = project.lock_path(spec.name)
    shown = path.relative_to(project.root)
    text = resolved.text()
    if path.is_file() and path.read_text("utf-8") == text:
        step(f"{shown} is up to date")
        return resolved
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    step(f"Wrote {shown}")
    return resolved


def _still_packed(project: Project, spec: Spec, checkpoint: Checkpoint) -> PackedWeights | None:
    """The old lock's weights, where every packed file still has the size that was packed."""
    try:
        old = load_lock(project.lock_path(spec.name), spec, engine_of(spec))
    except UserError:
        return None
    if old.weights is None:
        return None
    packed = {member["path"]: member["size"] for member in old.weights.index["files"]}
    return old.weights if packed == sizes(checkpoint.folder, checkpoint.files) else None


def sizes(folder: Path, files: tuple[str, ...]) -> dict[str, int]:
    """path -> bytes."""
    return {file: (folder / file).stat().st_size for file in files}
