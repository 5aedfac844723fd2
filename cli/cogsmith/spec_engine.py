"""Engine arguments of a spec: those that another field or the runtime owns, and those that the engine build lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cogsmith.engines import Engine, engine_for
from cogsmith.errors import Mistake
from cogsmith.hardware import HardwareError
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


def build_of(spec: Spec) -> Engine | None:
    """The engine build of a spec, or None where its backend or hardware is a mistake."""
    if not all(isinstance(spec.document.data.get(key), str) for key in ("backend", "hardware")):
        return None  # the spec then holds a stand-in
    try:
        return engine_for(spec.backend, cpu=spec.machine.gpu is None)
    except (HardwareError, KeyError):
        return None


def engine_mistakes(spec: Spec, engine: Engine | None = None) -> Iterator[Mistake]:
    """What is wrong below `engine`.

    Args:
        spec: what the user wrote.
        engine: the build that must take the arguments; None: the spec's own.
    """
    found = list(_argument_mistakes(spec, engine or build_of(spec)))
    yield from found
    if "engine.max_num_seqs" not in {mistake.field for mistake in found}:
        yield from _sequence_mistakes(spec)


def _argument_mistakes(spec: Spec, engine: Engine | None) -> Iterator[Mistake]:
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
        elif engine is not None:
            yield from _build_mistakes(spec, engine, key, value)


def _build_mistakes(spec: Spec, engine: Engine, key: str, value: Any) -> Iterator[Mistake]:
    field = dotted(("engine", key))
    hint = engine.unknown(key)
    if hint:
        yield spec.mistake(field, f"is no argument of {engine.name} {engine.version}", hint)
    elif value is None:
        yield spec.mistake(field, "has no value", "give it one, or remove it")
    else:
        problem = engine.problem(key, value)
        if problem:
            yield spec.mistake(field, f"is {show(value)}, {problem}", "correct it, or remove it")


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
