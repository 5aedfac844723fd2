"""`cogsmith weights`: what lies in the buckets, and which lock names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cogsmith.bucket import Bucket, Store, Unfinished, index_key, open_bucket, tar_key
from cogsmith.errors import UserError
from cogsmith.lock import read_lock
from cogsmith.output import bytes_bar, data, size, step, table
from cogsmith.paths import Project
from cogsmith.spec import load_spec
from cogsmith.verify import DamagedError, check_object

_SHORTEST_DIGEST = 8
_DIGEST = 64
# A living upload may be a few hours old.
_ABANDONED = timedelta(days=1)

Confirm = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Weights:
    """Packed weights in a bucket.

    Attributes:
        size: of the tar in bytes; 0 where only an index is there.
        modified: of the newest of its objects.
        models: whose locks name it.
    """

    digest: str
    size: int
    modified: datetime
    models: tuple[str, ...]


def ls(project: Project, name: str | None, *, as_json: bool) -> None:
    """Show what lies in one model's bucket, or in those of all models."""
    names = project.names() if name is None else [name]
    urls = dict.fromkeys(load_spec(project.spec_path(name)).weights.bucket for name in names)
    locks = _locked(project)
    found = [(url, packed_in(open_bucket(url, project.root), locks)) for url in urls]
    if as_json:
        buckets = [{"bucket": url, "weights": [_facts(weights) for weights in all_]} for url, all_ in found]
        data(json.dumps({"buckets": buckets}, indent=2) + "\n")
        return
    for url, all_ in found:
        rows = [
            (
                weights.digest[:16],
                size(weights.size),
                f"{weights.modified:%Y-%m-%d %H:%M} UTC",
                ", ".join(weights.models),
            )
            for weights in all_
        ]
        table(url, ("digest", "size", "date", "locked by"), rows)


def verify(project: Project, name: str, *, as_json: bool) -> bool:
    """Read a model's packed weights through; False where they are damaged, which is then in the JSON.

    Raises UserError where there is nothing to read; without JSON also where they are damaged.
    """
    bucket, _ = _bucket_of(project, name)
    lock = read_lock(project.lock_path(_plain(project, name)))
    if lock.weights is None:
        raise UserError(f"the weights of {name} are not packed", f"run `cogsmith pack {name}`")
    index = lock.weights.parsed()
    facts = {
        "model": _plain(project, name),
        "digest": index.digest,
        "size": index.size,
        "bucket": bucket.name,
    }
    try:
        with bytes_bar("Verifying") as progress:
            check_object(bucket, tar_key(index.digest), index, progress)
            check_index(bucket, index.digest, index.dumps().encode())
    except DamagedError as error:
        if not as_json:
            raise
        data(json.dumps({**facts, "ok": False, "problem": error.message}) + "\n")
        return False
    if as_json:
        data(json.dumps({**facts, "ok": True, "problem": None}) + "\n")
    else:
        step(f"{bucket.url(tar_key(index.digest))} is whole: {len(index.files)} files, {size(index.size)}")
    return True


def check_index(bucket: Bucket, digest: str, text: bytes) -> None:
    """That the index beside the object is the one of its name. Raises UserError."""
    key = index_key(digest)
    found = bucket.find(key)
    if found is None:
        raise DamagedError(f"there is no {bucket.url(key)}", "pack again, which adds it")
    if found.size != len(text) or bucket.read(key, 0, found.size) != text:
        raise DamagedError(
            f"{bucket.url(key)} is damaged: it is not what its name says", "remove it and pack again"
        )


