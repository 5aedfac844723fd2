"""The `inputs` and `prompt` of a spec: what a prediction takes, and what must hold for it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cogsmith import inputs
from cogsmith.errors import Mistake
from cogsmith.inputs import Input
from cogsmith.prompt_template import BadTemplateError, variables
from cogsmith.spec_mistakes import show, suggest
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec
    from cogsmith.spec_fields import InputSpec

# Names that predict.py or a template gives another meaning to.
RESERVED = frozenset(
    [
        "self",
        "weights",
        "cog",
        "Input",
        "Optional",
        "List",
        "Any",
        "Path",
        "Model",
        "Predictor",
        "BaseRunner",
        "ConcatenateIterator",
        "streaming",
        "concurrent",
        "str",
        "int",
        "float",
        "bool",
        "list",
        "dict",
        "tuple",
        "true",
        "false",
        "none",
        "range",
        "lipsum",
        "cycler",
        "joiner",
        "namespace",
        "loop",
        "caller",
        "varargs",
        "kwargs",
        "super",
    ]
)
_OVERRIDABLE = frozenset({"description", "default", "min", "max", "choices"})
_NUMBERS = frozenset({"integer", "number"})


def written_inputs(spec: Spec) -> frozenset[str]:
    """The names below `inputs` in the file, those with a mistake too."""
    written = spec.document.data.get("inputs")
    return frozenset(written) if isinstance(written, dict) else frozenset()


def resolve_inputs(spec: Spec) -> tuple[Input, ...]:
    """The inputs in order. Those of a spec with mistakes are as near as can be told."""
    if spec.inputs is None:
        entries = [entry for entry in inputs.BUILTINS if _usable(spec, entry)]
    else:
        entries = [_resolve(name, definition) for name, definition in spec.inputs.items()]
    names = {entry.name for entry in entries}
    return tuple(_completed(spec, entry, names) for entry in entries)


def _resolve(name: str, definition: InputSpec) -> Input:
    builtin = inputs.BY_NAME.get(name)
    limits = {
        "default": definition.default,
        "ge": definition.min if inputs.has_type("number", definition.min) else None,
        "le": definition.max if inputs.has_type("number", definition.max) else None,
        "choices": definition.choices,
        "description": definition.description,
    }
    given = {key: value for key, value in limits.items() if value is not None}
    if builtin is not None:
        return replace(builtin, **given)
    entry = Input(
        name,
        definition.type or "string",
        definition.description or "",
        required=definition.default is None,
        min_length=definition.min_length,
        max_length=definition.max_length,
        regex=definition.regex if definition.regex and _compiles(definition.regex) else None,
    )
    return replace(entry, **given)


def _completed(spec: Spec, entry: Input, names: set[str]) -> Input:
    """A default that `sampling` gives; and `required` for the one text without which there is no prompt."""
    written = spec.inputs.get(entry.name) if spec.inputs else None
    chosen = getattr(spec.sampling, entry.name, None)
    if entry.builtin and chosen is not None and (written is None or written.default is None):
        return replace(entry, default=chosen)
    alone = entry.name in {"prompt", "messages"} and not {"prompt", "messages"} <= names
    if entry.builtin and alone and entry.default is None:
        return replace(entry, required=True)
    return entry


def _compiles(regex: str) -> bool:
    try:
        re.compile(regex)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _usable(spec: Spec, entry: Input) -> bool:
    """Whether a built-in input is there without being named: it has an effect in this spec, and is harmless."""
    if entry.name in inputs.CONSTRAINTS:
        return False
    if spec.prompt.template is None or entry.name not in inputs.CHAT:
        return True
    return entry.name != "messages" and entry.name in _used(spec)


def _used(spec: Spec) -> frozenset[str]:
    """The names that the template uses: all of them where it is a mistake itself, which then is told once."""
    every = frozenset(inputs.CHAT) | written_inputs(spec)
    try:
        return variables(spec.prompt.template or "") or every
    except BadTemplateError:
        return every


def prompt_mistakes(spec: Spec) -> Iterator[Mistake]:
    template = spec.prompt.template
    if template is None:
        return
    field = "prompt.template"
    if not template.strip():
        yield spec.mistake(field, "is empty", "write the prompt with its inputs in it, or remove the key")
        return
    try:
        used = variables(template)
    except BadTemplateError as error:
        yield _at_line(spec, field, error)
        return
    known = written_inputs(spec) if spec.inputs is not None else frozenset(inputs.BY_NAME)
    if not used & known and used <= {"system_prompt"}:
        example = next(iter(spec.inputs or ()), "prompt")[:60]
        hint = f"write for example {{{{ {example} }}}} where it belongs"
        yield spec.mistake(field, "uses none of the inputs", hint)
    for name in sorted(used - known - {"system_prompt"}):
        hint = (
            suggest(name, sorted(known), "inputs")
            if spec.inputs is not None
            else f"add {name} to `inputs`, or correct it"
        )
        yield spec.mistake(field, f"uses {name[:60]}, which is no input", hint)
    yield from _foreign_names(spec, field, used)
    if "system_prompt" in used and "system_prompt" not in known and spec.prompt.system is None:
        yield spec.mistake(
            field, "uses system_prompt, which nothing gives", "add `prompt.system`, or the input"
        )
    if spec.prompt.system is not None and "system_prompt" not in used:
        hint = "write {{ system_prompt }} in the template, or remove `prompt.system`"
        yield spec.mistake("prompt.system", "is not used by prompt.template", hint)


def _foreign_names(spec: Spec, field: str, used: frozenset[str]) -> Iterator[Mistake]:
    """What belongs to a chat or to the engine, and not into a template."""
    if "messages" in used:
        yield spec.mistake(field, "uses messages, which only a chat without a template takes", "use prompt")
    for name in sorted(used & set(inputs.CONSTRAINTS)):
        hint = "it goes to the engine alone; give the text an input of its own"
        yield spec.mistake(field, f"uses {name}, which constrains the answer", hint)
    if spec.prompt.chat_template_kwargs:
        hint = "write the values into the template"
        yield spec.mistake("prompt.chat_template_kwargs", "is for the checkpoint's chat template", hint)


def _at_line(spec: Spec, field: str, error: BadTemplateError) -> Mistake:
    path, line = spec.at(field)
    first = spec.document.text_lines.get(field)
    if first is not None:
        line = first + error.line - 1
    hint = "correct the Jinja; text that only looks like it goes between {% raw %} and {% endraw %}"
    return Mistake(path, line, field, error.message, hint)


def input_mistakes(spec: Spec) -> Iterator[Mistake]:
    if spec.inputs is None:
        return
    for name, definition in spec.inputs.items():
        field = dotted(("inputs", name))
        problem = None if name in inputs.BY_NAME else _name_problem(name)
        if problem is None and name not in inputs.BY_NAME and definition.type is None:
            problem = _near_builtin(spec, name)
        if problem:
            yield spec.mistake(field, *problem)
            continue
        if name in inputs.BY_NAME:
            yield from _override_mistakes(spec, field, inputs.BY_NAME[name], definition)
        else:
            yield from _own_mistakes(spec, name, definition)
        yield from _value_mistakes(spec, field, _resolve(name, definition), definition)
        yield from _use_mistakes(spec, field, name)
    if spec.prompt.template is None and not {"prompt", "messages"} & written_inputs(spec):
        yield spec.mistake(
            "inputs", "holds neither prompt nor messages", "add one, or write a prompt.template"
        )


def _name_problem(name: str) -> tuple[str, str] | None:
    if not name.isascii() or not name.isidentifier() or name.startswith("_"):
        return "is no usable name", "use a-z, 0-9 and _, and begin with a letter"
    if keyword.iskeyword(name) or name in RESERVED:
        return (
            "has another meaning in predict.py or in a template",
            f"name it for example {name.lower()}_text",
        )
    return None


def _near_builtin(spec: Spec, name: str) -> tuple[str, str] | None:
    """An entry without a type whose name is almost a built-in one's, and that no template asks for."""
    hint = suggest(name, list(inputs.BY_NAME), "")
    if spec.prompt.template is None and hint.startswith("did"):
        return "is no built-in input", hint
    return None


