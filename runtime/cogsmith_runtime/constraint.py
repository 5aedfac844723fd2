"""What an answer must be: by the settings, or by a request, whose schema or expression a stranger wrote.

Each has the engine build a grammar, which takes time and memory. So what a request sends is limited in size, and what no
engine can enforce is refused: some would answer with an error of their compiler, some would ignore it with a 200.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import errors
from .settings import OutputSettings

NAMES = ("json_schema", "regex", "choices")
SCHEMA_LIMIT = 16_000
REGEX_LIMIT = 1_000
CHOICES_LIMIT = 100
CHOICE_LENGTH = 500
DEPTH_LIMIT = 32
# Of `{n}` in a regular expression, nested ones multiplied: each repetition is a state of the grammar.
REPEAT_LIMIT = 2_000

_UNSUPPORTED = re.compile(r"\(\?(?:[=!]|<[=!]|P=)|(?<!\\)(?:\\\\)*\\[1-9]")
_REPEAT = re.compile(r"(?<!\\)\{(\d+)(?:,(\d*))?\}")


@dataclass(frozen=True, slots=True)
class Constraint:
    """kind: `json`, `regex` or `choice`. value: a JSON Schema (None: any object), an expression, or a list of texts."""

    kind: str
    value: Any


def constraint(inputs: Mapping[str, object], output: OutputSettings) -> Constraint | None:
    """The one that holds for a request, or None. InputError: E1002, E1003 or E1010."""
    if output.kind != "text":
        value = {"json": output.schema, "regex": output.regex, "choice": list(output.choices)}[output.kind]
        return Constraint(output.kind, value)
    given = [name for name in NAMES if inputs.get(name) not in (None, "")]
    if not given:
        return None
    if len(given) > 1:
        raise errors.conflicting_inputs(f"{' and '.join(given)} are given.", "Send one of them.")
    [name] = given
    text = inputs[name]
    if not isinstance(text, str):
        raise errors.malformed_input(f"{name} must be text, is {type(text).__name__}.")
    if name == "json_schema":
        return Constraint("json", _schema(text))
    return Constraint("regex", _regex(text)) if name == "regex" else Constraint("choice", _choices(text))


def _schema(text: str) -> dict[str, Any]:
    if len(text) > SCHEMA_LIMIT:
        raise errors.too_large("json_schema", len(text), SCHEMA_LIMIT)
    schema = _json("json_schema", text)
    if not isinstance(schema, dict):
        raise errors.malformed_input("json_schema must be a JSON object.")
    for key, value, depth in _walk(schema):
        if depth > DEPTH_LIMIT:
            raise errors.too_large("json_schema", depth, DEPTH_LIMIT, "levels")
        problem = _key_problem(key, value)
        if problem:
            raise errors.malformed_input(f"json_schema: {key} {problem}.")
    return schema


_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


def _key_problem(key: str, value: Any) -> str | None:
    types = value if isinstance(value, list) else [value]
    if key == "type" and not isinstance(value, dict) and not all(kind in _TYPES for kind in types):
        return f"is {json.dumps(value):.60}, must be one of {', '.join(_TYPES)}"
    if key == "$ref" and isinstance(value, str) and not value.startswith("#"):
        return "must begin with #: nothing is fetched"
    if key == "uniqueItems" and value is True:
        return "cannot be enforced"
    if key == "enum" and value == []:
        return "is empty: nothing satisfies it"
    if key == "pattern" and isinstance(value, str):
        _regex(value, "the pattern in json_schema")
    return None


def _walk(value: Any, depth: int = 1) -> Iterator[tuple[str, Any, int]]:
    """(key, value, level) of every mapping inside, values of data (`enum`, `const`) left out."""
    if depth > DEPTH_LIMIT + 1:
        return
    if isinstance(value, list):
        for inner in value:
            yield from _walk(inner, depth + 1)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner, depth
            if key == "properties" and isinstance(inner, dict):
                # A property may have the name of a keyword.
                for schema in inner.values():
                    yield from _walk(schema, depth + 2)
            elif key not in ("enum", "const", "default", "examples"):
                yield from _walk(inner, depth + 1)


def _regex(text: str, where: str = "regex") -> str:
    if len(text) > REGEX_LIMIT:
        raise errors.too_large(where, len(text), REGEX_LIMIT)
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise errors.malformed_input(f"{where} is no regular expression: {error}.") from None
    if _UNSUPPORTED.search(text):
        raise errors.malformed_input(
            f"{where} looks ahead, looks behind or refers back, which cannot be enforced.",
            "Write it without.",
        )
    repeats = 1
    for low, high in _REPEAT.findall(text):
        # Whether they are nested is not looked at: their product is never too small.
        repeats *= max(1, int(low), int(high or 0))
    if repeats > REPEAT_LIMIT:
        raise errors.too_large(where, repeats, REPEAT_LIMIT, "repetitions, multiplied,")
    return text


def _choices(text: str) -> list[str]:
    if len(text) > CHOICES_LIMIT * CHOICE_LENGTH:
        raise errors.too_large("choices", len(text), CHOICES_LIMIT * CHOICE_LENGTH)
    choices = _json("choices", text)
    if not isinstance(choices, list) or not choices:
        raise errors.malformed_input("choices must be a JSON list of texts.", 'Example: ["yes", "no"].')
    if len(choices) > CHOICES_LIMIT:
        raise errors.too_large("choices", len(choices), CHOICES_LIMIT, "entries")
    for index, choice in enumerate(choices):
        if not isinstance(choice, str) or not choice:
            raise errors.malformed_input(f"choices[{index}] must be a text that is not empty.")
        if len(choice) > CHOICE_LENGTH:
            raise errors.too_large(f"choices[{index}]", len(choice), CHOICE_LENGTH)
    return choices


def _json(name: str, text: str) -> Any:
    try:
        text.encode()
        return json.loads(text)
    except UnicodeEncodeError:
        raise errors.not_text(name) from None
    except (ValueError, RecursionError) as error:
        raise errors.malformed_input(f"{name} is not JSON: {error}.") from None
