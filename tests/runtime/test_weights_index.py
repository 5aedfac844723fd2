"""weights.json: what is accepted, what is refused, and that its identity is its content."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cogsmith_runtime.weights import Index, WeightsError

from .packed import packed

Change = Callable[[dict[str, Any]], Any]


def data() -> dict[str, Any]:
    return json.loads(packed({"config.json": 700, "a/model.safetensors": 70000}).index.dumps())  # type: ignore[no-any-return]


def test_round_trip() -> None:
    index = packed().index
    assert Index.parse(index.dumps()) == index
    assert Index.parse(json.dumps(json.loads(index.dumps()), indent=4)).digest == index.digest


def test_identity_is_known() -> None:
    text = (
        '{"files":[{"crc32c":"8a9136aa","offset":512,"path":"config.json","sha256":"'
        + "0" * 64
        + '","size":32}],'
        '"granule":8388608,"revision":null,"size":2048,"source":null,"version":1}\n'
    )
    index = Index.parse(text)
    assert index.dumps() == text
    assert index.digest == "4c55afbb522e1bcc9deeebd002628cd418e311b38bbaa61dcecd21e699f1f44f"


BAD_PATHS = [
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a//b",
    "",
    ".",
    "./a",
    "a/",
    "a\\b",
    "a\nb",
    "a\0b",
    "a\x7fb",
    "x" * 256,
]


@pytest.mark.parametrize("path", BAD_PATHS, ids=range(len(BAD_PATHS)))
def test_unsafe_path(path: str) -> None:
    changed = data()
    changed["files"][0]["path"] = path
    with pytest.raises(WeightsError, match=r"E2202 BadIndex: weights\.json is not valid: the path"):
        Index.parse(json.dumps(changed))


@pytest.mark.parametrize("path", ["a/model.safetensors", "A/Model.SafeTensors", "a", "a/model.safetensors/x"])
def test_paths_that_clash(path: str) -> None:
    changed = data()
    changed["files"][0]["path"] = path
    with pytest.raises(WeightsError, match="one and the same on some disks"):
        Index.parse(json.dumps(changed))


def _file(key: str, value: object) -> Change:
    return lambda data: data["files"][0].__setitem__(key, value)


def _top(key: str, value: object) -> Change:
    return lambda data: data.__setitem__(key, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_top("more", 1), "unknown key 'more'"),
        (lambda data: data.pop("granule"), "lacks the key 'granule'"),
        (_file("mode", 1), "a file has an unknown key 'mode'"),
        (lambda data: data["files"][0].pop("size"), "a file lacks the key 'size'"),
        (_top("version", 2), "has version 2"),
        (_top("version", True), "has version True"),
        (_top("files", []), "names no files"),
        (_top("files", {}), "names no files"),
        (_top("files", [3]), "a file is not an object"),
        (_top("granule", 0), "granule must be"),
        (_top("granule", 1.5), "granule must be"),
        (_top("size", -1), "size must be"),
        (_top("size", 600), "ends behind the end"),
        (_top("source", 5), "source must be text or null"),
        (_file("path", 5), "a path is not text"),
        (_file("offset", -1), "offset of 'config.json' must be"),
        (_file("offset", 1 << 61), "offset of 'config.json' must be"),
        (_file("offset", 2000), "overlap"),
        (_file("size", True), "size of 'config.json' must be"),
        (_file("size", 65537), "crc32c of 'config.json' must be 16 hex digits"),
        (_file("crc32c", ""), "crc32c of 'config.json' must be 8 hex digits"),
        (_file("crc32c", "0000000G"), "crc32c of 'config.json' must be 8 hex digits"),
        (_file("sha256", "ab"), "sha256 of 'config.json' must be 64 hex digits"),
    ],
)
def test_refused(change: Change, message: str) -> None:
    changed = data()
    change(changed)
    with pytest.raises(WeightsError, match=message):
        Index.parse(json.dumps(changed))


@pytest.mark.parametrize("text", ["", "[", "[]", "null", '{"size":1,"size":1}', '{"size":NaN}', "[" * 100000])
def test_no_index_at_all(text: str) -> None:
    with pytest.raises(WeightsError, match="E2202 BadIndex"):
        Index.parse(text)
