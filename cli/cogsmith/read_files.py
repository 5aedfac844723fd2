"""The files of a layout, read: once from start to end with all sums, or again as byte ranges of the tar they make."""

from __future__ import annotations

import bisect
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO

from cogsmith.crc import Crcs, combined
from cogsmith.errors import UserError
from cogsmith.layout import Entry, Layout
from cogsmith.progress import Progress, Reporter
from cogsmith_runtime.weights.index import GRANULE, Index, Member

_READ = 1 << 20
# Small, since every connection of an upload has one; half of it costs a connection 7 % more time over HTTPS.
_RANGE_BLOCK = 512 << 10
# Beyond that the disk is the limit.
_MOST_THREADS = 8

Write = Callable[[bytes | memoryview], object]


class FileChangedError(UserError):
    """A file is not what it was when it was laid out or read first."""


@dataclass(frozen=True, slots=True)
class Summed:
    """What the first pass over the files found.

    Attributes:
        part: bytes of the tar that one upload part holds; the last one holds what is left.
        parts: CRC-32C of each part.
    """

    index: Index
    part: int
    parts: tuple[int, ...]

    def range(self, number: int) -> tuple[int, int]:
        """Start and end in the tar of a part; the first has number 0."""
        return number * self.part, min((number + 1) * self.part, self.index.size)

    @property
    def whole(self) -> int:
        """CRC-32C of the whole tar."""
        crc = 0
        for number, part in enumerate(self.parts):
            start, end = self.range(number)
            crc = combined(crc, part, end - start)
        return crc


