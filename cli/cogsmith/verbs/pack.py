"""`cogsmith pack`: the checkpoint as one deterministic tar in the spec's bucket, and its digest in the lock."""

from __future__ import annotations

import json

from cogsmith.bucket import Bucket, open_bucket
from cogsmith.lock import Lock, PackedWeights
from cogsmith.output import bytes_bar, size, step
from cogsmith.pack import pack as pack_files
from cogsmith.paths import Project
from cogsmith.source import Source, read_source
from cogsmith.spec import Spec, load_spec
from cogsmith.verbs.lock import checked_lock, locked_revision, locked_weights, packed_state, write_lock


def pack(project: Project, name: str) -> Lock:
    """Pack and lock a model. Nothing is read again or sent again while the checkpoint and the bucket are as they were.

    Raises:
        UserError: the spec, the checkpoint or the bucket is wrong.
    """
    spec = load_spec(project.spec_path(name))
    bucket = open_bucket(spec.weights.bucket, project.root)
    source = read_source(spec, project, locked_revision(project, spec))
    known = _packed_before(project, spec, bucket, source.fingerprint)
    if known is not None:
        step(f"{spec.name} is packed already: {known.digest[:16]}…, {size(known.size)}")
        return write_lock(project, spec, source, known)
    # Whether spec and checkpoint go together is told before gigabytes are read.
    checked_lock(spec, source, None)
    packed = _pack(source, bucket)
    state = project.state_dir(spec.name) / "pack.json"
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps({"fingerprint": source.fingerprint, "digest": packed.digest}) + "\n")
    return write_lock(project, spec, source, packed)


def _pack(source: Source, bucket: Bucket) -> PackedWeights:
    checkpoint = source.whole()
    with bytes_bar("Packing") as progress:
        packed = pack_files(
            checkpoint.folder, checkpoint.files, bucket, origin=source.origin, progress=progress
        )
    step(f"{'Wrote' if packed.sent else 'Already there:'} {packed.url}")
    return PackedWeights(
        digest=packed.index.digest, size=packed.index.size, index=json.loads(packed.index.dumps())
    )


def _packed_before(project: Project, spec: Spec, bucket: Bucket, print_: str) -> PackedWeights | None:
    weights = locked_weights(project, spec)
    if weights is None or packed_state(project, spec) != {"fingerprint": print_, "digest": weights.digest}:
        return None
    key = f"{weights.digest}.tar"
    return weights if bucket.exists(key) and bucket.size(key) == weights.size else None
