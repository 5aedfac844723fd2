"""Engine arguments of a spec: those that another field or the runtime owns, and those that the engine build lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cogsmith.engines import BACKENDS, Engine, engine_for
from cogsmith.errors import Mistake
from cogsmith.hardware import HardwareError
from cogsmith.spec_mistakes import show
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec

_RUNTIME = "the runtime sets it: remove it"
_PACKED = "remove it: the packed weights are the revision"
_READABLE = (
    "remove it: the engine listens inside the container only, and a key would be readable in the image"
)
_REMOTE_CODE = "use `trust_remote_code`, with the revision whose code you have read"
OWNED: dict[str, str] = {
    "model": "use `model`",
    "model_tag": "use `model`",
    "max_model_len": "use `context`",
    "max_seq_len": "use `context`",
    "tensor_parallel_size": "use `hardware`, such as h100:2",
    "chat_template": "use `prompt.template`",
    "reasoning_parser": "use `reasoning.parser`",
    "served_model_name": _RUNTIME,
    "host": _RUNTIME,
    "port": _RUNTIME,
    "uds": _RUNTIME,
    "root_path": _RUNTIME,
    "middleware": _RUNTIME,
    "allowed_origins": _RUNTIME,
    "config": "write its arguments here instead: a file of arguments would win over the checked ones",
    "api_key": _READABLE,
    "hf_token": "remove it: the weights are packed, and a token would be readable in the image",
    "trust_remote_code": _REMOTE_CODE,
    "trust_request_chat_template": "remove it: a request's own template is code that a stranger sends",
    "revision": _PACKED,
    "code_revision": _PACKED,
    "tokenizer_revision": _PACKED,
    "download_dir": "remove it: the weights are packed, nothing is downloaded",
    "extra_llm_api_options": "write its settings here instead: they are rendered into that file",
    "backend": "remove it: it is the PyTorch one",
    "num_postprocess_workers": "remove it: with them chunks arrive without text",
}
# Must keep the value that the build gives it.
_NEVER_NULL = ("guided_decoding_backend",)


def builds_of(spec: Spec) -> list[Engine]:
    """The engine builds of a spec; none for a backend or a hardware that is a mistake."""
    if not isinstance(spec.document.data.get("hardware"), str):
        return []  # the spec then holds a stand-in
    try:
        cpu = spec.machine.gpu is None
    except HardwareError:
        return []
    found = [engine_for(backend, cpu=cpu) for backend in written_backends(spec)]
    return [engine for engine in found if engine is not None]


def written_backends(spec: Spec) -> list[str]:
    """The known backends in the file."""
    written = spec.document.data.get("backend")
    listed = written if isinstance(written, list) else [written]
    return [backend for backend in dict.fromkeys(map(str, listed)) if backend in BACKENDS]


def arguments_of(spec: Spec, backend: str) -> dict[str, Any]:
    """The engine arguments of a spec for one of its backends."""
    own = spec.engine.get(backend)
    flat = {key: value for key, value in spec.engine.items() if key not in BACKENDS}
    return {**flat, **(own if isinstance(own, Mapping) else {})}


def engine_mistakes(spec: Spec, engine: Engine | None = None) -> Iterator[Mistake]:
    """What is wrong below `engine`.

    Args:
        spec: what the user wrote.
        engine: the build that must take the arguments; None: the spec's own.
    """
    builds = [engine] if engine else builds_of(spec)
    if len(spec.backends) > 1:
        yield from _unassigned(spec)
    elif builds:
        yield from _argument_mistakes(spec, builds[0], "engine", _flat(spec))
    else:
        yield from _argument_mistakes(spec, None, "engine", _flat(spec))
    for backend in BACKENDS:
        own = spec.engine.get(backend)
        field = dotted(("engine", backend))
        if isinstance(own, Mapping):
            # Also where the spec names another backend now: `backend` is then a change of one line.
            build = next((row for row in builds if row.backend == backend), None) or engine_for(
                backend, cpu=False
            )
            yield from _argument_mistakes(spec, build, field, own)
        elif backend in spec.engine:
            yield spec.mistake(
                field, f"is {show(own)}, must be a mapping", "write its arguments below it, indented"
            )


def _flat(spec: Spec) -> dict[str, Any]:
    return {key: value for key, value in spec.engine.items() if key not in BACKENDS}


def _unassigned(spec: Spec) -> Iterator[Mistake]:
    for key in _flat(spec):
        yield spec.mistake(
            dotted(("engine", key)),
            "is of no backend",
            f"write it below engine.{spec.backends[0]} or the other one",
        )


def _argument_mistakes(
    spec: Spec, engine: Engine | None, around: str, arguments: Mapping[str, Any]
) -> Iterator[Mistake]:
    found = [
        spec.mistake(f"{around}.{dotted((key,))}", *problem)
        for key, value in arguments.items()
        for problem in _problems(engine, key, value)
    ]
    yield from found
    if engine and f"{around}.{engine.names.sequences}" not in {mistake.field for mistake in found}:
        yield from _sequence_mistakes(spec, engine, around, arguments)


def _problems(engine: Engine | None, key: str, value: Any) -> Iterator[tuple[str, str]]:
    plain = key.lstrip("-").replace("-", "_")
    if plain in OWNED or plain.startswith("ssl_"):
        yield "cannot be set here", OWNED.get(plain, _RUNTIME)
    elif plain != key:
        yield "is not in snake_case", f"write {plain}"
    elif not re.fullmatch(r"[a-z][a-z0-9_]*", key):
        yield "is no name of an engine argument", "write it in snake_case, such as max_num_seqs"
    elif engine is not None:
        yield from _build_problems(engine, key, value)


def _build_problems(engine: Engine, key: str, value: Any) -> Iterator[tuple[str, str]]:
    hint = engine.unknown(key)
    if hint:
        yield f"is no argument of {engine.name} {engine.version}", hint
    elif value is None and (engine.config is None or key in _NEVER_NULL):
        yield "has no value", "give it one, or remove it"
    elif value is not None:
        for name, message, advice in engine.problems(key, value):
            inner = name.removeprefix(key).lstrip(".")
            yield f"{inner} {message}" if inner else message, advice


def _sequence_mistakes(
    spec: Spec, engine: Engine, around: str, arguments: Mapping[str, Any]
) -> Iterator[Mistake]:
    most = arguments.get(engine.names.sequences)
    if spec.concurrency is None or most is None or most >= spec.concurrency:
        return
    message = f"is {most}, must be >= concurrency ({spec.concurrency})"
    hint = f"raise it to {spec.concurrency} or remove it"
    yield spec.mistake(f"{around}.{engine.names.sequences}", message, hint)
