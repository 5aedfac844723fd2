"""Headers of safetensors files: what tensors a file holds, and whether it is whole. No tensor is read."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

MAX_HEADER = 100_000_000

_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class DamagedError(ValueError):
    """A file is not what its header says, or has none."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file: its type as written there, its shape, and its place after the header, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def elements(self) -> int:
        """How many numbers it holds; of packed quantized weights, how many packed ones."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of one file by name.

    Raises:
        DamagedError: the header is no safetensors header, or the file is not exactly as long as it says.
        OSError: the file cannot be read.
    """
    again = "download the file again"
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if size == 0:
            raise DamagedError(f"{path.name} is empty: an interrupted download?", again)
        if prefix == b"version ":
            raise DamagedError(
                f"{path.name} is a Git LFS pointer, not the file", "run `git lfs pull` in its repository"
            )
        if len(prefix) < 8 or not 2 <= length <= MAX_HEADER:
            raise DamagedError(
                f"{path.name} is no safetensors file: its header's length makes no sense", again
            )
        raw = file.read(length)
    if len(raw) < length:
        missing = 8 + length - size
        raise DamagedError(
            f"{path.name} ends {missing} bytes before its header does: an interrupted download?", again
        )
    tensors = _parse(path.name, raw)
    end = _check_places(path.name, tensors)
    _check_size(path.name, size, 8 + length + end)
    return tensors


def _parse(name: str, raw: bytes) -> dict[str, Tensor]:
    bad = DamagedError(f"{name} has a header that is no safetensors header", "download the file again")
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        raise bad from None
    if not isinstance(header, dict):
        raise bad
    header.pop("__metadata__", None)
    tensors = {key: _tensor(value) for key, value in header.items()}
    good = {key: tensor for key, tensor in tensors.items() if tensor is not None}
    if len(good) < len(tensors):
        raise bad
    return good


def _tensor(value: Any) -> Tensor | None:
    if not isinstance(value, dict):
        return None
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or not _are_counts(shape) or not _are_counts(offsets) or len(offsets) != 2:
        return None
    return Tensor(dtype, tuple(shape), offsets[0], offsets[1])


def _are_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_places(name: str, tensors: dict[str, Tensor]) -> int:
    """Tensors must follow each other without gaps and be as large as their shape says. Gives the end of the last."""
    end = 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != end or tensor.end < tensor.begin:
            raise DamagedError(
                f"{name} has a gap or an overlap before the tensor {key[:80]!r}", "download the file again"
            )
        bits = _BITS.get(tensor.dtype)
        if bits is not None and tensor.elements * bits != (tensor.end - tensor.begin) * 8:
            shape = "x".join(map(str, tensor.shape))
            message = (
                f"{name} gives the tensor {key[:80]!r} another size than {tensor.dtype} of {shape} takes"
            )
            raise DamagedError(message, "download the file again")
        end = tensor.end
    return end


def _check_size(name: str, size: int, wanted: int) -> None:
    if size < wanted:
        message = f"{name} is {wanted - size} bytes shorter than its header says: an interrupted download?"
        raise DamagedError(message, "download the file again")
    if size > wanted:
        raise DamagedError(
            f"{name} is {size - wanted} bytes longer than its header says", "download the file again"
        )
