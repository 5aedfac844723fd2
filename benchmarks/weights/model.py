"""What both halves of the benchmark are run on: a checkpoint as vLLM would load it, of bytes that cannot be compressed."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

_SHARDS = 3
_ROW = 4096
_BLOCK = 64 << 20
_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": _ROW,
    "num_hidden_layers": _SHARDS,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 2048,
    "vocab_size": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE"}}


def write_model(folder: Path, size: int) -> list[str]:
    """Three shards with so many bytes of tensors together, and the small files of a model; the names of all, sorted."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    (folder / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    (folder / "tokenizer.json").write_text(json.dumps({**_TOKENIZER, "filler": os.urandom(4_500_000).hex()}))
    places = {}
    for number in range(1, _SHARDS + 1):
        name = f"model-{number:05}-of-{_SHARDS:05}.safetensors"
        places[f"model.layers.{number}.weight"] = name
        _write_shard(folder / name, f"model.layers.{number}.weight", size // _SHARDS // (2 * _ROW))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return sorted(path.name for path in folder.iterdir())


def _write_shard(path: Path, name: str, rows: int) -> None:
    left = 2 * rows * _ROW
    header = {name: {"dtype": "BF16", "shape": [rows, _ROW], "data_offsets": [0, left]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        while left > 0:
            left -= file.write(os.urandom(min(left, _BLOCK)))
