"""What is wrong with a model's folder is told in one sentence each, before anything is packed."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoints import INDEX, edit, shard, write_checkpoint
from cogsmith.checkpoint import CheckpointError, read_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


def problems(folder: Path) -> list[str]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    lines = caught.value.lines()
    assert all(line.startswith("Error: ") for line in lines[::2])
    assert all(line.startswith("Hint: ") for line in lines[1::2])
    return [line.removeprefix(f"Error: {folder}: ") for line in lines[::2]]


def no_folder(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def a_file(folder: Path) -> None:
    no_folder(folder)
    folder.write_text("x")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def config_not_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"a": 1,\n}')


def config_is_a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def config_of_something_else(folder: Path) -> None:
    edit(folder / "config.json", architectures={})


def config_is_a_pointer(folder: Path) -> None:
    (folder / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")


def pickles_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def gguf_only(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "tiny-q4.gguf")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def adapter(folder: Path) -> None:
    no_config(folder)
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")


def absent_shards(folder: Path) -> None:
    places = {f"t{number}": f"model-{number:05d}-of-00009.safetensors" for number in range(3, 10)}
    shard(
        folder, {"a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors", **places}
    )


def shard_missing_without_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00002-of-00003.safetensors")


def stale_index(folder: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    shard(folder, {"a": first, "b": second, "c": second, "d": second})


def index_without_map(folder: Path) -> None:
    (folder / INDEX).write_text("{}")


def index_leads_outside(folder: Path) -> None:
    (folder / INDEX).write_text('{"weight_map": {"a": "../../etc/passwd"}}')


def weights_twice(folder: Path) -> None:
    (folder / "model.fp16.safetensors").write_bytes((folder / "model.safetensors").read_bytes())


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 100)


def truncated_in_header(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 20)


def too_long(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"12345")


def empty_tensor_file(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def html_page(folder: Path) -> None:
    (folder / "model.safetensors").write_text("<!DOCTYPE html><html>not found</html>")


def tensor_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    )


def raw_header(folder: Path, header: object, data: int) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


def header_not_json(folder: Path) -> None:
    raw_header(folder, b"{]", 0)


def header_without_offsets(folder: Path) -> None:
    raw_header(folder, {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, 4)


def gap(folder: Path) -> None:
    a = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    raw_header(folder, {"a": a, "b": {**a, "data_offsets": [8, 12]}}, 12)


def overlap(folder: Path) -> None:
    a = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    raw_header(folder, {"a": a, "b": {**a, "data_offsets": [4, 12]}}, 12)


def size_of_another_shape(folder: Path) -> None:
    raw_header(folder, {"a": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 4]}}, 4)


def link_outside(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").symlink_to("/etc/passwd")


def broken_link(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("absent")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_folder, "there is no such folder"),
        (a_file, "is a file, must be a folder"),
        (no_config, "holds no config.json"),
        (config_not_json, "config.json is not JSON (line 2: "),
        (config_is_a_list, "config.json must hold a JSON object"),
        (config_of_something_else, "config.json has no architectures"),
        (config_is_a_pointer, "config.json is a Git LFS pointer, not the file"),
        (
            pickles_only,
            "holds no safetensors, only pytorch_model.bin: loading a pickle runs code that it carries",
        ),
        (gguf_only, "holds no safetensors, only GGUF"),
        (no_weights, "holds no safetensors file"),
        (adapter, "is a LoRA adapter, not a model"),
        (
            absent_shards,
            f"{INDEX} names 7 of 8 files that are not there: model-00003-of-00009.safetensors, "
            "model-00004-of-00009.safetensors, model-00005-of-00009.safetensors, model-00006-of-00009.safetensors, "
            "model-00007-of-00009.safetensors and 2 more",
        ),
        (
            shard_missing_without_index,
            "2 of 3 shards are not there: model-00001-of-00003.safetensors, model-00003-of-00003.safetensors",
        ),
        (stale_index, f"{INDEX} does not fit the shards: 2 tensors are not where it says, such as b"),
        (index_without_map, f"{INDEX} has no weight_map"),
        (index_leads_outside, f"{INDEX} names '../../etc/passwd', which is no file of the folder"),
        (
            weights_twice,
            "model.safetensors and model.fp16.safetensors hold 2 tensors of the same name, such as model.embed_tokens.weight",
        ),
        (no_tokenizer, "holds no tokenizer"),
        (truncated, "model.safetensors is 100 bytes shorter than its header says: an interrupted download?"),
        (truncated_in_header, "model.safetensors ends "),
        (too_long, "model.safetensors is 5 bytes longer than its header says"),
        (empty_tensor_file, "model.safetensors is empty: an interrupted download?"),
        (html_page, "model.safetensors is no safetensors file: its header's length makes no sense"),
        (tensor_pointer, "model.safetensors is a Git LFS pointer, not the file"),
        (header_not_json, "model.safetensors has a header that is no safetensors header"),
        (header_without_offsets, "model.safetensors has a header that is no safetensors header"),
        (gap, "model.safetensors has a gap or an overlap before the tensor 'b'"),
        (overlap, "model.safetensors has a gap or an overlap before the tensor 'b'"),
        (size_of_another_shape, "model.safetensors gives the tensor 'a' another size than F32 of 3x5 takes"),
        (link_outside, "tokenizer.json is a link that leads out of the folder"),
        (broken_link, "config.json is a link to a file that is not there"),
    ],
)
def test_spoiled_checkpoint(folder: Path, spoil: Callable[[Path], None], message: str) -> None:
    spoil(folder)
    found = problems(folder)
    assert found[0].startswith(message), found
    assert len(found) == 1 or spoil is link_outside, found


def test_independent_problems_are_told_at_once(folder: Path) -> None:
    no_config(folder)
    no_tokenizer(folder)
    truncated(folder)
    assert len(problems(folder)) == 3


def test_gguf_inside_is_named(folder: Path) -> None:
    gguf_only(folder)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    assert caught.value.hint is not None
    assert "tiny-q4.gguf" in caught.value.hint
