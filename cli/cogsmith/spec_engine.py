"""Engine arguments of a spec: those that another field or the runtime owns. Which others exist, the engine's row knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cogsmith.errors import Mistake
from cogsmith.spec_mistakes import show
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec

_RUNTIME = "the runtime sets it: remove it"
OWNED: dict[str, str] = {
    "model": "use `model`",
    "model_tag": "use `model`",
    "max_model_len": "use `context`",
    "max_seq_len": "use `context`",
    "tensor_parallel_size": "use `hardware`, such as h100:2",
    "chat_template": "use `prompt.template`",
    "served_model_name": _RUNTIME,
    "host": _RUNTIME,
    "port": _RUNTIME,
    "uds": _RUNTIME,
    "root_path": _RUNTIME,
    "middleware": _RUNTIME,
    "allowed_origins": _RUNTIME,
    "config": "write its arguments here instead: a file of arguments would win over the checked ones",
    "api_key": "remove it: the engine listens inside the container only, and a key would be readable in the image",
    "hf_token": "remove it: the weights are packed, and a token would be readable in the image",
    "trust_remote_code": "remove it: running code out of a checkpoint is not supported yet",
    "revision": "remove it: the packed weights are the revision",
    "code_revision": "remove it: running code out of a checkpoint is not supported yet",
    "tokenizer_revision": "remove it: the packed weights are the revision",
    "download_dir": "remove it: the weights are packed, nothing is downloaded",
}


def engine_mistakes(spec: Spec) -> Iterator[Mistake]:
    for key, value in spec.engine.items():
        field = dotted(("engine", key))
        plain = key.lstrip("-").replace("-", "_")
        if plain in OWNED or plain.startswith("ssl_"):
            yield spec.mistake(field, "cannot be set here", OWNED.get(plain, _RUNTIME))
        elif plain != key:
            yield spec.mistake(field, "is not in snake_case", f"write {plain}")
        elif not re.fullmatch(r"[a-z][a-z0-9_]*", key):
            yield spec.mistake(
                field, "is no name of an engine argument", "write it in snake_case, such as max_num_seqs"
            )
        else:
            yield from _value_mistakes(spec, field, value)
    yield from _sequence_mistakes(spec)


def _value_mistakes(spec: Spec, field: str, value: Any) -> Iterator[Mistake]:
    if value is None:
        yield spec.mistake(field, "has no value", "give it one, or remove it")
    elif isinstance(value, list) and any(item is None or isinstance(item, dict | list) for item in value):
        yield spec.mistake(field, "must be a list of single values", "write each item as text or a number")


def _sequence_mistakes(spec: Spec) -> Iterator[Mistake]:
    most = spec.engine.get("max_num_seqs")
    if spec.concurrency is None or most is None:
        return
    field = "engine.max_num_seqs"
    if isinstance(most, bool) or not isinstance(most, int):
        yield spec.mistake(field, f"is {show(most)}, must be a whole number", "correct it, or remove it")
    elif most < spec.concurrency:
        message = f"is {most}, must be >= concurrency ({spec.concurrency})"
        yield spec.mistake(field, message, f"raise it to {spec.concurrency} or remove it")
