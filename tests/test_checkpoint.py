"""What a model's folder holds is read without loading it, and what is wrong with it is told in one sentence each."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from checkpoints import CHATML, INDEX, edit, shard, write_checkpoint
from cogsmith.checkpoint import read_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


def raw_header(folder: Path, header: object, data: int) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))


def test_whole_checkpoint(folder: Path) -> None:
    found = read_checkpoint(folder)
    assert (found.architecture, found.model_type, found.dtype) == ("LlamaForCausalLM", "llama", "bfloat16")
    assert (found.context, found.vocab_size, found.layers, found.hidden_size) == (2048, 256, 2, 64)
    assert (found.heads, found.kv_heads, found.head_dim) == (4, 2, 16)
    assert (found.tensors, found.parameters, found.tensor_bytes) == (2, 256 * 64 + 64, 2 * (256 * 64 + 64))
    assert found.quantization is None
    assert found.chat_template == CHATML
    assert found.system_role is True
    assert found.eos_token_ids == (2,)
    assert (found.bos_token, found.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert found.special_tokens == ("<|im_start|>", "<|im_end|>")
    assert found.sampling == {"temperature": 0.6, "top_p": 0.9}
    assert found.warnings == ()
    assert found.files == (
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    )


def test_only_files_of_the_model_are_packed(folder: Path) -> None:
    before = read_checkpoint(folder).files
    for name in (
        "README.md",
        "logo.png",
        "modeling_tiny.py",
        "pytorch_model.bin",
        "pytorch_model.bin.index.json",
        ".gitattributes",
        "consolidated.safetensors",
        "trainer_state.json",
    ):
        (folder / name).write_text("{}")
    (folder / "original").mkdir()
    (folder / "original" / "params.json").write_text("{}")
    assert read_checkpoint(folder).files == before
    for name in (
        "merges.txt",
        "vocab.json",
        "tokenizer.model",
        "x.tiktoken",
        "preprocessor_config.json",
        "LICENSE",
    ):
        (folder / name).write_text("{}")
    added = set(read_checkpoint(folder).files) - set(before)
    assert added == {
        "merges.txt",
        "vocab.json",
        "tokenizer.model",
        "x.tiktoken",
        "preprocessor_config.json",
        "LICENSE",
    }


def test_shards_with_an_index(folder: Path) -> None:
    shard(folder)
    found = read_checkpoint(folder)
    assert (found.tensors, found.parameters) == (3, 26)
    assert {INDEX, "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} <= set(found.files)


def test_figures_of_a_nested_language_model(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    nested = {
        key: config.pop(key)
        for key in ("max_position_embeddings", "vocab_size", "num_hidden_layers", "dtype")
    }
    nested |= {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    (folder / "config.json").write_text(json.dumps({**config, "text_config": nested}))
    found = read_checkpoint(folder)
    assert (found.context, found.vocab_size, found.layers, found.dtype) == (2048, 256, 2, "bfloat16")
    assert found.rope_scaling == "yarn x4"


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"num_key_value_heads": None}, "kv_heads", 4),
        ({"head_dim": None}, "head_dim", 16),
        ({"max_position_embeddings": None, "n_positions": 1024}, "context", 1024),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "quantization", "mxfp4"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quantization", "unknown: hqq"),
        ({"dtype": None, "torch_dtype": "float16"}, "dtype", "float16"),
        ({"architectures": ["BrandNewForCausalLM"]}, "architecture", "BrandNewForCausalLM"),
        ({"vocab_size": "many"}, "vocab_size", None),
    ],
)
def test_other_spellings_in_config(folder: Path, config: dict[str, Any], field: str, value: object) -> None:
    edit(folder / "config.json", **config)
    assert getattr(read_checkpoint(folder), field) == value


def test_modelopt_quantization_has_a_file_of_its_own(folder: Path) -> None:
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    found = read_checkpoint(folder)
    assert found.quantization == "modelopt-fp8"
    assert "hf_quant_config.json" in found.files


def test_advice_that_the_engine_refuses_is_left_out(folder: Path) -> None:
    edit(folder / "generation_config.json", temperature=7, top_k=-1, top_p="x", repetition_penalty=1.1)
    assert read_checkpoint(folder).sampling == {"top_k": 0, "repetition_penalty": 1.1}


def test_warnings(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[2, 7])
    (folder / "chat_template.jinja").unlink()
    edit(folder / "config.json", max_position_embeddings=None)
    found = read_checkpoint(folder)
    assert found.eos_token_ids == (2, 7)
    assert (found.chat_template, found.system_role) == (None, None)
    assert found.warnings == (
        "has no chat template: give the spec a prompt.template",
        "several tokens end an answer: 2, 7",
        "its config.json does not say how many tokens it takes: set `context` in the spec",
    )
    (folder / "generation_config.json").unlink()
    assert "has no generation_config.json: it advises no sampling values" in read_checkpoint(folder).warnings


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{{ messages[0].content }}", "{{ messages[0].content }}"),
        (
            [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ messages }}"}],
            "{{ messages }}",
        ),
        ([{"name": "tool_use", "template": "x"}], None),
    ],
)
def test_template_in_the_tokenizers_config(folder: Path, value: object, text: str | None) -> None:
    edit(folder / "tokenizer_config.json", chat_template=value)
    assert read_checkpoint(folder).chat_template == CHATML
    (folder / "chat_template.jinja").unlink()
    assert read_checkpoint(folder).chat_template == text


def test_template_that_refuses_a_system_message(folder: Path) -> None:
    refuses = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(refuses + CHATML)
    found = read_checkpoint(folder)
    assert found.system_role is False
    assert found.warnings == ("its chat template refuses a system message: System role not supported",)


def test_template_that_does_not_compile(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for message in messages %}\n{{ message }")
    found = read_checkpoint(folder)
    assert found.system_role is None
    assert "its chat template does not compile: line 2" in found.warnings[0]


def test_cache_of_the_hugging_face_client(tmp_path: Path) -> None:
    snapshot = write_checkpoint(tmp_path / "models--a--b" / "snapshots" / "0123")
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(Path("..") / ".." / "blobs" / str(number))
    assert len(read_checkpoint(snapshot).files) == 6


def test_weights_are_not_read(folder: Path) -> None:
    """A file of 8 GiB with nothing in it is read as fast as a small one."""
    size = 8 << 30
    raw_header(folder, {"a": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}, 0)
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size + size)
    start = time.perf_counter()
    assert read_checkpoint(folder).tensor_bytes == size
    assert time.perf_counter() - start < 3
