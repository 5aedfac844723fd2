"""The spec's fields as a JSON Schema, which editors read, and as the README's table. Both are made from spec.py alone."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from cogsmith.engines import BACKENDS
from cogsmith.spec import Spec
from cogsmith.spec_fields import Part

FILE = "spec.schema.json"
# Shown as one row each: what is below them depends on the model.
_WHOLE = ("inputs", "tests")


def schema_text() -> str:
    """The content of models/spec.schema.json."""
    schema = Spec.model_json_schema(by_alias=True)
    for part in (schema, *schema["$defs"].values()):
        _finish(part)
    # `temperature:` alone takes the built-in input as it is.
    inputs = schema["properties"]["inputs"]["anyOf"][0]
    inputs["additionalProperties"] = {"anyOf": [inputs["additionalProperties"], {"type": "null"}]}
    backend = schema["properties"]["backend"]
    names = {"type": "string", "enum": list(BACKENDS)}
    backend["anyOf"] = [names, {"type": "array", "items": names, "minItems": 1}]
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "A model of cogsmith"}
    return json.dumps({**schema, **head}, indent=1, ensure_ascii=False) + "\n"


def fields() -> Iterator[tuple[str, str, str]]:
    """(dotted name, default in words, description) of every field, in the order of spec.py."""
    yield from _fields(Spec, "")


def table() -> str:
    """The README's table of fields, in Markdown."""
    rows = [f"| `{name}` | {default} | {text} |".replace("\n", " ") for name, default, text in fields()]
    return "\n".join(("| field | default | meaning |", "|---|---|---|", *rows)) + "\n"


def _fields(part: type[Part], around: str) -> Iterator[tuple[str, str, str]]:
    for name, field in part.model_fields.items():
        shown = around + (field.alias or name)
        inner = _part_of(field)
        if inner is None or shown in _WHOLE:
            # Below a mapping that may be left out, "required" holds only where it is there.
            need = f"required in `{around[:-1]}`" if around and field.is_required() else _default(field)
            yield shown, need, (field.description or "").replace("|", "\\|")
        else:
            yield from _fields(inner, shown + ".")


def _part_of(field: FieldInfo) -> type[Part] | None:
    """The mapping that a field is, also where it may be left out."""
    annotation = field.annotation
    options = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    found = [kind for kind in options if isinstance(kind, type) and issubclass(kind, Part)]
    return found[0] if found else None


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    extra = field.json_schema_extra
    words = extra.get("x-default") if isinstance(extra, dict) else None
    return str(words) if words else f"`{_plain(field.default)}`"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _finish(part: dict[str, Any]) -> None:
    """Bring one mapping of pydantic's schema to what an editor shows, and to what the reader of a spec takes."""
    part.pop("title", None)
    for name, field in part.get("properties", {}).items():
        field.pop("title", None)
        words = field.pop("x-default", None)
        if words:
            field["description"] += f" (default: {words})"
            field.pop("default", None)
        if name not in part.get("required", ()):
            _allow_nothing(field)


def _allow_nothing(field: dict[str, Any]) -> None:
    """A key with nothing after its colon counts as absent."""
    kinds = {key: field.pop(key) for key in list(field) if key not in ("description", "examples", "default")}
    if not kinds or kinds == {"anyOf": []}:
        return
    options = kinds["anyOf"] if set(kinds) == {"anyOf"} else [kinds]
    if {"type": "null"} not in options:
        options = [*options, {"type": "null"}]
    field["anyOf"] = options
