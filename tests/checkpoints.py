"""Tiny checkpoints for tests: real files in the real formats, with tensors of zeros."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INDEX = "model.safetensors.index.json"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "vocab_size": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_safetensors(
    path: Path, tensors: dict[str, tuple[int, ...]], dtype: str = "BF16", width: int = 2
) -> None:
    """A safetensors file of zeros, which take no room: name -> shape."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in tensors.items():
        size = width
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + end)


def write_checkpoint(folder: Path, *, chat_template: str | None = CHATML, **config: Any) -> Path:
    """A whole small Llama-shaped checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": 2, "temperature": 0.6, "top_p": 0.9})
    )
    special = [
        {"id": 1, "content": "<|im_start|>", "special": True},
        {"id": 2, "content": "<|im_end|>", "special": True},
    ]
    (folder / "tokenizer.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": special, "model": {"type": "BPE"}})
    )
    tokenizer: dict[str, Any] = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template)
    write_safetensors(
        folder / "model.safetensors", {"model.embed_tokens.weight": (256, 64), "model.norm.weight": (64,)}
    )
    return folder


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def shard(folder: Path, places: dict[str, str] | None = None) -> None:
    """Two shards instead of one file, and an index."""
    (folder / "model.safetensors").unlink()
    write_safetensors(folder / "model-00001-of-00002.safetensors", {"a": (4, 4), "b": (2,)})
    write_safetensors(folder / "model-00002-of-00002.safetensors", {"c": (8,)})
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    places = places or {"a": first, "b": first, "c": second}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
