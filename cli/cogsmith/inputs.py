"""The inputs of a prediction: the table of built-in ones, and the rule for what value an input takes.

The rendered signature, the API schema and the spec's checks all read this one table.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Type = Literal["string", "integer", "number", "boolean"]
Value = str | int | float | bool

STOP_LIMIT = 4


@dataclass(frozen=True)
class Input:
    """One input as the API shows it.

    Attributes:
        name: its name in the API, in predict.py and in a prompt template.
        type: string, integer, number or boolean.
        description: one line.
        required: a request must give it. If not required and `default` is None, leaving it out means: the value that
            the spec's `sampling` or the checkpoint says, or none.
        default: the value where a request gives none.
        ge, le: limits of a number, inclusive.
        min_length, max_length: limits of a text, in characters.
        regex: what a text must match somewhere, as `re.search` does.
        choices: the only values it takes; empty where any is taken.
        builtin: it is one of `BUILTINS`, and so a part of the chat or of the sampling.
    """

    name: str
    type: Type
    description: str
    required: bool = False
    default: Value | None = None
    ge: int | float | None = None
    le: int | float | None = None
    min_length: int | None = None
    max_length: int | None = None
    regex: str | None = None
    choices: tuple[Value, ...] = ()
    builtin: bool = False


def _builtin(
    name: str,
    kind: Type,
    description: str,
    ge: float | None = None,
    le: float | None = None,
) -> Input:
    return Input(name, kind, description, ge=ge, le=le, builtin=True)


# Limits are the engine's own. It takes top_p and repetition_penalty above 0 only; an API schema made from a Python
# signature has no exclusive limit, so they start at 0.001. The seed fits in 32 bits because some clients send no more.
BUILTINS: tuple[Input, ...] = (
    _builtin("prompt", "string", "The user's message to the model."),
    _builtin("system_prompt", "string", "Instructions that the model follows through the whole answer."),
    _builtin(
        "messages",
        "string",
        'A conversation instead of `prompt`, as a JSON list such as [{"role": "user", "content": "Hello"}].',
    ),
    _builtin("max_tokens", "integer", "The most tokens to generate.", ge=1),
    _builtin("min_tokens", "integer", "The fewest tokens to generate before the model may stop.", ge=0),
    _builtin("temperature", "number", "Randomness: 0 takes the likeliest token each time.", ge=0.0, le=2.0),
    _builtin(
        "top_p",
        "number",
        "Choose among the likeliest tokens that together have this probability.",
        ge=0.001,
        le=1.0,
    ),
    _builtin(
        "top_k", "integer", "Choose among this many of the likeliest tokens. 0 means all.", ge=0, le=1_000_000
    ),
    _builtin("presence_penalty", "number", "Above 0: favour tokens that were not used yet.", ge=-2.0, le=2.0),
    _builtin(
        "frequency_penalty",
        "number",
        "Above 0: favour tokens in proportion to how rarely they were used.",
        ge=-2.0,
        le=2.0,
    ),
    _builtin(
        "repetition_penalty",
        "number",
        "Above 1: discourage tokens of the prompt and of the answer so far.",
        ge=0.001,
        le=10.0,
    ),
    _builtin(
        "stop", "string", 'Texts that end the answer, as a JSON list such as ["END", "###"], at most 4.'
    ),
    _builtin(
        "seed", "integer", "Repeats an answer. Left out, each answer is a new one.", ge=0, le=4_294_967_295
    ),
    _builtin("json_schema", "string", "The answer is JSON that obeys this JSON Schema, given as text."),
    _builtin("regex", "string", "The answer matches this regular expression as a whole."),
    _builtin("choices", "string", 'The answer is one of these texts, as a JSON list such as ["yes", "no"].'),
)
BY_NAME: dict[str, Input] = {entry.name: entry for entry in BUILTINS}
CHAT = ("prompt", "system_prompt", "messages")
# Inputs only where a spec names them: whoever sends one has the engine compile it.
CONSTRAINTS = ("json_schema", "regex", "choices")
SAMPLING: tuple[str, ...] = tuple(entry.name for entry in BUILTINS if entry.type in {"integer", "number"})

_WANTED: dict[str, str] = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def problem(entry: Input, value: Any) -> str | None:
    """Why `value` cannot be given to the input, as the end of a sentence (`must be <= 2`); None where it can."""
    if not has_type(entry.type, value):
        return f"must be {_WANTED[entry.type]}"
    if entry.choices and value not in entry.choices:
        return (
            f"must be one of {', '.join(json.dumps(choice, ensure_ascii=False) for choice in entry.choices)}"
        )
    if isinstance(value, str):
        return _text_problem(entry, value)
    if entry.ge is not None and value < entry.ge:
        return f"must be >= {entry.ge}"
    if entry.le is not None and value > entry.le:
        return f"must be <= {entry.le}"
    return None


def has_type(kind: Type, value: Any) -> bool:
    """Whether the value is of that type; a whole number is a number too, a boolean is neither."""
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int)
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _text_problem(entry: Input, text: str) -> str | None:
    if entry.min_length is not None and len(text) < entry.min_length:
        return f"must have at least {entry.min_length} characters"
    if entry.max_length is not None and len(text) > entry.max_length:
        return f"must have at most {entry.max_length} characters"
    if entry.regex is not None and not re.search(entry.regex, text):
        return f"must match {entry.regex}"
    check = _CHECKS.get(entry.name) if entry.builtin else None
    return check(text) if check else None


def _stop_problem(text: str) -> str | None:
    stops = _json(text)
    if (
        isinstance(stops, list)
        and len(stops) <= STOP_LIMIT
        and all(isinstance(stop, str) and stop for stop in stops)
    ):
        return None
    return f"must be a JSON list of at most {STOP_LIMIT} texts, none empty"


def _messages_problem(text: str) -> str | None:
    messages = _json(text)
    if isinstance(messages, list) and messages and all(isinstance(message, dict) for message in messages):
        return None
    return 'must be a JSON list such as [{"role": "user", "content": "Hello"}]'


def _schema_problem(text: str) -> str | None:
    fits = not text or isinstance(_json(text), dict)
    return None if fits else 'must be a JSON Schema as text, such as {"type": "object"}'


def _regex_problem(text: str) -> str | None:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return "must be a regular expression"
    return None


def _choices_problem(text: str) -> str | None:
    texts = _json(text) if text else ["any"]
    if isinstance(texts, list) and texts and all(isinstance(choice, str) and choice for choice in texts):
        return None
    return 'must be a JSON list of texts such as ["yes", "no"], none empty'


_CHECKS: dict[str, Callable[[str], str | None]] = {
    "stop": _stop_problem,
    "messages": _messages_problem,
    "json_schema": _schema_problem,
    "regex": _regex_problem,
    "choices": _choices_problem,
}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
