"""Files of a model -> one deterministic tar in a bucket, and its index.

The tar is laid by hand, so that every offset is known before a byte is read: each file is read once, and the same
files give the same bytes on any machine.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

from cogsmith.bucket import Bucket
from cogsmith.errors import UserError
from cogsmith.links import may_follow
from cogsmith_runtime.weights.index import GRANULE, Index, Member, clash, path_problem

# Offsets of this multiple let a file inside the tar be mapped, or read past the page cache.
_ALIGNMENT = 4096
_TAR_BLOCK = 512
_READ = 1 << 20
# The size field of a header has eleven octal digits.
_LARGEST_IN_HEADER = 8**11 - 1
_LONGEST_NAME_IN_HEADER = 100
_SHORTEST_FILLER = len(b"12 comment=\n")
_SECONDS_BETWEEN_REPORTS = 0.25

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file and its place in the tar.

    Attributes:
        path: in the tar.
        source: what is read.
        size: bytes.
        header: what stands in front of its bytes; ends where the file begins.
        offset: of its first byte in the tar; a multiple of 4096.
    """

    path: str
    source: Path
    size: int
    header: bytes
    offset: int

    @property
    def padding(self) -> int:
        """Zero bytes behind it, up to the next block of the tar."""
        return -self.size % _TAR_BLOCK


@dataclass(frozen=True, slots=True)
class Layout:
    """Every file's place, and the size of the whole tar in bytes."""

    entries: tuple[Entry, ...]
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where files are from; all empty for a local folder.

    Attributes:
        source: an address, such as hf://owner/repo.
        revision: what the address stood for: a commit.
        sha256: what the origin says of some files, by path.
    """

    source: str | None = None
    revision: str | None = None
    sha256: Mapping[str, str] = field(default_factory=dict)


LOCAL = Origin()


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
    folder: Path,
    files: Sequence[str],
    bucket: Bucket,
    *,
    origin: Origin = LOCAL,
    progress: Progress | None = None,
) -> Packed:
    """Put the files of a folder into the bucket as <digest>.tar, and the index beside it as <digest>.json.

    Nothing in the bucket is ever replaced; if it stops half-way nothing stays.

    Args:
        files: paths below the folder, with "/".
        origin: goes into the index; files must have the sums that it says.
        progress: called with (bytes read, bytes of all files), a few times a second.

    Raises:
        UserError: a file that cannot be packed or changes meanwhile, a bucket that cannot take it.
    """
    plan = layout(folder, files)
    with bucket.put(plan.size) as tar:
        index = write_tar(plan, tar.file, progress, origin)
        key = f"{index.digest}.tar"
        sent = tar.keep(key)
    text = index.dumps().encode()
    with bucket.put(len(text)) as side:
        side.file.write(text)
        side.keep(f"{index.digest}.json")
    return Packed(index=index, key=key, url=bucket.url(key), sent=sent)


def fingerprint(folder: Path, files: Sequence[str]) -> str:
    """Changes when a file's path, size or time of change does: tells cheaply that there is nothing to pack again."""
    digest = hashlib.sha256()
    for path in sorted(files):
        found = _stat(folder, path)
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def layout(folder: Path, files: Iterable[str]) -> Layout:
    """Where each file will be. Small files come first, so that one range holds them all; then tensors; by name.

    Raises UserError naming a file that cannot be packed.
    """
    paths = sorted(files, key=lambda path: (path.endswith(".safetensors"), path))
    _check_names(folder, paths)
    position = 0
    entries = []
    for path in paths:
        size = _stat(folder, path).st_size
        header = _header(path, size, position)
        entry = Entry(
            path=path, source=folder / path, size=size, header=header, offset=position + len(header)
        )
        entries.append(entry)
        position = entry.offset + entry.size + entry.padding
    # Two empty blocks end a tar.
    whole = position + 2 * _TAR_BLOCK
    return Layout(entries=tuple(entries), end=position, size=whole + -whole % _ALIGNMENT)


def _check_names(folder: Path, paths: list[str]) -> None:
    if not paths:
        raise UserError(f"{folder} has no files to pack")
    for path in paths:
        if problem := path_problem(path):
            raise UserError(f"{folder}: {path!r} {problem}", "rename it, or leave it out")
    if pair := clash(paths):
        message = f"{folder}: {pair[0]!r} and {pair[1]!r} are one and the same on some disks"
        raise UserError(message, "rename one of them, or leave it out")


def _stat(folder: Path, path: str) -> os.stat_result:
    """Of a plain file that belongs to the folder, links followed. Raises UserError."""
    source = folder / path
    try:
        inside = may_follow(folder, source)
        found = source.stat()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a link that leads in circles"
        raise UserError(f"{source} cannot be read ({reason})") from None
    if not inside:
        hint = "put a copy of the file in its place, or leave it out"
        raise UserError(f"{source} is a link to {source.resolve()}, outside of {folder}", hint)
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"{source} is not a plain file", "leave it out")
    return found


