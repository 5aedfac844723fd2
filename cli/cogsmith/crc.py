"""Running and combined CRC-32C sums."""

from __future__ import annotations

import functools

from crc32c import crc32c

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, lowest power first, as all values here
_ONE = 1 << 31


class Crcs:
    """The CRC-32C of each step of a stream of bytes.

    Args:
        step: bytes that share one sum; the steps are counted from 0, wherever the stream starts.
        start: offset of the first byte that will be added.
    """

    def __init__(self, step: int, start: int = 0) -> None:
        self._step = step
        self._position = start
        self.sums: list[int] = []

    def add(self, block: bytes | memoryview) -> None:
        """Go on with the sum of each step that the block reaches into."""
        view = memoryview(block)
        while view:
            within = self._position % self._step
            if within == 0 or not self.sums:
                self.sums.append(0)
            piece = view[: self._step - within]
            self.sums[-1] = crc32c(piece, self.sums[-1])
            view = view[len(piece) :]
            self._position += len(piece)


def combined(first: int, second: int, length: int) -> int:
    """The sum of two neighbouring pieces from their own sums, as zlib's crc32_combine.

    Args:
        length: bytes of the second piece.
    """
    power, shift = 3, _ONE  # the exponent is counted in bits
    while length:
        if length & 1:
            shift = _product(_power(power), shift)
        length >>= 1
        power += 1
    return _product(shift, first) ^ second


def _product(first: int, second: int) -> int:
    """Of two polynomials, modulo that of CRC-32C."""
    result, bit = 0, _ONE
    while True:
        if first & bit:
            result ^= second
            if not first & (bit - 1):
                return result
        bit >>= 1
        if not bit:
            return result
        second = (second >> 1) ^ (_POLYNOMIAL if second & 1 else 0)


@functools.cache
def _power(exponent: int) -> int:
    """x to the power of two to the power of the exponent."""
    if exponent == 0:
        return 1 << 30
    half = _power(exponent - 1)
    return _product(half, half)
