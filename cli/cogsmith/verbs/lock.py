"""`cogsmith lock`: read the checkpoint and write down what the spec resolves to."""

from __future__ import annotations

import hashlib
import json

from cogsmith.bucket import open_bucket
from cogsmith.errors import UserError
from cogsmith.files import write_changed
from cogsmith.lock import Lock, PackedWeights, read_lock, resolve
from cogsmith.model_address import hub_address, scheme
from cogsmith.output import step, warn
from cogsmith.paths import Project
from cogsmith.plan import plans
from cogsmith.source import Source, read_source
from cogsmith.spec import Spec, load_spec
from cogsmith_runtime.weights import Index


def lock(project: Project, name: str) -> Lock:
    """Write models/NAME.lock; what was packed stays in it while it is the same checkpoint.

    Raises:
        UserError: the spec or the checkpoint is wrong, or they do not go together.
    """
    spec = load_spec(project.spec_path(name))
    source = read_source(spec, project)
    return write_lock(project, spec, source, _still_packed(project, spec, source))


def lock_json(project: Project, name: str, locked: Lock) -> str:
    """What a program wants to know of a model that was locked or packed, as one JSON object; null for what is not yet."""
    spec = load_spec(project.spec_path(name))
    weights = locked.weights
    index = weights.parsed() if weights else None
    source = index.source if index else None
    if scheme(spec.model) == "hf":
        source = hub_address(spec.model).url
    found = {
        "name": spec.name,
        "model": locked.model,
        "source": source,
        "revision": locked.revision,
        "digest": weights.digest if weights else None,
        "size": weights.size if weights else None,
        "url": open_bucket(spec.weights.bucket, project.root).url(f"{weights.digest}.tar")
        if weights
        else None,
        "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in index.files]
        if index
        else None,
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def checked_lock(spec: Spec, source: Source, weights: PackedWeights | None) -> Lock:
    """Resolve a spec and see that each of its backends goes together with its checkpoint."""
    resolved = resolve(spec, source.checkpoint, weights, source.origin.revision)
    plans(spec, resolved)
    return resolved


def write_lock(project: Project, spec: Spec, source: Source, weights: PackedWeights | None) -> Lock:
    """Write the file of a checked lock if it changes."""
    resolved = checked_lock(spec, source, weights)
    path = project.lock_path(spec.name)
    shown = path.relative_to(project.root)
    step(f"Wrote {shown}" if write_changed(path, resolved.text()) else f"{shown} is up to date")
    return resolved


def _still_packed(project: Project, spec: Spec, source: Source) -> PackedWeights | None:
    """The old lock's weights, as far as can be told without reading tensors that they are this checkpoint's."""
    old = locked_weights(project, spec)
    if old is None:
        return None
    known = packed_state(project, spec)
    if known is not None:
        same = known == {"fingerprint": source.fingerprint, "digest": old.digest}
    else:  # packed on another machine
        same = _looks_like(old.parsed(), source)
    if not same:
        warn(f"what was packed is not this checkpoint any more: run `cogsmith pack {spec.name}`")
    return old if same else None


def locked_revision(project: Project, spec: Spec) -> str | None:
    """The revision that the lock names for the spec's model; an outdated lock will do."""
    lock = _lock_of(project, spec)
    return lock.revision if lock else None


def locked_weights(project: Project, spec: Spec) -> PackedWeights | None:
    """What the lock says was packed; weights do not depend on the engine or on Cog, so an outdated lock will do."""
    lock = _lock_of(project, spec)
    return lock.weights if lock else None


def _lock_of(project: Project, spec: Spec) -> Lock | None:
    try:
        lock = read_lock(project.lock_path(spec.name))
    except UserError:
        return None
    return lock if lock.model == spec.model else None


def packed_state(project: Project, spec: Spec) -> dict[str, str] | None:
    """What `pack` noted on this machine: the fingerprint of the files it read, and their digest."""
    try:
        return dict(json.loads((project.state_dir(spec.name) / "pack.json").read_text()))
    except (OSError, ValueError):
        return None


def _looks_like(index: Index, source: Source) -> bool:
    """Of the same revision, the same files of the same sizes, and all but the tensors the same bytes."""
    checkpoint, origin = source.checkpoint, source.origin
    if (index.source, index.revision) != (origin.source, origin.revision):
        return False
    if {member.path for member in index.files} != set(checkpoint.files):
        return False
    for member in index.files:
        path = checkpoint.folder / member.path
        if path.stat().st_size != member.size:
            return False
        if path.suffix != ".safetensors" and hashlib.sha256(path.read_bytes()).hexdigest() != member.sha256:
            return False
    return True
