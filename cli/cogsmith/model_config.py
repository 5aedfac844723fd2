"""What the small JSON files of a checkpoint say: config.json, generation_config.json and the tokenizer's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cogsmith import inputs

Json = Mapping[str, Any]

# A vision or audio model keeps its language model's figures in one of these.
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "n_ctx",
    "max_sequence_length",
    "max_seq_length",
    "model_max_length",
)
_SAMPLING = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty")


class BadJsonError(ValueError):
    """A file is not the JSON object that it must be."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file.

    Raises:
        BadJsonError: the file cannot be read, is no JSON, or holds something else.
    """
    again = "download the file again"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadJsonError(
            f"{path.name} cannot be read ({error.strerror})", "check its permissions"
        ) from None
    if raw.startswith(b"version https://git-lfs"):
        raise BadJsonError(
            f"{path.name} is a Git LFS pointer, not the file", "run `git lfs pull` in its repository"
        )
    try:
        value = json.loads(raw)
    except json.JSONDecodeError as error:
        raise BadJsonError(f"{path.name} is not JSON (line {error.lineno}: {error.msg})", again) from None
    except (ValueError, RecursionError):
        raise BadJsonError(f"{path.name} is not JSON", again) from None
    if not isinstance(value, dict):
        raise BadJsonError(f"{path.name} must hold a JSON object", again)
    return value


class ModelConfig:
    """Figures of config.json; None where it does not say."""

    def __init__(self, config: Json) -> None:
        self._top = config
        inner = [config[key] for key in NESTED if isinstance(config.get(key), dict)]
        self._parts: list[Json] = [*inner, config]

    def number(self, *names: str) -> int | None:
        """The first of the names that holds a whole number above 0, the language model's own part first."""
        for part in self._parts:
            for name in names:
                value = part.get(name)
                if type(value) is int and value > 0:
                    return value
        return None

    def text(self, *names: str) -> str | None:
        for part in self._parts:
            for name in names:
                value = part.get(name)
                if isinstance(value, str) and value:
                    return value
        return None

    @property
    def architecture(self) -> str | None:
        names = self._top.get("architectures")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None

    @property
    def model_type(self) -> str | None:
        value = self._top.get("model_type")
        return value if isinstance(value, str) else None

    @property
    def dtype(self) -> str | None:
        text = self.text("dtype", "torch_dtype")
        return text.removeprefix("torch.") if text else None

    @property
    def context(self) -> int | None:
        return self.number(*_CONTEXT)

    @property
    def heads(self) -> int | None:
        return self.number("num_attention_heads", "n_head", "num_heads")

    @property
    def kv_heads(self) -> int | None:
        said = self.number("num_key_value_heads", "num_kv_heads", "n_head_kv")
        if said is None and any(part.get("multi_query") is True for part in self._parts):
            return 1
        return said or self.heads

    @property
    def hidden_size(self) -> int | None:
        return self.number("hidden_size", "n_embd", "d_model")

    @property
    def head_dim(self) -> int | None:
        said = self.number("head_dim")
        if said is None and self.hidden_size and self.heads:
            return self.hidden_size // self.heads
        return said

    @property
    def rope_scaling(self) -> str | None:
        """The kind of position scaling that the checkpoint asks for, with its factor."""
        for part in self._parts:
            for name in ("rope_scaling", "rope_parameters"):
                scaling = part.get(name)
                kind = (
                    (scaling.get("rope_type") or scaling.get("type")) if isinstance(scaling, dict) else None
                )
                if isinstance(kind, str) and kind != "default" and isinstance(scaling, dict):
                    factor = scaling.get("factor")
                    return f"{kind} x{factor:g}" if isinstance(factor, int | float) else kind
        return None

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        for part in (self._top, *self._parts):
            found = token_ids(part.get("eos_token_id"))
            if found:
                return found
        return ()


def token_ids(value: Any) -> tuple[int, ...]:
    """One id or a list of them, as a tuple without repetitions."""
    ids = value if isinstance(value, list) else [value]
    return tuple(dict.fromkeys(item for item in ids if type(item) is int and item >= 0))


def sampling(generation: Json) -> dict[str, int | float]:
    """Sampling values that generation_config.json advises, under this project's names; what the engine refuses is left out."""
    advised: dict[str, int | float] = {}
    for name in _SAMPLING:
        value = generation.get(name)
        if name == "top_k" and value == -1:
            value = 0
        if value is not None and inputs.problem(inputs.BY_NAME[name], value) is None:
            advised[name] = value
    return advised


def token_text(value: Any) -> str | None:
    """A token as tokenizer_config.json writes it: its text, or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def special_tokens(tokenizer: Json, tokenizer_config: Json) -> tuple[str, ...]:
    """Texts that the tokenizer turns into control tokens, the longest first."""
    decoder = tokenizer_config.get("added_tokens_decoder")
    listed = tokenizer.get("added_tokens")
    entries = [
        *(listed if isinstance(listed, list) else ()),
        *(decoder.values() if isinstance(decoder, dict) else ()),
    ]
    texts = {entry["content"] for entry in entries if _is_special(entry)}
    return tuple(sorted(texts, key=lambda text: (-len(text), text)))


def _is_special(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("special") is True
        and isinstance(entry.get("content"), str)
        and bool(entry["content"])
    )


def config_template(tokenizer_config: Json) -> str | None:
    """The chat template that tokenizer_config.json carries: one text, or a list of named ones with a `default`."""
    value = tokenizer_config.get("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) and value.strip() else None
