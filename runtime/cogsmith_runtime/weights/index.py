"""weights.json: what is in a packed object, where, and the sums that prove it.

The image carries this file; the sha256 of its canonical bytes is the identity of the weights and part of the
object's key. It comes from outside, so nothing in it is believed before it is checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import BAD_INDEX, NO_INDEX, WeightsError

VERSION = 1
GRANULE = 8 << 20
_SMALLEST_GRANULE = 4096
_LARGEST_GRANULE = 1 << 30
_LARGEST_SIZE = 1 << 60
_LONGEST_NAME = 255
_KEYS = {"version", "source", "revision", "size", "granule", "files"}
_FILE_KEYS = {"path", "offset", "size", "sha256", "crc32c"}


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the object.

    Attributes:
        path: where it goes in the target folder; relative, with "/".
        offset, size: where its bytes are in the object, in bytes.
        sha256: of the whole file, 64 hex digits.
        crc32c: of each granule, 8 hex digits each, concatenated; empty for an empty file.
    """

    path: str
    offset: int
    size: int
    sha256: str
    crc32c: str

    @property
    def is_tensors(self) -> bool:
        """Tensors are data; every other file decides how the model behaves."""
        return self.path.endswith(".safetensors")

    def crc(self, granule: int) -> int:
        """The CRC-32C of the granule with this number."""
        return int(self.crc32c[8 * granule : 8 * granule + 8], 16)


@dataclass(frozen=True, slots=True)
class Index:
    """What one packed object holds.

    Attributes:
        source, revision: where the weights came from; None for a local folder.
        size: of the whole object, in bytes.
        granule: bytes that share one crc32c, counted from the start of each file.
        files: in the order of the object.
    """

    source: str | None
    revision: str | None
    size: int
    granule: int
    files: tuple[Member, ...]

    @classmethod
    def load(cls, path: Path) -> Index:
        """Read and check a weights.json. Raises WeightsError."""
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            hint = "Pack the model first (cogsmith pack), which writes it."
            raise WeightsError(NO_INDEX, f"there is no index at {path}", hint) from None
        except (OSError, UnicodeDecodeError) as error:
            raise _bad(f"{path} cannot be read ({error})") from None
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str) -> Index:
        """Check the text of a weights.json, every field of it. Raises WeightsError."""
        try:
            data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise _bad(f"it is not JSON ({error})") from None
        _keys(data, _KEYS, "the index")
        if data["version"] != VERSION or isinstance(data["version"], bool):
            raise _bad(f"it has version {data['version']!r}, this reader knows version {VERSION}")
        if not isinstance(data["files"], list) or not data["files"]:
            raise _bad("it names no files")
        granule = _integer(data["granule"], "granule", _SMALLEST_GRANULE, _LARGEST_GRANULE)
        size = _integer(data["size"], "size", 0, _LARGEST_SIZE)
        files = tuple(_member(item, granule) for item in data["files"])
        check_paths(member.path for member in files)
        _check_ranges(files, size)
        source, revision = (_text(data[key], key) for key in ("source", "revision"))
        return cls(source=source, revision=revision, size=size, granule=granule, files=files)

    def dumps(self) -> str:
        """The canonical text: the same for the same weights on any machine."""
        data = {"version": VERSION, **asdict(self)}
        return json.dumps(data, sort_keys=True, separators=(",", ":")) + "\n"

    @property
    def digest(self) -> str:
        """sha256 of the canonical text, in hex: the identity of the weights."""
        return hashlib.sha256(self.dumps().encode()).hexdigest()

    @property
    def content(self) -> int:
        """Bytes of all files together: what ends up on disk."""
        return sum(member.size for member in self.files)


def path_problem(path: str) -> str | None:
    """Why this path must not be packed or written, or None. Never lets a file out of its folder."""
    parts = path.split("/")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        return "has a control character in its name"
    if "\\" in path:
        return "has a backslash in its name"
    if path.startswith("/"):
        return "is absolute"
    if ".." in parts:
        return "leads out of its folder"
    if "" in parts or "." in parts:
        return "has an empty part in its path"
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        return f"has a name longer than {_LONGEST_NAME} bytes"
    return None


def clash(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two paths that cannot both exist on every file system: equal but for case, or a file that is a folder too."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        folded = unicodedata.normalize("NFC", path).casefold()
        other = seen.get(folded) or folders.get(folded)
        if other is not None:
            return other, path
        seen[folded] = path
        parts = folded.split("/")
        for end in range(1, len(parts)):
            folder = "/".join(parts[:end])
            if folder in seen:
                return seen[folder], path
            folders[folder] = path
    return None


def check_paths(paths: Iterable[str]) -> None:
    """Refuse an index whose paths are unsafe. Raises WeightsError."""
    paths = list(paths)
    for path in paths:
        if problem := path_problem(path):
            raise _bad(f"the path {path!r} {problem}")
    if pair := clash(paths):
        raise _bad(f"the paths {pair[0]!r} and {pair[1]!r} are one and the same on some disks")


def _bad(message: str) -> WeightsError:
    return WeightsError(
        BAD_INDEX, f"weights.json is not valid: {message}", "Make it again with cogsmith pack."
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key is there twice")
    return data


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _keys(data: object, wanted: set[str], what: str) -> None:
    if not isinstance(data, dict):
        raise _bad(f"{what} is not an object")
    if unknown := sorted(data.keys() - wanted):
        raise _bad(f"{what} has an unknown key {unknown[0]!r}")
    if missing := sorted(wanted - data.keys()):
        raise _bad(f"{what} lacks the key {missing[0]!r}")


def _integer(value: object, what: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise _bad(f"{what} must be a whole number from {low} to {high}, is {str(value)[:40]}")
    return value


def _text(value: object, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _bad(f"{what} must be text or null")
    return value


def _member(data: Any, granule: int) -> Member:
    _keys(data, _FILE_KEYS, "a file")
    path = data["path"]
    if not isinstance(path, str):
        raise _bad("a path is not text")
    offset = _integer(data["offset"], f"offset of {path!r}", 0, _LARGEST_SIZE)
    size = _integer(data["size"], f"size of {path!r}", 0, _LARGEST_SIZE)
    _hex(data["sha256"], f"sha256 of {path!r}", 64)
    _hex(data["crc32c"], f"crc32c of {path!r}", 8 * -(-size // granule))
    return Member(path=path, offset=offset, size=size, sha256=data["sha256"], crc32c=data["crc32c"])


def _hex(value: object, what: str, digits: int) -> None:
    if not isinstance(value, str) or len(value) != digits or not re.fullmatch(r"[0-9a-f]*", value):
        raise _bad(f"{what} must be {digits} hex digits")


def _check_ranges(files: tuple[Member, ...], size: int) -> None:
    end, last = 0, ""
    for member in sorted(files, key=lambda member: (member.offset, member.size)):
        if member.offset < end:
            raise _bad(f"{member.path!r} and {last!r} overlap")
        end, last = member.offset + member.size, member.path
    if end > size:
        raise _bad(f"{last!r} ends behind the end of the object")