def _use_mistakes(spec: Spec, field: str, name: str) -> Iterator[Mistake]:
    template = spec.prompt.template
    in_prompt = name in inputs.CHAT or name not in inputs.BY_NAME
    if not in_prompt:
        return
    if template is None:
        if name not in inputs.BY_NAME:
            hint = f"write `prompt.template` with {{{{ {name[:40]} }}}} in it"
            yield spec.mistake(field, "is an input of your own, which only a prompt.template can use", hint)
    elif name == "messages":
        yield spec.mistake(field, "cannot be used with a prompt.template", "remove one of the two")
    elif name not in _used(spec):
        yield spec.mistake(field, "is not used by prompt.template", "use it there, or remove it")


def _override_mistakes(spec: Spec, field: str, builtin: Input, definition: InputSpec) -> Iterator[Mistake]:
    for key in definition.model_fields_set - _OVERRIDABLE:
        if getattr(definition, key) is not None:
            hint = f"remove it; of a built-in input {', '.join(sorted(_OVERRIDABLE))} can be changed"
            yield spec.mistake(f"{field}.{key}", "is fixed for this input", hint)
    for key in ("min", "max"):
        value = getattr(definition, key)
        if builtin.type in _NUMBERS and inputs.has_type(builtin.type, value):
            problem = inputs.problem(builtin, value)
            if problem:
                yield spec.mistake(
                    f"{field}.{key}", f"is {show(value)}, {problem}", "stay within what the engine takes"
                )
    given = getattr(spec.sampling, builtin.name, None)
    if definition.default is not None and given is not None and given != definition.default:
        message = f"is {show(definition.default)}, sampling.{builtin.name} says {show(given)}"
        yield spec.mistake(f"{field}.default", message, "remove one of the two")


