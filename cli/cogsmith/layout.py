"""Where each file of a model will be in its tar: every offset is known before a byte is read.

The same files give the same bytes on any machine: the order, the headers and the padding follow from names and sizes.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cogsmith.errors import UserError
from cogsmith.links import may_follow
from cogsmith_runtime.weights.index import Index, clash, path_problem

# Offsets of this multiple let a file inside the tar be mapped, or read past the page cache.
_ALIGNMENT = 4096
_TAR_BLOCK = 512
# The size field of a header has eleven octal digits.
_LARGEST_IN_HEADER = 8**11 - 1
_LONGEST_NAME_IN_HEADER = 100
_SHORTEST_FILLER = len(b"12 comment=\n")


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

    @property
    def start(self) -> int:
        """Offset of the header."""
        return self.offset - len(self.header)

    @property
    def end(self) -> int:
        """Offset behind the padding."""
        return self.offset + self.size + self.padding


@dataclass(frozen=True, slots=True)
class Layout:
    """Every file's place.

    Attributes:
        end: of the last file; from there on all is zero.
        size: of the whole tar, in bytes.
        origin: where the files are from.
    """

    entries: tuple[Entry, ...]
    end: int
    size: int
    origin: Origin = LOCAL


def fingerprint(folder: Path, files: Sequence[str]) -> str:
    """Changes when a file's path, size or time of change does: tells cheaply that there is nothing to pack again."""
    digest = hashlib.sha256()
    for path in sorted(files):
        found = _stat(folder, path)
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def layout(folder: Path, files: Iterable[str], origin: Origin = LOCAL) -> Layout:
    """Where each file will be. Small files come first, so that one range holds them all; then tensors; by name.

    Raises UserError naming a file that cannot be packed.
    """
    paths = sorted(files, key=lambda path: (path.endswith(".safetensors"), path))
    _check_names(folder, paths)
    placed = _placed((path, folder / path, _stat(folder, path).st_size) for path in paths)
    return replace(placed, origin=origin)


def layout_of(index: Index) -> Layout | None:
    """The layout that a packed object has; None if its files do not lie where this version puts them."""
    plan = _placed((member.path, Path(member.path), member.size) for member in index.files)
    same = [entry.offset for entry in plan.entries] == [member.offset for member in index.files]
    return plan if same and plan.size == index.size else None


def _placed(files: Iterable[tuple[str, Path, int]]) -> Layout:
    position = 0
    entries = []
    for path, source, size in files:
        header = _header(path, size, position)
        entry = Entry(path=path, source=source, size=size, header=header, offset=position + len(header))
        entries.append(entry)
        position = entry.end
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
