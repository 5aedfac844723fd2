"""`cogsmith pack`: the checkpoint as one deterministic tar in the spec's bucket, and its digest in the lock."""

from __future__ import annotations

import json

from cogsmith.bucket import Bucket, Store, open_bucket, tar_key
from cogsmith.errors import UserError
from cogsmith.lock import Lock, PackedWeights
from cogsmith.output import bytes_bar, size, step, warn
from cogsmith.pack import pack as pack_files
from cogsmith.paths import Project
from cogsmith.plan import weights_url
from cogsmith.read_url import check_read_url
from cogsmith.source import Source, read_source
from cogsmith.spec import Spec, load_spec
from cogsmith.verbs.lock import checked_lock, locked_revision, locked_weights, packed_state, write_lock


def pack(project: Project, name: str) -> Lock:
    """Pack and lock a model. Nothing is read again or sent again while the checkpoint and the bucket are as they were.

    Raises:
        UserError: the spec, the checkpoint or the bucket is wrong; or the container could not read what was packed.
    """
    spec = load_spec(project.spec_path(name))
    bucket = open_bucket(spec.weights.bucket, project.root)
    source = read_source(spec, project, locked_revision(project, spec))
    packed = _packed_before(project, spec, bucket, source.fingerprint)
    if packed is not None:
        step(f"{spec.name} is packed already: {packed.digest[:16]}…, {size(packed.size)}")
    else:
        # Whether spec and checkpoint go together is told before gigabytes are read.
        checked_lock(spec, source, None)
        packed = _pack(source, bucket)
        state = project.state_dir(spec.name) / "pack.json"
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text(json.dumps({"fingerprint": source.fingerprint, "digest": packed.digest}) + "\n")
    lock = write_lock(project, spec, source, packed)
    _check_url(spec, lock, bucket)
    return lock


def _pack(source: Source, bucket: Bucket) -> PackedWeights:
    checkpoint = source.whole()
    packed = pack_files(checkpoint.folder, checkpoint.files, bucket, origin=source.origin, bar=bytes_bar)
    step(f"{'Wrote' if packed.sent else 'Already there:'} {packed.url}")
    return PackedWeights(
        digest=packed.index.digest, size=packed.index.size, index=json.loads(packed.index.dumps())
    )


def _packed_before(project: Project, spec: Spec, bucket: Bucket, print_: str) -> PackedWeights | None:
    weights = locked_weights(project, spec)
    if weights is None or packed_state(project, spec) != {
        "fingerprint": print_,
        "digest": weights.digest,
    }:
        return None
    found = bucket.find(tar_key(weights.digest))
    return weights if found is not None and found.size == weights.size else None


def _check_url(spec: Spec, lock: Lock, bucket: Bucket) -> None:
    """Hold what a container would read against what was packed."""
    url = weights_url(spec, lock)
    if url is None:
        if isinstance(bucket, Store):
            step(
                "weights.url is not set: a container needs COG_WEIGHTS, or an https:// address of this bucket there"
            )
        return
    assert lock.weights is not None
    try:
        check_read_url(url, lock.weights.parsed())
    except UserError as error:
        # What is in a folder still has to be copied to where it will be read from.
        if isinstance(bucket, Store):
            raise
        warn(f"{error.message}; copy {bucket.url(tar_key(lock.weights.digest))} there")
    else:
        step(f"Read by its first byte: {url}")
