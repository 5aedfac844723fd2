"""Which ranges of the object are asked for: granules, gathered to parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

from .index import Index

# Headers and padding between two small files: cheaper to read over than to ask a second time.
_GAP = 64 << 10


@dataclass(frozen=True, slots=True)
class Granule:
    """Bytes that share one crc32c.

    Attributes:
        file, number: which file of the index, and which granule of it.
        start: offset in the object, bytes.
        position: offset in the file, bytes.
        size: bytes.
        crc: the CRC-32C they must have.
    """

    file: int
    number: int
    start: int
    position: int
    size: int
    crc: int

    @property
    def end(self) -> int:
        return self.start + self.size


Part = tuple[Granule, ...]


def granules(index: Index) -> list[Granule]:
    """Every granule of the object, by its offset."""
    found = [
        Granule(
            file=file,
            number=number,
            start=member.offset + position,
            position=position,
            size=min(index.granule, member.size - position),
            crc=member.crc(number),
        )
        for file, member in enumerate(index.files)
        for number, position in enumerate(range(0, member.size, index.granule))
    ]
    return sorted(found, key=lambda granule: granule.start)


def parts(missing: Iterable[Granule], size: int) -> list[Part]:
    """Gather granules to parts of about `size` bytes, neighbours by neighbours, and take turns between the files.

    Writers of one file wait for each other in the kernel, so parts that run at the same time should be of
    different files.
    """
    queues: dict[int, list[Part]] = {}
    for part in _gather(missing, size):
        queues.setdefault(part[0].file, []).append(part)
    turns = chain.from_iterable(zip_longest(*queues.values()))
    return [part for part in turns if part is not None]


def _gather(missing: Iterable[Granule], size: int) -> Iterator[Part]:
    part: list[Granule] = []
    for granule in missing:
        if part and not _fits(part, granule, size):
            yield tuple(part)
            part = []
        part.append(granule)
    if part:
        yield tuple(part)


def _fits(part: Sequence[Granule], granule: Granule, size: int) -> bool:
    return granule.end - part[0].start <= size and granule.start - part[-1].end <= _GAP


class Cursor:
    """Where one part stands: what is written of it, and the running crc of the granule in work.

    A body that ends early goes on at exactly this byte.

    Attributes:
        filled: bytes of the granule in work that are written.
        crc: of these.
        bad: how often the granule in work came damaged.
        given_up: whether one connection could not read it.
    """

    def __init__(self, part: Part) -> None:
        self._part = part
        self._number = 0
        self.filled = 0
        self.crc = 0
        self.bad = 0
        self.given_up = False

    @property
    def done(self) -> bool:
        return self._number == len(self._part)

    @property
    def granule(self) -> Granule:
        return self._part[self._number]

    @property
    def start(self) -> int:
        """The next byte of the object that is wanted."""
        return self.granule.start + self.filled

    @property
    def end(self) -> int:
        """One behind the last byte of the object that is wanted."""
        return self._part[-1].end

    def took(self, count: int, crc: int) -> None:
        self.filled += count
        self.crc = crc

    @property
    def full(self) -> bool:
        return self.filled == self.granule.size

    def advance(self) -> None:
        self._number += 1
        self.filled = self.crc = self.bad = 0

    def restart(self) -> None:
        """Read the granule in work again from its first byte."""
        self.filled = self.crc = 0
        self.bad += 1