def write_tar(plan: Layout, out: BinaryIO, progress: Progress | None = None, origin: Origin = LOCAL) -> Index:
    """Write the tar to an unbuffered file or a pipe, and return its index; every file is read once.

    Raises UserError if a file is not what it was when it was laid out, or not what its origin says it is.
    """
    report = _Reporter(progress, sum(entry.size for entry in plan.entries))
    members = []
    with ThreadPoolExecutor(1) as hasher:
        for entry in plan.entries:
            _write(out, entry.header)
            members.append(_copy(entry, out, hasher, report))
            if origin.sha256.get(entry.path, members[-1].sha256) != members[-1].sha256:
                hint = "remove it, so that it is downloaded again"
                raise UserError(f"{entry.source} is damaged: its sha256 is not that of {origin.source}", hint)
            _write(out, bytes(entry.padding))
    _write(out, bytes(plan.size - plan.end))
    report.end()
    return Index(
        source=origin.source,
        revision=origin.revision,
        size=plan.size,
        granule=GRANULE,
        files=tuple(members),
    )


class _Reporter:
    """Passes progress on a few times a second."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._last = time.monotonic()

    def add(self, size: int) -> None:
        self._done += size
        if self._progress and time.monotonic() - self._last >= _SECONDS_BETWEEN_REPORTS:
            self._last = time.monotonic()
            self._progress(self._done, self._total)

    def end(self) -> None:
        if self._progress:
            self._progress(self._done, self._total)


def _copy(entry: Entry, out: BinaryIO, hasher: ThreadPoolExecutor, report: _Reporter) -> Member:
    """Write one file's bytes, and what the index says of it."""
    digest = hashlib.sha256()
    crcs: list[int] = []
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
            _add_crcs(crcs, block, position)
            position += count
            if position > entry.size:
                raise _changed(entry)
            _write(out, block)
            report.add(count)
            buffers.reverse()
        if hashed is not None:
            hashed.result()
        after = os.fstat(file.fileno())
    if position != entry.size or before.st_mtime_ns != after.st_mtime_ns:
        raise _changed(entry)
    sums = "".join(f"{crc:08x}" for crc in crcs)
    return Member(
        path=entry.path, offset=entry.offset, size=entry.size, sha256=digest.hexdigest(), crc32c=sums
    )


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


def _changed(entry: Entry) -> UserError:
    hint = "wait until nothing writes to it any more, then pack again"
    return UserError(f"{entry.source} changed while it was packed", hint)


def _add_crcs(crcs: list[int], block: memoryview, position: int) -> None:
    """Go on with the crc of each granule that the block reaches into."""
    while block:
        within = position % GRANULE
        if within == 0:
            crcs.append(0)
        piece = block[: GRANULE - within]
        crcs[-1] = crc32c(piece, crcs[-1])
        block, position = block[len(piece) :], position + len(piece)


def _write(out: BinaryIO, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


def _header(path: str, size: int, position: int) -> bytes:
    """What stands in front of a file that follows at this position, so long that the file begins aligned."""
    records = b""
    name = path.encode()
    if not path.isascii() or len(name) > _LONGEST_NAME_IN_HEADER:
        records += _record("path", name)
        name = path.encode("ascii", "replace")[:_LONGEST_NAME_IN_HEADER]
    if size > _LARGEST_IN_HEADER:
        records += _record("size", str(size).encode())
    shown = size if size <= _LARGEST_IN_HEADER else 0
    plain = _block(name, shown, b"0")
    if not records and (position + _TAR_BLOCK) % _ALIGNMENT == 0:
        return plain
    # One header for the records, their blocks, the file's own header: together up to the next aligned offset.
    length = -(position + 2 * _TAR_BLOCK) % _ALIGNMENT
    while length < len(records) + _SHORTEST_FILLER:
        length += _ALIGNMENT
    records += _filler(length - len(records))
    return _block(b"././@PaxHeader", length, b"x") + records + plain


def _record(key: str, value: bytes) -> bytes:
    """A pax record: it begins with its own length, which counts its own digits."""
    rest = len(f" {key}=") + len(value) + 1
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return f"{length} {key}=".encode() + value + b"\n"


def _filler(length: int) -> bytes:
    """A pax comment of exactly this many bytes: every reader passes over it."""
    start = f"{length} comment=".encode()
    return start + b"." * (length - len(start) - 1) + b"\n"


def _block(name: bytes, size: int, kind: bytes) -> bytes:
    """One ustar header."""
    head = bytearray(_TAR_BLOCK)
    head[0 : len(name)] = name
    head[100:108] = b"0000644\0"
    head[108:116] = head[116:124] = b"0000000\0"
    head[124:136] = b"%011o\0" % size
    head[136:148] = b"00000000000\0"
    head[148:156] = b" " * 8
    head[156:157] = kind
    head[257:265] = b"ustar\00000"
    head[329:337] = head[337:345] = b"0000000\0"
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)
