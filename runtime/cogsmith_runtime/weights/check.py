"""Files against their index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from crc32c import crc32c

from .index import Index, Member

_BLOCK = 1 << 20
Count = Callable[[int], None]


class Hash(Protocol):
    """What hashlib makes."""

    def update(self, data: memoryview, /) -> None: ...


def sizes_problem(index: Index, folder: Path) -> str | None:
    """The first file of the index that is not in the folder with its size, or None. Reads no file."""
    for member in index.files:
        path = folder / member.path
        if not path.is_file():
            return f"{member.path} is not there"
        if path.stat().st_size != member.size:
            return f"{member.path} has {path.stat().st_size} bytes, the index says {member.size}"
    return None


def _nobody(size: int) -> None:
    """Who counts bytes when nobody asked."""


def bad_granules(
    descriptor: int,
    member: Member,
    granule: int,
    numbers: Iterable[int],
    count: Count = _nobody,
    digest: Hash | None = None,
) -> set[int]:
    """Read granules of one file: the numbers of those that do not have their crc32c.

    Args:
        descriptor: the open file; its position is not used.
        granule: bytes of each, but for the last.
        count: called with the bytes of each block that was read.
        digest: given every block, in the order of `numbers`.
    """
    bad = set()
    block = memoryview(bytearray(_BLOCK))
    for number in numbers:
        position, crc = number * granule, 0
        end = min(position + granule, member.size)
        while size := os.preadv(descriptor, [block[: end - position]], position) if position < end else 0:
            crc = crc32c(block[:size], crc)
            if digest is not None:
                digest.update(block[:size])
            position += size
            count(size)
        if position < end or crc != member.crc(number):
            bad.add(number)
    return bad


def check_file(
    descriptor: int, member: Member, granule: int, *, sha: bool, count: Count = _nobody
) -> tuple[set[int], bool]:
    """Read one file through: the numbers of its damaged granules, and whether its sha256 is right.

    Args:
        sha: False spares the sha256, which is then taken for right.
    """
    digest = hashlib.sha256()
    numbers = range(-(-member.size // granule))
    bad = bad_granules(descriptor, member, granule, numbers, count, digest if sha else None)
    return bad, not sha or digest.hexdigest() == member.sha256


def verify(index: Index, folder: Path, *, sha_of_tensors: bool = True, count: Count = _nobody) -> list[str]:
    """What is wrong with a folder, one line per mistake, read byte by byte; nothing if it is as it was packed."""
    ours = {member.path for member in index.files}
    there = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    extra = sorted(path for path in there if path not in ours)

    def one(member: Member) -> list[str]:
        return _verify_member(index, folder, member, sha_of_tensors or not member.is_tensors, count)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [line for lines in pool.map(one, index.files) for line in lines]
    return found + [f"{path}: is not in the index" for path in extra]


def _verify_member(index: Index, folder: Path, member: Member, sha: bool, count: Count) -> list[str]:
    try:
        with (folder / member.path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != member.size:
                return [f"{member.path}: has {size} bytes, the index says {member.size}"]
            bad, right = check_file(file.fileno(), member, index.granule, sha=sha, count=count)
    except FileNotFoundError:
        return [f"{member.path}: is not there"]
    except OSError as error:
        return [f"{member.path}: cannot be read ({error.strerror})"]
    lines = [
        f"{member.path}: damaged between bytes {start} and {end}" for start, end in _spans(bad, member, index)
    ]
    if not right and not bad:
        lines.append(f"{member.path}: has another sha256 than the index says")
    return lines


def _spans(bad: set[int], member: Member, index: Index) -> list[tuple[int, int]]:
    starts = [number * index.granule for number in sorted(bad)]
    return [(start, min(start + index.granule, member.size)) for start in starts]
