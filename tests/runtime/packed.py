"""A packed object of a few MiB, laid out here by hand, so that the reader is not tested with the writer."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

from cogsmith_runtime.weights import Index, Limits, Member, WeightsError, fetch, source_of
from cogsmith_runtime.weights.fetch import Progress

GRANULE = 64 << 10
QUICK = Limits(connections=4, most_connections=4, part=256 << 10, timeout=1, pause=0.01, longest_pause=0.02)
FILES = {
    "config.json": 700,
    "empty.txt": 0,
    "tokenizer.json": 3 * GRANULE + 1,
    "model-1.safetensors": 20 * GRANULE,
    "sub/model-2.safetensors": 21 * GRANULE + 4097,
}


@dataclass(frozen=True)
class Object:
    index: Index
    files: dict[str, bytes]
    content: bytes

    def write(self, folder: Path) -> Path:
        """The object's tar and, beside it, weights.json; returns the tar's path."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "weights.json").write_text(self.index.dumps())
        (folder / "object.tar").write_bytes(self.content)
        return folder / "object.tar"

    def is_in(self, folder: Path) -> bool:
        """Whether the folder holds these files and no other."""
        found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
        return found.keys() == self.files.keys() and all(
            not path.is_symlink() and path.read_bytes() == self.files[name] for name, path in found.items()
        )

    def fetch(
        self, where: str, cache: Path, limits: Limits = QUICK, progress: Progress | None = None
    ) -> Path:
        return fetch(self.index, source_of(where, limits), cache, progress, limits).folder

    def fails(self, where: str, cache: Path, limits: Limits = QUICK) -> str:
        """The error of a fetch that fails; nothing must stand under the final name then."""
        try:
            self.fetch(where, cache, limits)
        except WeightsError as error:
            assert not (cache / self.index.digest).exists()
            return str(error)
        raise AssertionError("the fetch did not fail")


def packed(sizes: dict[str, int] | None = None) -> Object:
    """An object with files of these sizes and random bytes, each at a multiple of 512."""
    source = random.Random(7)
    files = {path: source.randbytes(size) for path, size in (FILES if sizes is None else sizes).items()}
    content = b""
    members = []
    for path, data in files.items():
        content += bytes(512)
        pieces = [data[start : start + GRANULE] for start in range(0, len(data), GRANULE)]
        sums = "".join(f"{crc32c(piece):08x}" for piece in pieces)
        digest = hashlib.sha256(data).hexdigest()
        members.append(Member(path=path, offset=len(content), size=len(data), sha256=digest, crc32c=sums))
        content += data + bytes(-len(data) % 512)
    content += bytes(1024)
    index = Index(source=None, revision=None, size=len(content), granule=GRANULE, files=tuple(members))
    return Object(index=index, files=files, content=content)
