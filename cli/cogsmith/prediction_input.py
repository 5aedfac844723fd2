"""A prediction's input from the command line: -i key=value, or one JSON object. Checked before anything is started."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cogsmith.errors import UserError
from cogsmith.inputs import Input, problem


def from_pairs(pairs: Sequence[str], inputs: Sequence[Input]) -> dict[str, Any]:
    """Inputs from `key=value`, each value read as its input's type. Text is taken as it is, a leading @ or quote too.

    Raises:
        UserError: a pair without `=`, a name given twice, an unknown input, or a value that the input does not take.
    """
    known = {entry.name: entry for entry in inputs}
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(f"-i {pair!r} has no `=`", "write -i name=value")
        if name in given:
            raise UserError(f"-i {name} is given twice")
        given[name] = _read(known[name], text) if name in known else text
    return checked(given, inputs)


def from_json(argument: str, inputs: Sequence[Input]) -> dict[str, Any]:
    """Inputs from a JSON object: the text itself, `@FILE`, or `@-` (or `-`) for standard input.

    Raises:
        UserError: the file cannot be read, it is no JSON object, or an input is unknown or refused.
    """
    try:
        if argument in {"-", "@-"}:
            text = sys.stdin.buffer.read().decode()
        elif argument.startswith("@"):
            text = Path(argument[1:]).read_bytes().decode()
        else:
            text = argument
        given = json.loads(text)
    except OSError as error:
        raise UserError(f"--json {argument}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(
            f"--json is not JSON: {error}", 'give an object such as {"prompt": "Hello"}'
        ) from error
    if not isinstance(given, dict):
        raise UserError(
            f"--json is {type(given).__name__}, not an object", 'give an object such as {"prompt": "Hello"}'
        )
    return checked(given, inputs)


def checked(given: Mapping[str, Any], inputs: Sequence[Input]) -> dict[str, Any]:
    """The same inputs, where every one is known and takes its value and none that is required is missing.

    Cog's server drops unknown inputs in silence, so they are refused here.

    Raises:
        UserError: with every problem.
    """
    known = {entry.name: entry for entry in inputs}
    problems = []
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            problems.append(f"{name}: no such input" + (f", did you mean {near[0]}?" if near else ""))
            continue
        rule = problem(known[name], value)
        if rule:
            problems.append(f"{name}: {rule}, is {_shown(value)}")
    problems += [
        f"{entry.name}: is required" for entry in inputs if entry.required and entry.name not in given
    ]
    if problems:
        raise UserError("; ".join(problems), f"the inputs are {', '.join(known)}")
    return dict(given)


def _read(entry: Input, text: str) -> Any:
    if entry.type == "string":
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    # A whole number written as 1.0 or 1e3 is still one.
    return (
        int(value) if entry.type == "integer" and isinstance(value, float) and value.is_integer() else value
    )


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
