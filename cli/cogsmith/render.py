"""Plan -> the files of build/<name>/: a pure function, and a writer that touches only what changed."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from packaging.utils import canonicalize_name

import cogsmith_runtime
from cogsmith.errors import UserError
from cogsmith.files import write_changed
from cogsmith.inputs import Input
from cogsmith.openapi import openapi_schema
from cogsmith.plan import Plan
from cogsmith.readme import readme

MANIFEST = ".cogsmith.json"  # in the rendered folder: which files are ours to remove when they are no longer rendered
ANNOTATIONS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
DOCKERIGNORE = f"""\
# Rendered by cogsmith. What an image does not need stays out of the build context.
**/__pycache__
**/*.pyc
.env
.git
{MANIFEST}
*.gguf
*.safetensors
*.tar
"""
# Without byte code each of the engine's processes compiles all it imports at every boot. A few files of torch are written
# for a later Python and do not compile.
COMPILE = 'python -m compileall -q -j 0 "$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')" || true'


@dataclass(frozen=True)
class Changes:
    """What a write did, as paths within the folder."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


def render(plan: Plan) -> dict[str, str]:
    """Every file of the rendered folder, path -> text."""
    files = {
        "cog.yaml": _cog_yaml(plan),
        "predict.py": _predict(plan),
        "requirements.txt": requirements(plan),
        "settings.json": plan.settings.to_json(),
        ".cog/openapi_schema.json": openapi_schema(plan.inputs, plan.cog),
        ".dockerignore": DOCKERIGNORE,
        "README.md": readme(plan),
        **_runtime(),
    }
    if plan.index is not None:
        files["weights.json"] = plan.index.dumps()
    return dict(sorted(files.items()))


def write(files: Mapping[str, str], folder: Path) -> Changes:
    """Bring a folder to hold these files; others that an earlier render left are removed, foreign ones are not touched.

    Raises:
        UserError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stale = sorted(_owned(folder) - files.keys())
        written = [path for path, text in files.items() if write_changed(folder / path, text)]
        removed = [path for path in stale if _remove(folder, path)]
        write_changed(folder / MANIFEST, json.dumps(sorted(files), indent=1) + "\n")
    except OSError as error:
        raise UserError(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk and the permissions",
        ) from error
    return Changes(tuple(written), tuple(removed))


def requirements(plan: Plan) -> str:
    """The exact Python packages of the image, under their canonical names: Cog's reader cuts a name at its dots."""
    own = []
    for package in plan.packages:
        name, equals, version = package.partition("==")
        base, bracket, extras = name.partition("[")
        own.append(f"{canonicalize_name(base)}{bracket}{extras}{equals}{version}")
    return "\n".join((*plan.engine.image_requirements, *own)) + "\n"


def _cog_yaml(plan: Plan) -> str:
    alone = [f"pip install --no-deps {package}" for package in plan.engine.alone]
    build: dict[str, Any] = {
        "cuda": plan.engine.cuda,
        "system_packages": list(plan.system_packages),
        "run": [*alone, *plan.run, COMPILE],
    }
    return _fill(
        "cog.yaml.j2",
        name=plan.name,
        gpu=plan.hardware.gpu is not None,
        python_version=plan.engine.python,
        sdk_version=plan.cog,
        optional={key: value for key, value in build.items() if value},
        environment=[f"{name}={value}" for name, value in sorted(plan.environment.items())],
    )


def _predict(plan: Plan) -> str:
    return _fill(
        "predict.py.j2",
        name=plan.name,
        concurrency=plan.concurrency,
        inputs=[
            {"name": entry.name, "annotation": _annotation(entry), "arguments": _arguments(entry)}
            for entry in plan.inputs
        ],
    )


def _annotation(entry: Input) -> str:
    kind = ANNOTATIONS[entry.type]
    # `x: int = Input(default=None)` makes a required input.
    return f"Optional[{kind}]" if entry.default is None and not entry.required else kind


def _arguments(entry: Input) -> str:
    arguments: dict[str, Any] = {
        "description": entry.description,
        "ge": entry.ge,
        "le": entry.le,
        "min_length": entry.min_length,
        "max_length": entry.max_length,
        "regex": entry.regex,
        "choices": list(entry.choices) or None,
    }
    parts = [] if entry.required else [f"default={literal(entry.default)}"]
    return ", ".join(
        [*parts, *(f"{key}={literal(value)}" for key, value in arguments.items() if value is not None)]
    )


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


def _runtime() -> dict[str, str]:
    root = Path(cogsmith_runtime.__path__[0])
    return {
        f"cogsmith_runtime/{path.relative_to(root).as_posix()}": path.read_text("utf-8")
        for path in root.rglob("*.py")
    }


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


def _fill(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def _owned(folder: Path) -> set[str]:
    try:
        listed = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return set()
    return {
        path
        for path in listed
        if isinstance(path, str) and ".." not in Path(path).parts and not Path(path).is_absolute()
    }


def _remove(folder: Path, path: str) -> bool:
    target = folder / path
    if not target.is_file():
        return False
    target.unlink()
    parent = target.parent
    while parent != folder and not os.listdir(parent):  # noqa: PTH208
        parent.rmdir()
        parent = parent.parent
    return True
