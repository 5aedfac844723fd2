"""Files of a model -> one deterministic tar in a bucket, and its index.

The tar is laid by hand (layout.py), so that every offset is known before a byte is read, and the same files give the
same bytes on any machine and in any bucket. Into a folder it is written in one pass. An object store has no rename, so
there the key must be known before the first byte is sent: one pass finds the sums, a second one sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cogsmith.bucket import Bucket, FolderBucket, Store, index_key, tar_key
from cogsmith.layout import LOCAL, Layout, Origin, layout
from cogsmith.progress import Bar, Progress, Reporter, no_bar
from cogsmith.read_files import copy, index_of, sum_up
from cogsmith_runtime.weights.index import Index


@dataclass(frozen=True, slots=True)
class Packed:
    """What a pack came to.

    Attributes:
        key, url: of the object in its bucket.
        sent: False if the bucket had it already.
    """

    index: Index
    key: str
    url: str
    sent: bool


def pack(
    folder: Path, files: Sequence[str], bucket: Bucket, *, origin: Origin = LOCAL, bar: Bar = no_bar
) -> Packed:
    """Put the files of a folder into the bucket as <digest>.tar, and the index beside it as <digest>.json.

    Nothing in the bucket is ever replaced. If it stops half-way no object stays; of an upload to s3:// the parts do, and
    the next one goes on from them.

    Args:
        files: paths below the folder, with "/".
        origin: goes into the index; files must have the sums that it says.
        bar: shows the bytes of all files read, and those sent.

    Raises:
        UserError: a file that cannot be packed or changes meanwhile, a bucket that cannot take it.
    """
    plan = layout(folder, files, origin)
    if isinstance(bucket, FolderBucket):
        index, sent = _into_folder(plan, bucket, bar)
    else:
        assert isinstance(bucket, Store)
        index, sent = _into_store(plan, bucket, bar)
    # Last, so that an object with an index beside it is whole.
    bucket.add(index_key(index.digest), index.dumps().encode())
    key = tar_key(index.digest)
    return Packed(index=index, key=key, url=bucket.url(key), sent=sent)


def _into_folder(plan: Layout, bucket: FolderBucket, bar: Bar) -> tuple[Index, bool]:
    with bucket.put(plan.size) as tar:
        with bar("Packing") as progress:
            index = write_tar(plan, tar.file, progress)
        return index, tar.keep(tar_key(index.digest))


def _into_store(plan: Layout, store: Store, bar: Bar) -> tuple[Index, bool]:
    store.check_access()
    with bar("Reading") as progress:
        summed = sum_up(plan, store.part_size(plan.size), progress)
    key = tar_key(summed.index.digest)
    if store.holds(key, plan.size):
        return summed.index, False
    with bar("Sending") as progress:
        store.send(key, plan, summed, progress)
    return summed.index, True


def write_tar(plan: Layout, out: BinaryIO, progress: Progress | None = None) -> Index:
    """Write the tar to an unbuffered file or a pipe, and return its index; every file is read once.

    Raises UserError if a file is not what it was when it was laid out.
    """

    def write(data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            view = view[out.write(view) :]

    report = Reporter(progress, sum(entry.size for entry in plan.entries))
    members = []
    with ThreadPoolExecutor(1) as hasher:
        for entry in plan.entries:
            write(entry.header)
            members.append(copy(entry, write, hasher, report))
            write(bytes(entry.padding))
    write(bytes(plan.size - plan.end))
    report.end()
    return index_of(plan, members)
