"""Reading one YAML file that a person wrote: strictly, and with the line of every key kept.

YAML readers disagree about some plain words (`yes`, `010`, `12:30`, `1e-5`, `2024-01-01`). Numbers here are decimal,
`1e-5` is one of them, only `true` and `false` are booleans, and a word that readers disagree about is a mistake.
Anchors and aliases are refused: a file this small gains nothing from them, they hide where a value comes from, and
nested ones grow without bound.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml import MarkedYAMLError, Node, YAMLError
from yaml.composer import Composer
from yaml.nodes import MappingNode, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from cogsmith.errors import Mistake, MistakesError

MAX_BYTES = 1 << 20
MAX_VALUES = 10_000
MAX_DEPTH = 24

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_AMBIGUOUS = (
    (
        re.compile(r"(yes|no|on|off)", re.I),
        "a boolean",
        "write true or false, or put it in quotes if it is text",
    ),
    (
        re.compile(r"[-+]?0[0-9_]+"),
        "an octal number",
        "write it without the leading 0, or in quotes if it is text",
    ),
    (
        re.compile(r"[-+]?0[xob][0-9a-f_]+", re.I),
        "a number in another base",
        "write it as a decimal number, or in quotes if it is text",
    ),
    (
        re.compile(r"[-+]?[0-9][0-9.]*_[0-9_.]*"),
        "a number",
        "write it without underscores, or in quotes if it is text",
    ),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), "a number in base 60", "put it in quotes"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date", "put it in quotes"),
    (
        re.compile(r"[-+]?\.(inf|nan)", re.I),
        "a number",
        "write a finite number, or put it in quotes if it is text",
    ),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[\w./@+-]{1,80}")

_HINTS = (
    ("found character '\\t'", "a tab stands where YAML wants spaces", "indent with spaces"),
    (
        "mapping values are not allowed",
        'a ": " stands where none can',
        "put text that holds a colon in quotes, or check the indentation",
    ),
    ("could not find expected ':'", "a key has no colon after it", "write `key: value`"),
    ("while scanning a quoted scalar", "a quote is not closed", "close it"),
    (
        "expected <block end>",
        "the indentation does not fit the lines above",
        "indent keys of one level alike",
    ),
    (
        "expected ',' or",
        "a list or mapping in brackets is not closed",
        "close it, or put a text in it that holds , : ? or brackets in quotes",
    ),
    ("expected a single document", "holds more than one document", "remove the `---` line and what follows"),
    (
        "found unknown escape character",
        "a backslash in double quotes starts no known escape",
        "use single quotes",
    ),
)


@dataclass(frozen=True)
class Document:
    """A file's values and where they stand.

    Attributes:
        path: the file as it is shown in messages.
        data: its top mapping. Keys are always text; values are dict, list, str, int, float, bool or None.
        lines: the line of each key and list item, by its dotted name (`tests[0].input.prompt`).
        text_lines: where the text of a block (`|`) begins, by the same names.
        mistakes: what was wrong with single values; each such value stands in `data` as its text.
    """

    path: str
    data: dict[str, Any]
    lines: Mapping[str, int]
    text_lines: Mapping[str, int] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()

    def line(self, name: str) -> int:
        """The line of a dotted name, else of the nearest thing around it, else 1."""
        while name:
            if name in self.lines:
                return self.lines[name]
            name = name[: max(name.rfind("."), name.rfind("["), 0)]
        return 1


def dotted(parts: tuple[str | int, ...]) -> str:
    """`("tests", 0, "input")` as `tests[0].input`; an odd key is quoted, so that it stays on one line."""
    name = ""
    for part in parts:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            key = part if _PLAIN_KEY.fullmatch(part) else ascii(part[:80])
            name += f".{key}" if name else key
    return name


def load_yaml(path: Path, shown: str) -> Document:
    """Read a file whose top is a mapping.

    Args:
        path: the file.
        shown: how messages name it.

    Raises:
        MistakesError: it cannot be read as YAML at all. Mistakes in single values are in the result instead.
    """
    text = _read(path, shown)
    try:
        root = _Loader(text).get_single_node()
    except _RefusedError as error:
        raise _mistake(shown, error.line, error.message, error.hint) from None
    except MarkedYAMLError as error:
        raise _syntax(shown, error) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _mistake(shown, line, "holds a character that YAML does not allow", "remove it") from None
    except (YAMLError, ValueError, OverflowError, RecursionError):
        # PyYAML lets Python's own error through for some escapes, such as a code point that does not exist.
        raise _mistake(shown, 1, "cannot be read as YAML", "check its quotes and escapes") from None
    if root is None:
        raise _mistake(shown, 1, "the file is empty", "write at least model, backend and hardware")
    if not isinstance(root, MappingNode):
        kind = "a list" if isinstance(root, SequenceNode) else "a single value"
        line = root.start_mark.line + 1
        raise _mistake(
            shown, line, f"the file holds {kind}, must hold `key: value` lines", "write `model: …` first"
        )
    reader = _Values(shown)
    data = reader.mapping(root, ())
    return Document(shown, data, reader.lines, reader.text_lines, tuple(reader.mistakes))


def _read(path: Path, shown: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _mistake(
            shown, 1, f"cannot be read ({error.strerror})", "check the path and its permissions"
        ) from None
    if len(raw) > MAX_BYTES:
        raise _mistake(shown, 1, f"is larger than {MAX_BYTES >> 10} KiB", "move long texts elsewhere")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _mistake(shown, line, "is not UTF-8 text", "save the file as UTF-8") from None


def _mistake(shown: str, line: int, message: str, hint: str) -> MistakesError:
    return MistakesError([Mistake(shown, line, "", message, hint)])


def _syntax(shown: str, error: MarkedYAMLError) -> MistakesError:
    mark = error.problem_mark or error.context_mark
    said = f"{error.context or ''} {error.problem or ''}"
    for sign, message, hint in _HINTS:
        if sign in said:
            return _mistake(shown, mark.line + 1 if mark else 1, message, hint)
    problem = " ".join((error.problem or "cannot be read as YAML").split())
    return _mistake(shown, mark.line + 1 if mark else 1, problem, "check the quotes and the indentation here")


class _RefusedError(Exception):
    def __init__(self, line: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.line, self.message, self.hint = line, message, hint


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML up to its nodes: no tag makes an object, and what would grow without bound is refused on the way."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None) is not None:
            raise _RefusedError(line, "anchors (&) and aliases (*) are not supported", "write the value out")
        if getattr(event, "tag", None) is not None:
            raise _RefusedError(line, f"the tag {event.tag[:40]!r} is not supported", "remove it")
        self._values += 1
        if self._values > MAX_VALUES:
            raise _RefusedError(line, f"holds more than {MAX_VALUES:,} values", "a spec is small: split it")
        if self._depth >= MAX_DEPTH:
            raise _RefusedError(line, f"is nested deeper than {MAX_DEPTH} levels", "flatten it")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _Values:
    """Turns nodes into values, and keeps the lines and the mistakes met on the way."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.lines: dict[str, int] = {}
        self.text_lines: dict[str, int] = {}
        self.mistakes: list[Mistake] = []

    def mapping(self, node: MappingNode, parts: tuple[str | int, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode) or _CONTROL.search(key_node.value):
                self._report(parts, line, "a key must be plain text", "write `key: value`")
                continue
            key: str = key_node.value
            name = dotted((*parts, key))
            if key in values:
                first = self.lines[name]
                self._report(
                    (*parts, key), line, f"is given twice, first on line {first}", "remove one of the two"
                )
                continue
            self.lines[name] = line
            values[key] = self._value(value_node, (*parts, key))
        return values

    def _value(self, node: Any, parts: tuple[str | int, ...]) -> Any:
        if isinstance(node, MappingNode):
            return self.mapping(node, parts)
        if isinstance(node, SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.lines[dotted((*parts, index))] = item.start_mark.line + 1
                items.append(self._value(item, (*parts, index)))
            return items
        if node.style is not None:
            if node.style == "|":
                self.text_lines[dotted(parts)] = node.start_mark.line + 2
            return self._text(node.value, node, parts)
        return self._plain(node, parts)

    def _text(self, text: str, node: Node, parts: tuple[str | int, ...]) -> str:
        found = _CONTROL.search(text)
        if found:
            line = node.start_mark.line + 1
            self._report(parts, line, f"holds the control character U+{ord(found.group()):04X}", "remove it")
        return text

    def _plain(self, node: ScalarNode, parts: tuple[str | int, ...]) -> Any:
        text: str = node.value
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        for pattern, kind, hint in _AMBIGUOUS:
            if pattern.fullmatch(text):
                line = node.start_mark.line + 1
                self._report(parts, line, f"is {text[:40]}, which YAML may read as {kind}", hint)
                return text
        return self._text(text, node, parts)

    def _report(self, parts: tuple[str | int, ...], line: int, message: str, hint: str) -> None:
        self.mistakes.append(Mistake(self.shown, line, dotted(parts), message, hint))