def _own_mistakes(spec: Spec, name: str, definition: InputSpec) -> Iterator[Mistake]:
    field = dotted(("inputs", name))
    written: Any = spec.document.data["inputs"].get(name) or {}
    if "type" not in written:
        hint = "add `type: string`, integer, number or boolean"
        yield spec.mistake(f"{field}.type", "is missing", hint)
    if "description" not in written:
        yield spec.mistake(f"{field}.description", "is missing", "say in one line what it is")
    if "default" in written and written["default"] is None:
        yield spec.mistake(f"{field}.default", "has no value", "remove it, to make the input required")
    if definition.regex is not None and not _compiles(definition.regex):
        yield spec.mistake(f"{field}.regex", "is no regular expression", "it is a Python regular expression")
    if definition.type in _NUMBERS and not definition.choices:
        for key in ("min", "max"):
            if key not in written:
                hint = f"add it, such as {key}: {0 if key == 'min' else 100}"
                yield spec.mistake(f"{field}.{key}", "is missing: a number has limits", hint)


def _value_mistakes(spec: Spec, field: str, entry: Input, definition: InputSpec) -> Iterator[Mistake]:
    if definition.description is not None and (
        not definition.description.strip() or "\n" in definition.description.strip()
    ):
        yield spec.mistake(f"{field}.description", "must be one line of text", "write it on one line")
    yield from _limit_mistakes(spec, field, entry, definition)
    if definition.choices is not None:
        yield from _choice_mistakes(spec, field, entry, definition.choices)
    if definition.default is not None:
        problem = inputs.problem(entry, definition.default)
        if problem:
            yield spec.mistake(
                f"{field}.default", f"is {show(definition.default)}, {problem}", "change it, or remove it"
            )


def _limit_mistakes(spec: Spec, field: str, entry: Input, definition: InputSpec) -> Iterator[Mistake]:
    for key in ("min", "max"):
        value = getattr(definition, key)
        if value is None:
            continue
        if entry.type not in _NUMBERS:
            yield spec.mistake(
                f"{field}.{key}", f"limits a number, the input is of type {entry.type}", "remove it"
            )
        elif not inputs.has_type(entry.type, value):
            yield spec.mistake(
                f"{field}.{key}", f"is {show(value)}, must be of type {entry.type}", "correct it"
            )
    for key in ("min_length", "max_length", "regex"):
        if getattr(definition, key) is not None and entry.type != "string":
            yield spec.mistake(
                f"{field}.{key}", f"limits a text, the input is of type {entry.type}", "remove it"
            )
    for low, high in ((entry.ge, entry.le), (entry.min_length, entry.max_length)):
        if low is not None and high is not None and low > high:
            yield spec.mistake(
                field, f"takes nothing: its least is {low}, its most {high}", "swap them, or correct one"
            )


def _choice_mistakes(spec: Spec, field: str, entry: Input, choices: tuple[Any, ...]) -> Iterator[Mistake]:
    if entry.type == "boolean":
        yield spec.mistake(
            f"{field}.choices", "an input that is true or false has its choices already", "remove it"
        )
        return
    if not choices:
        yield spec.mistake(f"{field}.choices", "is empty", "list the values, or remove it")
    free = replace(entry, choices=())
    for index, choice in enumerate(choices):
        problem = inputs.problem(free, choice)
        if problem:
            yield spec.mistake(
                f"{field}.choices[{index}]", f"is {show(choice)}, {problem}", "change it, or remove it"
            )
        elif choice in choices[:index]:
            yield spec.mistake(
                f"{field}.choices[{index}]", f"is {show(choice)}, which is there already", "remove it"
            )
