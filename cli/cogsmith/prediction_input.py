"""A prediction's input from the command line: -i key=value, or one JSON object. Checked before anything is started."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cogsmith.errors import SeveralError, UserError
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
        given = json.loads(text, object_pairs_hook=_object)
    except OSError as error:
        raise UserError(f"--json {argument}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"--json is not JSON: {error}", 'give an object such as {"prompt": "Hello"}'
        ) from error
    if not isinstance(given, dict):
        raise UserError(
            f"--json is {type(given).__name__}, not an object", 'give an object such as {"prompt": "Hello"}'
        )
    return checked(given, inputs)


def checked(given: Mapping[str, Any], inputs: Sequence[Input]) -> dict[str, Any]:
    """The same inputs, where every one is known and takes its value and none that is needed is missing.

    Cog's server drops unknown inputs in silence, so they are refused here.

    Raises:
        SeveralError: with every problem.
    """
    known = {entry.name: entry for entry in inputs}
    given = {name: _whole(known[name], value) if name in known else value for name, value in given.items()}
    found = [_error(name, value, known) for name, value in given.items()]
    missing = [entry.name for entry in inputs if entry.required and entry.name not in given]
    found += [UserError(f"{name}: is required") for name in missing]
    found.append(None if missing else _prompt_error(given, known))
    errors = [error for error in found if error is not None]
    if errors:
        raise SeveralError(errors)
    return given


def _error(name: str, value: Any, known: Mapping[str, Input]) -> UserError | None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the inputs are {', '.join(known)}"
        return UserError(f"{name or 'an empty name'}: no such input", hint)
    rule = problem(known[name], value)
    if rule is not None:
        return UserError(f"{name}: {rule}, is {_shown(value)}")
    try:
        str(value).encode()
    except UnicodeEncodeError:
        return UserError(
            f"{name}: holds bytes that are no UTF-8, or half of a surrogate pair", "give valid Unicode text"
        )
    return None


def _prompt_error(given: Mapping[str, Any], known: Mapping[str, Input]) -> UserError | None:
    """The rule about prompt and messages, which the container would tell only once it runs."""
    names = [name for name in ("prompt", "messages") if name in known and known[name].builtin]
    texts = [str(given.get(name, known[name].default or "")).strip() for name in names]
    if len(names) == 2 and all(texts):
        return UserError("prompt and messages are both given", "give one of them")
    if names and not any(texts):
        return UserError(f"there is no {' and no '.join(names)}", f"write -i {names[0]}=…")
    return None


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is there twice")
    return dict(pairs)


def _whole(entry: Input, value: Any) -> Any:
    """A whole number written as 1.0 or 1e3 is still one."""
    whole = entry.type == "integer" and isinstance(value, float) and value.is_integer()
    return int(value) if whole else value


def _read(entry: Input, text: str) -> Any:
    if entry.type == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
