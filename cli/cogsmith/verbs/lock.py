"""`cogsmith lock`: read the checkpoint and write down what the spec resolves to."""

from __future__ import annotations

import hashlib
import json

from cogsmith.checkpoint import Checkpoint
from cogsmith.errors import UserError
from cogsmith.files import write_changed
from cogsmith.layout import fingerprint
from cogsmith.lock import Lock, PackedWeights, read_lock, resolve
from cogsmith.output import step, warn
from cogsmith.paths import Project
from cogsmith.plan import plans
from cogsmith.source import read_source
from cogsmith.spec import Spec, load_spec
from cogsmith_runtime.weights import Index


def lock(project: Project, name: str) -> Lock:
    """Write models/NAME.lock; what was packed stays in it while it is the same checkpoint.

    Raises:
        UserError: the spec or the checkpoint is wrong, or they do not go together.
    """
    spec = load_spec(project.spec_path(name))
    checkpoint = read_source(spec, project)
    return write_lock(project, spec, checkpoint, _still_packed(project, spec, checkpoint))


def checked_lock(spec: Spec, checkpoint: Checkpoint, weights: PackedWeights | None) -> Lock:
    """Resolve a spec and see that each of its backends goes together with its checkpoint."""
    resolved = resolve(spec, checkpoint, weights)
    plans(spec, resolved)
    return resolved


def write_lock(project: Project, spec: Spec, checkpoint: Checkpoint, weights: PackedWeights | None) -> Lock:
    """Write the file of a checked lock if it changes."""
    resolved = checked_lock(spec, checkpoint, weights)
    path = project.lock_path(spec.name)
    shown = path.relative_to(project.root)
    step(f"Wrote {shown}" if write_changed(path, resolved.text()) else f"{shown} is up to date")
    return resolved


def _still_packed(project: Project, spec: Spec, checkpoint: Checkpoint) -> PackedWeights | None:
    """The old lock's weights, as far as can be told without reading tensors that they are this checkpoint's."""
    old = locked_weights(project, spec)
    if old is None:
        return None
    known = packed_state(project, spec)
    if known is not None:
        same = known == {
            "fingerprint": fingerprint(checkpoint.folder, checkpoint.files),
            "digest": old.digest,
        }
    else:  # packed on another machine
        same = _looks_like(old.parsed(), checkpoint)
    if not same:
        warn(f"what was packed is not this checkpoint any more: run `cogsmith pack {spec.name}`")
    return old if same else None


def locked_weights(project: Project, spec: Spec) -> PackedWeights | None:
    """What the lock says was packed; weights do not depend on the engine or on Cog, so an outdated lock will do."""
    try:
        lock = read_lock(project.lock_path(spec.name))
    except UserError:
        return None
    return lock.weights if lock.model == spec.model else None


def packed_state(project: Project, spec: Spec) -> dict[str, str] | None:
    """What `pack` noted on this machine: the fingerprint of the files it read, and their digest."""
    try:
        return dict(json.loads((project.state_dir(spec.name) / "pack.json").read_text()))
    except (OSError, ValueError):
        return None


def _looks_like(index: Index, checkpoint: Checkpoint) -> bool:
    """The same files of the same sizes, and all but the tensors the same bytes."""
    if {member.path for member in index.files} != set(checkpoint.files):
        return False
    for member in index.files:
        path = checkpoint.folder / member.path
        if path.stat().st_size != member.size:
            return False
        if path.suffix != ".safetensors" and hashlib.sha256(path.read_bytes()).hexdigest() != member.sha256:
            return False
    return True