def sum_up(plan: Layout, part: int, progress: Progress | None = None) -> Summed:
    """Read every file once, several at a time, and keep nothing but sums.

    Args:
        part: bytes of an upload part.

    Raises UserError if a file cannot be read, or is not what it was when it was laid out.
    """
    report = Reporter(progress, sum(entry.size for entry in plan.entries))
    threads = min(_MOST_THREADS, max(2, os.cpu_count() or 1), len(plan.entries))
    totals = [0] * -(-plan.size // part)
    members = []
    with ThreadPoolExecutor(threads) as readers, ThreadPoolExecutor(threads) as hashers:
        found = [readers.submit(_sum_entry, entry, part, hashers, report) for entry in plan.entries]
        try:
            for entry, future in zip(plan.entries, found, strict=True):
                member, crcs = future.result()
                members.append(member)
                _join(totals, crcs, entry.start, entry.end, part)
        except BaseException:
            report.stop()
            readers.shutdown(cancel_futures=True)
            raise
    tail = Crcs(part, plan.end)
    tail.add(bytes(plan.size - plan.end))
    _join(totals, tail.sums, plan.end, plan.size, part)
    report.end()
    return Summed(index=index_of(plan, members), part=part, parts=tuple(totals))


def index_of(plan: Layout, members: list[Member]) -> Index:
    """The index of a tar with these files. Raises UserError if one is not what its origin says it is."""
    origin = plan.origin
    for entry, member in zip(plan.entries, members, strict=True):
        if origin.sha256.get(entry.path, member.sha256) != member.sha256:
            hint = "remove it, so that it is downloaded again"
            raise UserError(f"{entry.source} is damaged: its sha256 is not that of {origin.source}", hint)
    return Index(
        source=origin.source,
        revision=origin.revision,
        size=plan.size,
        granule=GRANULE,
        files=tuple(members),
    )


def _sum_entry(entry: Entry, part: int, hasher: Executor, report: Reporter) -> tuple[Member, list[int]]:
    crcs = Crcs(part, entry.start)
    crcs.add(entry.header)
    member = copy(entry, crcs.add, hasher, report)
    crcs.add(bytes(entry.padding))
    return member, crcs.sums


def _join(totals: list[int], crcs: list[int], start: int, end: int, part: int) -> None:
    """Add the sums of the bytes from start to end to those of the parts they are in."""
    for number, crc in enumerate(crcs, start // part):
        length = min((number + 1) * part, end) - max(number * part, start)
        totals[number] = combined(totals[number], crc, length)


def copy(entry: Entry, write: Write, hasher: Executor, report: Reporter) -> Member:
    """Hand one file's bytes on in order; what the index says of it.

    Args:
        hasher: runs the sha256 beside the reading.

    Raises UserError if it is not what it was when it was laid out.
    """
    digest = hashlib.sha256()
    crcs = Crcs(GRANULE)
    hashed: Future[None] | None = None
    position = 0
    with _opened(entry) as file:
        before = os.fstat(file.fileno())
        # While one block is hashed in the other thread, the next is read into the other buffer.
        buffers = [memoryview(bytearray(_READ)) for _ in range(2)]
        while count := _read(entry, file, buffers[0]):
            block = buffers[0][:count]
            if hashed is not None:
                hashed.result()
            hashed = hasher.submit(digest.update, block)
            crcs.add(block)
            position += count
            if position > entry.size:
                raise changed(entry)
            write(block)
            report.add(count)
            buffers.reverse()
        if hashed is not None:
            hashed.result()
        after = os.fstat(file.fileno())
    if position != entry.size or before.st_mtime_ns != after.st_mtime_ns:
        raise changed(entry)
    sums = "".join(f"{crc:08x}" for crc in crcs.sums)
    return Member(
        path=entry.path, offset=entry.offset, size=entry.size, sha256=digest.hexdigest(), crc32c=sums
    )


def read_range(plan: Layout, start: int, end: int) -> Iterator[memoryview]:
    """The bytes of the tar from start to end (exclusive), out of the files as they are now.

    Each block is good until the next one is asked for. Raises UserError.
    """
    buffer = memoryview(bytearray(min(_RANGE_BLOCK, max(1, end - start))))
    filled = 0
    for piece in _pieces(plan, start, end):
        with piece:
            while count := piece.readinto(buffer[filled:]):
                filled += count
                if filled == len(buffer):
                    yield buffer
                    filled = 0
    if filled:
        yield buffer[:filled]


def changed_in(plan: Layout, index: Index, start: int, end: int) -> FileChangedError:
    """Which file with bytes from start to end is not as the index says any more."""
    touched = [
        (entry, member)
        for entry, member in zip(plan.entries, index.files, strict=True)
        if entry.start < end and start < entry.end
    ]
    for entry, member in touched:
        first = max(0, start - entry.offset) // GRANULE * GRANULE
        last = min(entry.size, max(0, end - entry.offset))
        crcs = Crcs(GRANULE)
        end_of_last = min(-(-last // GRANULE) * GRANULE, entry.size)
        for block in read_range(plan, entry.offset + first, entry.offset + end_of_last):
            crcs.add(block)
        if any(crc != member.crc(first // GRANULE + number) for number, crc in enumerate(crcs.sums)):
            return changed(entry)
    return changed(touched[-1][0])


def changed(entry: Entry) -> FileChangedError:
    """A file is not what it was."""
    hint = "wait until nothing writes to it any more, then pack again"
    return FileChangedError(f"{entry.source} changed while it was packed", hint)


def _pieces(plan: Layout, start: int, end: int) -> Iterator[_Bytes | _FilePiece]:
    """What the tar consists of from start to end: headers, files, padding."""
    first = bisect.bisect_right(plan.entries, start, key=lambda entry: entry.end)
    for entry in plan.entries[first:]:
        if entry.start >= end:
            return
        header = entry.header[max(0, start - entry.start) : max(0, end - entry.start)]
        yield _Bytes(memoryview(header))
        low, high = max(entry.offset, start), min(entry.offset + entry.size, end)
        if low < high:
            yield _FilePiece(entry, low - entry.offset, high - entry.offset)
        yield _zeros(max(entry.offset + entry.size, start), min(entry.end, end))
    yield _zeros(max(plan.end, start), min(plan.size, end))


def _zeros(start: int, end: int) -> _Bytes:
    return _Bytes(memoryview(bytes(max(0, end - start))))


class _Bytes:
    def __init__(self, left: memoryview) -> None:
        self._left = left

    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...

    def readinto(self, room: memoryview) -> int:
        count = min(len(room), len(self._left))
        room[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


class _FilePiece:
    """Bytes of a file from start to end."""

    def __init__(self, entry: Entry, start: int, end: int) -> None:
        self._entry = entry
        self._position = start
        self._end = end

    def __enter__(self) -> None:
        self._file = _opened(self._entry)
        self._file.seek(self._position)

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def readinto(self, room: memoryview) -> int:
        room = room[: self._end - self._position]
        if not room:
            return 0
        count = _read(self._entry, self._file, room)
        if not count:
            raise changed(self._entry)
        self._position += count
        return count


def _opened(entry: Entry) -> FileIO:
    try:
        return FileIO(entry.source)
    except OSError as error:
        raise UserError(f"{entry.source} cannot be read ({error.strerror})") from None


def _read(entry: Entry, file: FileIO, buffer: memoryview) -> int:
    try:
        return file.readinto(buffer)
    except OSError as error:
        raise UserError(f"{entry.source} cannot be read ({error.strerror})") from None
