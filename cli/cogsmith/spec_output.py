"""The `output` and `reasoning` of a spec: one constraint, complete, and one that its engines can enforce."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cogsmith.errors import Mistake
from cogsmith.inputs import CONSTRAINTS
from cogsmith.spec_engine import builds_of
from cogsmith.spec_mistakes import show, suggest
from cogsmith.spec_tests import regex_problem
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec

_KEY_OF = {"json": "schema", "regex": "regex", "choice": "choices"}
_SCHEMA_LIMIT = 64 * 1024
_CHOICES_LIMIT = 100
# vLLM 0.32 answered each of these with an error of its grammar compiler.
_UNSUPPORTED = re.compile(r"\(\?(?:[=!]|<[=!]|P=)|(?<!\\)(?:\\\\)*\\[1-9]")


def output_mistakes(spec: Spec) -> Iterator[Mistake]:
    yield from _key_mistakes(spec)
    if spec.output.json_schema is not None:
        yield from schema_mistakes(spec, "output.schema", spec.output.json_schema)
    problem = None if spec.output.regex is None else constraint_regex_problem(spec.output.regex)
    if problem:
        yield spec.mistake("output.regex", *problem)
    yield from _choices_mistakes(spec)
    yield from _request_mistakes(spec)
    yield from _reasoning_mistakes(spec)
    yield from _stop_id_mistakes(spec)


def _written(spec: Spec) -> dict[str, Any]:
    """What the file has below `output`."""
    written = spec.document.data.get("output")
    return (
        {key: value for key, value in written.items() if value is not None}
        if isinstance(written, dict)
        else {}
    )


def _key_mistakes(spec: Spec) -> Iterator[Mistake]:
    kind, keys = spec.output.type, _written(spec)
    for owner, key in _KEY_OF.items():
        if owner != kind and key in keys:
            hint = f"write type: {owner}, or remove it"
            yield spec.mistake(f"output.{key}", f"belongs to a {owner} answer, type is {kind}", hint)
    if kind in {"regex", "choice"} and _KEY_OF[kind] not in keys:
        message = f"lacks {_KEY_OF[kind]}, which a {kind} answer needs"
        yield spec.mistake("output", message, f"add {_KEY_OF[kind]}")


def _request_mistakes(spec: Spec) -> Iterator[Mistake]:
    for name in CONSTRAINTS:
        if spec.output.type != "text" and name in (spec.inputs or {}):
            message = f"lets a request constrain what output.type: {spec.output.type} has settled"
            yield spec.mistake(dotted(("inputs", name)), message, "remove one of the two")


def constraint_regex_problem(regex: str) -> tuple[str, str] | None:
    """(message, hint) where an engine could not enforce the regular expression."""
    if not regex:
        return "is empty", "write what the answer must match as a whole"
    problem = regex_problem(regex)
    if problem:
        return problem, "correct it"
    if _UNSUPPORTED.search(regex):
        return (
            "looks ahead, looks behind or refers back, which no engine can enforce",
            "write it without (?=…), (?!…), (?<…) and \\1",
        )
    return None


def schema_mistakes(spec: Spec, field: str, schema: dict[str, Any]) -> Iterator[Mistake]:
    """What keeps a JSON Schema from being enforced."""
    # Only a spec with a schema pays for the import.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        size = len(json.dumps(schema))
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = field + "".join(
            f".{part}" if isinstance(part, str) else f"[{part}]" for part in error.absolute_path
        )
        message = " ".join(error.message.split())[:120]
        yield spec.mistake(where, f"is no JSON Schema: {message}", "correct it; see json-schema.org")
        return
    except (TypeError, ValueError, RecursionError):
        yield spec.mistake(field, "is no JSON", "use only text, numbers, true, false, lists and mappings")
        return
    if size > _SCHEMA_LIMIT:
        yield spec.mistake(field, f"has {size} characters, must have at most {_SCHEMA_LIMIT}", "shorten it")
    for where, message, hint in _unsupported(schema, schema, field):
        yield spec.mistake(where, message, hint)


def _unsupported(schema: Any, top: dict[str, Any], field: str) -> Iterator[tuple[str, str, str]]:
    """(field, message, hint) of every key that a grammar cannot be made of."""
    if isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from _unsupported(inner, top, f"{field}[{index}]")
    elif isinstance(schema, dict):
        for key, value in schema.items():
            here = f"{field}.{dotted((key,))}"
            problem = _key_problem(key, value, top)
            if problem:
                yield here, *problem
            elif key not in {"enum", "const", "default", "examples"}:
                yield from _unsupported(value, top, here)


def _key_problem(key: str, value: Any, top: dict[str, Any]) -> tuple[str, str] | None:
    if key == "uniqueItems" and value is True:
        return "is not enforced by vLLM's grammars", "remove it"
    if key == "enum" and value == []:
        return "is empty: nothing satisfies it", "list the values"
    if key != "$ref" or not isinstance(value, str):
        return None
    if not value.startswith("#"):
        return f"is {show(value)}, must begin with #: nothing is fetched", "put the definition into $defs"
    return (
        None
        if _resolves(top, value)
        else (f"is {show(value)}, which is not in the schema", "add it to $defs")
    )


def _resolves(top: dict[str, Any], reference: str) -> bool:
    value: Any = top
    for part in reference.removeprefix("#").strip("/").split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if part:
            value = value.get(part) if isinstance(value, dict) else None
    return value is not None


def _choices_mistakes(spec: Spec) -> Iterator[Mistake]:
    choices = spec.output.choices
    if "choices" not in _written(spec):
        return
    if not 1 <= len(choices) <= _CHOICES_LIMIT:
        message = f"holds {len(choices)} texts, must hold 1 to {_CHOICES_LIMIT}"
        yield spec.mistake("output.choices", message, "list the texts that an answer may be")
    for index, choice in enumerate(choices):
        field = f"output.choices[{index}]"
        if not choice:
            yield spec.mistake(field, "is empty", "remove it")
        elif choice in choices[:index]:
            yield spec.mistake(field, f"is {show(choice)}, which is there already", "remove it")


def _reasoning_mistakes(spec: Spec) -> Iterator[Mistake]:
    if spec.reasoning is None:
        return
    for engine in builds_of(spec):
        known = engine.reasoning_parsers
        if known is not None and spec.reasoning.parser not in known:
            message = f"is {show(spec.reasoning.parser)}, which {engine.name} {engine.version} does not have"
            yield spec.mistake("reasoning.parser", message, suggest(spec.reasoning.parser, known))
            return


def _stop_id_mistakes(spec: Spec) -> Iterator[Mistake]:
    for index, token in enumerate(spec.stop_token_ids):
        if token < 0:
            yield spec.mistake(
                f"stop_token_ids[{index}]", f"is {token}, must be >= 0", "write the id of a token"
            )
