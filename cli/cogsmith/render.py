"""Plan -> the files of build/<name>/: a pure function, and a writer that touches only what changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name

import cogsmith_runtime
from cogsmith.cog_versions import cog_version
from cogsmith.errors import UserError
from cogsmith.files import write_changed
from cogsmith.inputs import Input
from cogsmith.openapi import openapi_schema
from cogsmith.plan import Plan
from cogsmith.readme import readme
from cogsmith.templates import fill, literal

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

# The last option is for a base image whose own Python is Debian's; elsewhere it does nothing.
PIP = "python -m pip install --no-deps --break-system-packages"


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
        ".cog/openapi_schema.json": openapi_schema(plan.inputs, plan.cog, stream=plan.settings.output.stream),
        ".dockerignore": DOCKERIGNORE,
        "README.md": readme(plan),
        **_runtime(),
    }
    if plan.engine.config is not None:
        files[plan.engine.config] = _engine_config(plan)
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
        _check_inside(files, folder)
        stale = sorted(owned(folder) - files.keys())
        written = [path for path, text in files.items() if write_changed(folder / path, text)]
        removed = [path for path in stale if _remove(folder, path)]
        write_changed(folder / MANIFEST, json.dumps(sorted(files), indent=1) + "\n")
    except OSError as error:
        raise UserError(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            "check the disk and the permissions",
        ) from error
    return Changes(tuple(written), tuple(removed))


def _check_inside(files: Mapping[str, str], folder: Path) -> None:
    """That no link in the folder leads what is written out of it. A file that is a link is replaced, which is harmless."""
    real = folder.resolve()
    for parent in sorted({(folder / path).parent for path in files}):
        if not parent.resolve().is_relative_to(real):
            raise UserError(f"{parent} is a link that leads out of {folder}", "remove the link")


def requirements(plan: Plan) -> str:
    """The exact Python packages of the image, under their canonical names: Cog's reader cuts a name at its dots."""
    own = []
    for package in plan.packages:
        name, equals, version = package.partition("==")
        base, bracket, extras = name.partition("[")
        own.append(f"{canonicalize_name(base)}{bracket}{extras}{equals}{version}")
    return "\n".join((*plan.engine.image_requirements, *own)) + "\n"


def _cog_yaml(plan: Plan) -> str:
    cog = cog_version(plan.cog)
    build: dict[str, Any] = {
        "cuda": plan.engine.cuda,
        "system_packages": list(plan.system_packages),
        "run": [_coglet(plan), *_alone(plan), *plan.run, COMPILE],
    }
    return fill(
        "cog.yaml.j2",
        name=plan.name,
        gpu=plan.hardware.gpu is not None,
        python_version=plan.engine.python,
        sdk_version=plan.cog,
        method=cog.method,
        concurrency=None if cog.concurrent else {"max": plan.concurrency},
        optional={key: value for key, value in build.items() if value},
        environment=[f"{name}={value}" for name, value in sorted(plan.environment.items())],
    )


def _coglet(plan: Plan) -> str:
    """The step that pins the server. `sdk_version` pins cog alone, which takes any later coglet, even one that it does not start with.

    Cog strikes coglet out of requirements.txt, and runs these steps after it has installed its own.
    """
    return f"{PIP} coglet=={plan.cog}"


def _alone(plan: Plan) -> list[str]:
    """The step that installs what cannot be installed from requirements.txt, in which Cog reads neither an option nor an index."""
    if not plan.engine.alone:
        return []
    index = ["--extra-index-url", plan.engine.index] if plan.engine.index else []
    return [" ".join([PIP, *index, *plan.engine.alone])]


def _engine_config(plan: Plan) -> str:
    header = f"# Rendered by cogsmith from models/{plan.name}.yaml: all that {plan.engine.name} is told. Edit the spec, not this file.\n"
    return header + yaml.safe_dump(plan.engine_config, sort_keys=True, allow_unicode=True)


def _predict(plan: Plan) -> str:
    cog, stream = cog_version(plan.cog), plan.settings.output.stream
    streaming, concurrent = stream and cog.streaming, cog.concurrent
    names = [
        cog.base,
        "ConcatenateIterator" * stream,
        "Input",
        "concurrent" * concurrent,
        "streaming" * streaming,
    ]
    marks = ["@streaming" * streaming, f"@concurrent(max={plan.concurrency})" * concurrent]
    return fill(
        "predict.py.j2",
        name=plan.name,
        imports=", ".join(filter(None, names)),
        base=cog.base,
        async_setup=cog.async_setup,
        method=cog.method,
        marks=list(filter(None, marks)),
        output="ConcatenateIterator[str]" if stream else "str",
        call="self.model.stream" if stream else "await self.model.answer",
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


def _runtime() -> dict[str, str]:
    root = Path(cogsmith_runtime.__path__[0])
    return {
        f"cogsmith_runtime/{path.relative_to(root).as_posix()}": path.read_text("utf-8")
        for path in root.rglob("*.py")
    }


def owned(folder: Path) -> set[str]:
    """The files of a folder that an earlier render wrote."""
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
    if not target.is_file() or not target.parent.resolve().is_relative_to(folder.resolve()):
        return False
    target.unlink()
    parent = target.parent
    while parent != folder and not os.listdir(parent):  # noqa: PTH208
        parent.rmdir()
        parent = parent.parent
    return True
