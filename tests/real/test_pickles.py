"""Pickles with the real torch: tensors come through as they are, and a pickle that carries code does not run it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cogsmith import cog_versions, environment
from cogsmith.engines import VLLM_CPU
from cogsmith.errors import UserError
from cogsmith.model_files import ALL
from cogsmith.pickles import convert
from cogsmith.safetensors import read_header

MAKE = """
import os, sys, torch
a = torch.arange(12).reshape(3, 4).to(torch.bfloat16)
torch.save({"a": a, "tied": a, "part": a[1:2], "turned": a.t()}, "pytorch_model-00001-of-00002.bin")
torch.save({"z": torch.ones(3)}, "pytorch_model-00002-of-00002.bin", _use_new_zipfile_serialization=False)
class Code:
    def __reduce__(self):
        return os.mkdir, ("ran",)
torch.save({"x": Code()}, "code.bin")
"""
READ = """
import sys
from safetensors.torch import load_file
found = load_file(sys.argv[1] + "/model-00001-of-00002.safetensors")
assert found["a"].tolist() == found["tied"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
assert found["part"].tolist() == [[4, 5, 6, 7]] and found["turned"].tolist()[3] == [3, 7, 11]
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return environment.ensure(VLLM_CPU, (), cog_versions.DEFAULT)


@pytest.fixture
def pickled(python: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    subprocess.run([python, "-c", MAKE], cwd=folder, check=True)
    (folder / "config.json").write_text("{}")
    return folder


def convert_here(folder: Path, python: Path) -> Path:
    return convert(folder, ALL, False, lambda: python, folder.parent / "cache", folder.parent / "log")


def test_tensors_come_through(pickled: Path, python: Path) -> None:
    made = convert_here(pickled, python)
    assert sorted(path.name for path in made.iterdir()) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    assert set(read_header(made / "model-00001-of-00002.safetensors")) == {"a", "tied", "part", "turned"}
    index = json.loads((made / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["z"] == "model-00002-of-00002.safetensors"
    assert index["metadata"]["total_size"] == 2 * (12 + 12 + 4 + 12) + 12
    subprocess.run([python, "-c", READ, made], check=True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda whole, code: code, r"holds more than tensors \(\S*mkdir\), and is not loaded"),
        (lambda whole, code: whole[:700], "is damaged or cut short"),
        (lambda whole, code: b"\x80\x04.", "is damaged or cut short"),
    ],
)
def test_what_is_not_tensors(pickled: Path, python: Path, spoil: object, message: str) -> None:
    first, code = pickled / "pytorch_model-00001-of-00002.bin", pickled / "code.bin"
    first.write_bytes(spoil(first.read_bytes(), code.read_bytes()))  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        convert_here(pickled, python)
    assert not list(pickled.parent.rglob("ran"))
