"""A GGUF file -> a folder of safetensors, made once, by a child in the engine's environment."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

from cogsmith.conversion import convert_once
from cogsmith.errors import UserError

# Goes up when the same file would be converted to other bytes.
CONVERTER = 1
_CHILD = Path(__file__).with_name("gguf_child.py")
_VERSIONS = (2, 3)
# Four bits a weight become sixteen: the most that a common quantization grows.
_GROWTH = 5


def convert(gguf: Path, python: Callable[[], Path], cache: Path, log: Path) -> Path:
    """The model of a GGUF file as safetensors in bfloat16, with its tokenizer, chat template and configuration.

    Args:
        python: gives that of an environment with torch, transformers and gguf; asked only when there is something to convert.
        cache: the folder is kept below it, by the file's sha256; the same file is converted once.
        log: what the child prints.

    Raises:
        UserError: the file is not a GGUF that can be converted, the disk is too full, the child failed.
    """
    check(gguf)
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache / "converted" / f"{digest}-{CONVERTER}"
    return convert_once(folder, gguf, gguf.stat().st_size * _GROWTH, _CHILD, [gguf.resolve()], python, log)


def check(gguf: Path) -> None:
    """Refuse what is no GGUF by its first bytes. Raises UserError."""
    try:
        with gguf.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise UserError(f"{gguf} cannot be read ({error.strerror})") from None
    if head[:4] != b"GGUF":
        hint = "give a .gguf file, or a folder with config.json and safetensors"
        if head.startswith(b"version "):
            hint = "it is a Git LFS pointer: fetch the file itself (git lfs pull)"
        raise UserError(f"{gguf} is not a GGUF file", hint)
    version = struct.unpack("<I", head[4:])[0] if len(head) == 8 else 0
    if version not in _VERSIONS:
        known = " and ".join(map(str, _VERSIONS))
        message = f"{gguf} is a GGUF file of a version that is not known ({version}, known are {known})"
        raise UserError(message, "convert it again with a current llama.cpp; big-endian files are not read")
