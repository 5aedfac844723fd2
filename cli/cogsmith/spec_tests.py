"""The `tests` of a spec: their inputs must be ones that the model takes, and each must expect something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cogsmith import inputs
from cogsmith.errors import Mistake
from cogsmith.spec_inputs import resolve_inputs, written_inputs
from cogsmith.spec_mistakes import show, suggest
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec
    from cogsmith.spec_fields import CaseSpec

_EXPECTATIONS = ("contains", "regex", "json_schema", "max_seconds", "min_tokens")


def case_mistakes(spec: Spec) -> Iterator[Mistake]:
    names: set[str] = set()
    for index, case in enumerate(spec.tests):
        field = f"tests[{index}]"
        if case.name is not None and case.name in names:
            yield spec.mistake(
                f"{field}.name", f"is {show(case.name)}, which is taken", "give each test its own name"
            )
        names.add(case.name or "")
        yield from _expectation_mistakes(spec, field, case, spec.document.data["tests"][index])
        yield from _input_mistakes(spec, f"{field}.input", case)


def _expectation_mistakes(spec: Spec, field: str, case: CaseSpec, written: Any) -> Iterator[Mistake]:
    if not any(key in written for key in _EXPECTATIONS):
        yield spec.mistake(field, "expects nothing", f"add one of {', '.join(_EXPECTATIONS)}")
    if "contains" in case.model_fields_set and not all(case.contains or [""]):
        yield spec.mistake(f"{field}.contains", "holds an empty text", "every answer contains it: remove it")
    if case.regex is not None:
        problem = regex_problem(case.regex)
        if problem:
            yield spec.mistake(f"{field}.regex", problem, "it is a Python regular expression")


def regex_problem(text: str) -> str | None:
    """Why the text is no regular expression, or None."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression ({' '.join(str(error).split())[:120]})"
    return None


def _input_mistakes(spec: Spec, field: str, case: CaseSpec) -> Iterator[Mistake]:
    known = {entry.name: entry for entry in resolve_inputs(spec)}
    for name, value in case.input.items():
        entry = known.get(name)
        if entry is None:
            if name not in written_inputs(spec):
                yield spec.mistake(
                    f"{field}.{dotted((name,))}",
                    "is no input of this model",
                    suggest(name, list(known), "inputs"),
                )
            continue
        problem = inputs.problem(entry, value)
        if problem:
            yield spec.mistake(f"{field}.{dotted((name,))}", f"is {show(value)}, {problem}", "change it")
    for name, entry in known.items():
        if entry.required and name not in case.input:
            yield spec.mistake(field, f"lacks {dotted((name,))}, which has no default", "add it")
    chat = [name for name in ("prompt", "messages") if name in known]
    if len(chat) == 2 and spec.prompt.template is None and set(case.input) <= set(known):
        given = [name for name in chat if name in case.input]
        if len(given) != 1:
            yield spec.mistake(field, "must hold one of prompt and messages", "add one, or remove one")