def rm(project: Project, name: str, digest: str, confirm: Confirm) -> None:
    """Remove one packed model that no lock names.

    Args:
        digest: its first digits, eight at least.

    Raises UserError: there is none or more than one, or a lock names it.
    """
    bucket, url = _bucket_of(project, name)
    wanted = digest.lower().removesuffix(".tar")
    if len(wanted) < _SHORTEST_DIGEST:
        raise UserError(f"{digest!r} is too short for a digest", f"give {_SHORTEST_DIGEST} digits at least")
    found = [weights for weights in packed_in(bucket, _locked(project)) if weights.digest.startswith(wanted)]
    if len(found) != 1:
        said = "is no packed model" if not found else "is the beginning of several digests"
        raise UserError(f"{digest} {said} in {url}", f"see `cogsmith weights ls {name}`")
    if found[0].models:
        locks = ", ".join(f"models/{model}.lock" for model in found[0].models)
        raise UserError(f"{digest} is named by {locks}", "pack that model anew, or remove its lock")
    if confirm(f"Remove {wanted[:16]} ({size(found[0].size)}) from {url}?"):
        _remove(bucket, found)


def prune(project: Project, name: str, confirm: Confirm) -> None:
    """Remove all that no lock of this project names from a model's bucket, and uploads that nobody finished for a day."""
    bucket, url = _bucket_of(project, name)
    loose = [weights for weights in packed_in(bucket, _locked(project)) if not weights.models]
    abandoned = _abandoned(bucket)
    if not loose and not abandoned:
        step(f"There is nothing to remove in {url}")
        return
    for weights in loose:
        step(f"{weights.digest[:16]}  {size(weights.size)}  {weights.modified:%Y-%m-%d}")
    for upload in abandoned:
        step(f"{upload.key[:16]}  unfinished upload of {upload.started:%Y-%m-%d}")
    total = size(sum(weights.size for weights in loose))
    count = len(loose) + len(abandoned)
    # What others have locked cannot be seen from here.
    if confirm(
        f"Remove these {count} ({total}) from {url}? No lock in models/ names them; other projects' may"
    ):
        _remove(bucket, loose)
        for upload in abandoned:
            assert isinstance(bucket, Store)
            bucket.give_up(upload)


def packed_in(bucket: Bucket, locks: dict[str, list[str]]) -> list[Weights]:
    """The packed weights of a bucket, the newest first. Objects with other names are nobody's business."""
    found: dict[str, Weights] = {}
    for stored in bucket.objects():
        digest, _, kind = stored.key.rpartition(".")
        if kind not in ("tar", "json") or len(digest) != _DIGEST or set(digest) - set("0123456789abcdef"):
            continue
        known = found.get(digest)
        found[digest] = Weights(
            digest=digest,
            size=(known.size if known else 0) + (stored.size if kind == "tar" else 0),
            modified=max(stored.modified, known.modified) if known else stored.modified,
            models=tuple(locks.get(digest, ())),
        )
    return sorted(found.values(), key=lambda weights: weights.modified, reverse=True)


def _locked(project: Project) -> dict[str, list[str]]:
    """Digest -> models. A lock that cannot be read is an error here: it may name what would be removed."""
    named: dict[str, list[str]] = {}
    for path in sorted((project.root / "models").glob("*.lock")):
        lock = read_lock(path)
        if lock.weights is not None:
            named.setdefault(lock.weights.digest, []).append(path.stem)
    return named


def _bucket_of(project: Project, name: str) -> tuple[Bucket, str]:
    url = load_spec(project.spec_path(name)).weights.bucket
    return open_bucket(url, project.root), url


def _plain(project: Project, name: str) -> str:
    return project.spec_path(name).stem


def _abandoned(bucket: Bucket) -> list[Unfinished]:
    if not isinstance(bucket, Store):
        return []
    before = datetime.now(UTC) - _ABANDONED
    return [upload for upload in bucket.unfinished() if upload.started < before]


def _remove(bucket: Bucket, all_: Sequence[Weights]) -> None:
    for weights in all_:
        # The index goes first: an object with an index beside it is whole.
        bucket.delete(index_key(weights.digest))
        bucket.delete(tar_key(weights.digest))
        step(f"Removed {bucket.url(tar_key(weights.digest))}")


def _facts(weights: Weights) -> dict[str, object]:
    return {
        "digest": weights.digest,
        "size": weights.size,
        "modified": weights.modified.astimezone(UTC).isoformat(timespec="seconds"),
        "locked_by": list(weights.models),
    }
