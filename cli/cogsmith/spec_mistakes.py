"""What pydantic found wrong with a spec, as lines that a person can act on."""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cogsmith.errors import Mistake
from cogsmith.yamlfile import Document, dotted

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Stand in for a required field that is wrong, so that the other fields can still be checked.
STAND_INS: dict[str, str] = {"model": "model", "backend": "vllm", "hardware": "cpu"}

SECRET_VALUE = re.compile(
    r"\b(hf_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{12,}|gh[pousr]_[A-Za-z0-9]{20,})"
)

_MISSING = {
    "model": "name a folder, a .gguf file or hf://owner/repo, such as `model: checkpoints/my-model`",
    "backend": "add `backend: vllm` or `backend: tensorrt-llm`",
    "hardware": "add for example `hardware: l40s` or `hardware: cpu`",
    "input": "add the input of the prediction, such as `input: {prompt: Hello}`",
}
_ELSEWHERE = {
    "name": "the file's name is the model's name",
    "max_model_len": "that is `context`",
    "max_num_seqs": "write it below `engine`",
    "tensor_parallel_size": "that is the number in `hardware`, such as h100:2",
    "gpu": "that is `hardware`",
    "env": "that is `environment`",
    "engine_args": "that is `engine`",
    "chat_template": "that is `prompt.template`",
    "system_prompt": "that is `prompt.system`",
    "reasoning_parser": "that is `reasoning.parser`",
    "json_schema": "that is `output.schema`",
    "chat_template_kwargs": "that is `prompt.chat_template_kwargs`",
}
_SAMPLING_KEYS = ("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "seed", "repetition_penalty")
_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": "a mapping (`key: value` lines)",
    "model_type": "a mapping (`key: value` lines)",
    "model_attributes_type": "a mapping (`key: value` lines)",
    "tuple_type": "a list",
    "list_type": "a list",
}


class Found:
    """The mistakes so far. A later check adds none for a field that an earlier one found wrong: one cause, one line."""

    def __init__(self, document: Document) -> None:
        self.mistakes: list[Mistake] = list(document.mistakes)

    def add(self, mistakes: Iterable[Mistake]) -> None:
        told = {mistake.field for mistake in self.mistakes if mistake.field}
        self.mistakes += [mistake for mistake in mistakes if mistake.field not in told]


def show(value: Any) -> str:
    """A value as a message may name it: on one line, short, and without anything that looks like a credential."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, str):
        value = SECRET_VALUE.sub(lambda found: found.group()[:3] + "…", value)
        value = value if len(value) <= 60 else value[:57] + "…"
    return json.dumps(value, ensure_ascii=False)


def suggest(word: str, known: Sequence[str], allowed: str = "known") -> str:
    """The hint for a word that is none of the known ones."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {dotted((near[0],))}?"
    return f"{allowed}: {', '.join(dotted((name,)) for name in known)}"


def type_mistakes(document: Document, errors: Iterable[ErrorDetails], top: type[BaseModel]) -> list[Mistake]:
    """One mistake for each of pydantic's errors."""
    mistakes = []
    errors = list(errors)
    misspelled = {_meant(error, top) for error in errors if error["type"] == "extra_forbidden"}
    for error in errors:
        if error["type"] == "missing" and error["loc"] in misspelled:
            continue  # the misspelled key has its own line
        parts = tuple(part for part in error["loc"] if part != "[key]")
        field = dotted(parts)
        message, hint = _told(error, parts, top)
        mistakes.append(Mistake(document.path, document.line(field), field, message, hint))
    return mistakes


def _meant(error: ErrorDetails, top: type[BaseModel]) -> tuple[str | int, ...] | None:
    """The key that an unknown one was probably meant to be."""
    *parts, key = error["loc"]
    near = difflib.get_close_matches(str(key), _keys(top, tuple(parts)), n=1, cutoff=0.6)
    return (*parts, near[0]) if near else None


