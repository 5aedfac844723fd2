"""Packing to an object store in tests: a small model, and what the store has afterwards."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cogsmith import s3
from cogsmith.bucket import open_bucket
from cogsmith.errors import UserError
from cogsmith.pack import Packed, pack
from cogsmith.upload import Patience
from s3_server import KEY, SECRET, Proxy

MEBIBYTE = 1 << 20
PART = 5 * MEBIBYTE


def hurry(patch: pytest.MonkeyPatch) -> None:
    """Small parts and little patience."""
    patch.setattr(s3, "_SMALLEST_PART", PART)
    patch.setattr("cogsmith.upload.Patience", lambda: Patience(tries=4, pause=0.01, timeout=5.0))


def fill(folder: Path) -> Path:
    """A model of about 33 MiB, seven parts."""
    generator = random.Random(3)
    sizes = {
        "a.safetensors": 20 * MEBIBYTE + 77,
        "b.safetensors": 13 * MEBIBYTE,
        "config.json": 100,
        "empty.txt": 0,
    }
    for name, size in sizes.items():
        (folder / name).write_bytes(generator.randbytes(size))
    return folder


def send(model: Path, url: str = "s3://models/llm") -> Packed:
    return pack(model, [path.name for path in model.iterdir()], open_bucket(url, Path.cwd()))


def refusal(model: Path, url: str = "s3://models/llm") -> str:
    """The whole error; nothing of the credentials or of a signature is in it."""
    with pytest.raises(UserError) as caught:
        send(model, url)
    text = "\n".join(caught.value.lines())
    assert SECRET not in text
    assert KEY not in text
    assert "Signature=" not in text
    hint = caught.value.hint or ""
    assert hint
    assert not hint.endswith(".")
    return text


def keys(store: Proxy) -> list[str]:
    return [entry["Key"] for entry in store.s3.list_objects_v2(Bucket="models").get("Contents", ())]


def uploads(store: Proxy) -> list[dict[str, Any]]:
    return list(store.s3.list_multipart_uploads(Bucket="models").get("Uploads", ()))
