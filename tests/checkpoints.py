"""Tiny checkpoints for tests: real files in the real formats, with tensors of zeros."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
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
    """A safetensors file of zeros: name -> shape."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in tensors.items():
        size = width
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


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