def prune(data: Mapping[str, Any], errors: Iterable[ErrorDetails]) -> dict[str, Any]:
    """The data without what is wrong in it. A list loses as a whole, so that the other items keep their places."""
    kept: dict[str, Any] = copy.deepcopy(dict(data))
    for error in errors:
        parts = [part for part in error["loc"] if part != "[key]"]
        if error["type"] == "missing":
            parts.pop()
        while parts and isinstance(parts[-1], int):
            parts.pop()
        if parts:
            _remove(kept, parts)
    for name, value in STAND_INS.items():
        if kept.get(name) is None:
            kept[name] = value
    return kept


def _remove(data: Any, parts: Sequence[str | int]) -> None:
    for part in parts[:-1]:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return  # it went with an earlier error
    if isinstance(data, dict):
        data.pop(parts[-1], None)


def _told(error: ErrorDetails, parts: tuple[str | int, ...], top: type[BaseModel]) -> tuple[str, str]:
    kind = error["type"]
    value = error.get("input")
    if kind == "missing":
        return "is missing", _MISSING.get(str(parts[-1]), "add it")
    if kind == "extra_forbidden":
        return "is not a known key", _unknown_key(str(parts[-1]), _keys(top, parts[:-1]))
    if kind == "literal_error":
        choices = [str(choice) for choice in _literals(error)]
        return f"is {show(value)}, must be one of {', '.join(choices)}", suggest(str(value), choices)
    if kind in _WANTED:
        shown = "has no value" if value is None else f"is {_shown(value, parts)}"
        wanted = "text" if parts == ("backend",) else _WANTED[kind]
        return f"{shown}, must be {wanted}", _type_hint(kind, value, parts)
    return _limit(error, value)


def _shown(value: Any, parts: tuple[str | int, ...]) -> str:
    if parts[0] == "environment" and not isinstance(value, bool | dict | list):
        return "a value without quotes"  # it may be a credential
    return show(value)


def _limit(error: ErrorDetails, value: Any) -> tuple[str, str]:
    context = error.get("ctx", {})
    for key, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
        if key in context:
            change = "raise" if key.startswith("g") else "lower"
            return f"is {show(value)}, must be {sign} {context[key]:g}", f"{change} it, or remove it"
    return " ".join(error["msg"].lower().split()), "see the README's table of fields"


def _type_hint(kind: str, value: Any, parts: tuple[str | int, ...]) -> str:
    if parts == ("backend",):
        return "write vllm or tensorrt-llm, or a list of both"
    if parts == ("cog",):
        return 'write all three numbers in quotes, such as "0.23.1"'
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if (
        kind.startswith(("int", "float"))
        and isinstance(value, str)
        and re.fullmatch(r"\s*-?[\d.]+\s*", value)
    ):
        return "remove the quotes"
    if kind in {"tuple_type", "list_type"}:
        return "write each item on its own line after a dash"
    if kind in {"dict_type", "model_type", "model_attributes_type"}:
        return "write its keys on the lines below it, indented"
    return f"write {_WANTED[kind]}"


def _unknown_key(key: str, known: Sequence[str]) -> str:
    if key in _ELSEWHERE and "backend" in known:
        return _ELSEWHERE[key]
    if key in _SAMPLING_KEYS and "sampling" in known:
        return "write it below `sampling`"
    if key == "stop" and "top_p" in known:
        return "`stop` is a field of its own"
    return suggest(key, known, "keys here")


def _literals(error: ErrorDetails) -> list[str]:
    return re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))


def _keys(top: type[BaseModel], parts: tuple[str | int, ...]) -> list[str]:
    """The keys that the mapping at that place takes."""
    model = top
    for part in parts:
        fields = _by_key(model)
        if isinstance(part, str) and part in fields:
            model = _model_in(fields[part].annotation) or model
    return list(_by_key(model))


def _by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields under the keys that a file has for them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _model_in(inner)
        if found is not None:
            return found
    return None
