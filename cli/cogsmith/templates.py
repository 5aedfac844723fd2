"""The templates of what is rendered, and how a value is spelled in them."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cogsmith.errors import UserError


def fill(template: str, **values: Any) -> str:
    """A template of templates/ with its values put in; a value that is missing is an error of ours."""
    return _environment().get_template(template).render(values)


def literal(value: Any) -> str:
    """A Python literal that Cog's static parser reads as Python does.

    Cog takes the text between the quotes as it stands, so a text must be spelled without a single escape: raw where it has backslashes,
    triple-quoted where it has line breaks.

    Raises:
        UserError: no spelling without escapes exists.
    """
    if isinstance(value, list):
        return f"[{', '.join(literal(item) for item in value)}]"
    if not isinstance(value, str):
        return repr(value)
    for spelling in (
        f'"{value}"',
        f"'{value}'",
        f'r"{value}"',
        f"r'{value}'",
        f'"""{value}"""',
        f"'''{value}'''",
    ):
        if _reads_back(spelling, value):
            return spelling
    raise UserError(
        f"Cog cannot read the text {value!r} in a signature: it mixes backslashes, quotes or line breaks",
        "use only one of them in a default, a description, a regex or a choice",
    )


def _reads_back(spelling: str, value: str) -> bool:
    inner = re.fullmatch(r"(?s)r?('''|\"\"\"|'|\")(.*)\1", spelling)
    try:
        return inner is not None and inner.group(2) == value and ast.literal_eval(spelling) == value
    except (SyntaxError, ValueError):
        return False


@cache
def _environment() -> Environment:
    # In a wheel the templates lie inside the package, in a checkout beside it.
    here = Path(__file__).parent
    folders = [here / "templates", here.parent.parent / "templates"]
    environment = Environment(  # noqa: S701 - what is rendered is Python and YAML; each value goes through a filter
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["py"] = literal
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment
