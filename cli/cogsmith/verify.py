"""An object in a bucket, read and held to its index."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from crc32c import crc32c

from cogsmith.bucket import Bucket
from cogsmith.errors import UserError
from cogsmith.layout import Layout, layout_of
from cogsmith.progress import Progress, Reporter
from cogsmith_runtime.weights import Index, Member

# Each holds one granule in memory.
_READERS = 8

Granule = tuple[Member, int]


class DamagedError(UserError):
    """The object is not what its index says."""


def check_object(bucket: Bucket, key: str, index: Index, progress: Progress | None = None) -> None:
    """Read the whole object: every granule of every file, and the headers of the tar.

    Args:
        progress: called with (bytes read, bytes of all files).

    Raises UserError: it is not there, or not what the index says; names the file and the offset.
    """
    _check_size(bucket, key, index)
    report = Reporter(progress, index.content)
    with ThreadPoolExecutor(_READERS) as pool:
        futures = [pool.submit(_check, bucket, key, index, granule, report) for granule in _granules(index)]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future in done:
                    future.result()
        except BaseException:
            report.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    plan = layout_of(index)
    if plan is not None:
        _check_frame(bucket, key, plan)
    report.end()


def check_ends(bucket: Bucket, key: str, index: Index) -> None:
    """Read the first, the middle and the last granule. Raises UserError."""
    _check_size(bucket, key, index)
    granules = list(_granules(index))
    report = Reporter(None, 0)
    for granule in dict.fromkeys(granules[:1] + granules[len(granules) // 2 :][:1] + granules[-1:]):
        _check(bucket, key, index, granule, report)


def _check_size(bucket: Bucket, key: str, index: Index) -> None:
    found = bucket.find(key)
    if found is None:
        raise UserError(f"there is no {bucket.url(key)}", "pack again, or correct weights.bucket")
    if found.size != index.size:
        message = f"{bucket.url(key)} has {found.size} bytes, and the index says {index.size}"
        raise DamagedError(message, "remove it and pack again")


def _granules(index: Index) -> Iterator[Granule]:
    for member in index.files:
        for number in range(-(-member.size // index.granule)):
            yield member, number


def _check(bucket: Bucket, key: str, index: Index, granule: Granule, report: Reporter) -> None:
    member, number = granule
    start = number * index.granule
    end = min(start + index.granule, member.size)
    data = bucket.read(key, member.offset + start, member.offset + end)
    if len(data) != end - start or crc32c(data) != member.crc(number):
        raise _damaged(bucket, key, member.path, start, member.offset + start)
    report.add(len(data))


def _check_frame(bucket: Bucket, key: str, plan: Layout) -> None:
    """The headers and the padding: the reader does not need them, tar does."""
    for entry in plan.entries:
        if bucket.read(key, entry.start, entry.offset) != entry.header:
            raise _damaged(bucket, key, entry.path, None, entry.start)
    if any(bucket.read(key, plan.end, plan.size)):
        raise _damaged(bucket, key, "the end of the tar", None, plan.end)


def _damaged(bucket: Bucket, key: str, what: str, start: int | None, offset: int) -> DamagedError:
    where = f"{what} from byte {start}" if start is not None else f"the tar's header of {what}"
    message = (
        f"{bucket.url(key)} is damaged: {where} (byte {offset} of the object) is not what the index says"
    )
    return DamagedError(message, "remove it and pack again")
