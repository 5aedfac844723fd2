"""`cogsmith init`: a folder to work in, with one spec that passes `check`. What is there already stays as it is."""

from __future__ import annotations

from pathlib import Path

from cogsmith.errors import UserError
from cogsmith.files import write_changed
from cogsmith.hardware import NAMES
from cogsmith.output import step
from cogsmith.spec import NAME_RULE, is_model_name
from cogsmith.spec_schema import FILE, schema_text
from cogsmith.templates import fill


def init(root: Path, name: str) -> None:
    """Write models/NAME.yaml, the schema that editors read, a Makefile and a .gitignore into a folder.

    Raises:
        UserError: the name cannot be a model's, that model is there already, or a file cannot be written.
    """
    if not is_model_name(name):
        raise UserError(f"the name of a model must be {NAME_RULE}, is {name!r}", "for example: my-model")
    spec = root / "models" / f"{name}.yaml"
    if spec.exists() or spec.is_symlink():
        raise UserError(
            f"models/{name}.yaml is there already", f"run `cogsmith check {name}`, or give another name"
        )
    files = {
        ".gitignore": fill("init/gitignore.j2"),
        "Makefile": fill("init/Makefile.j2", name=name),
        f"models/{name}.yaml": fill("init/model.yaml.j2", name=name, hardware=", ".join(NAMES)),
    }
    try:
        for path, text in files.items():
            _write_new(root / path, path, text)
        # Made by cogsmith, for the version that runs: never the user's own.
        write_changed(root / "models" / FILE, schema_text())
    except OSError as error:
        raise UserError(
            f"{error.filename or root} cannot be written: {error.strerror}",
            "check the disk and the permissions",
        ) from error
    step(f"Next: the commands at the top of models/{name}.yaml")


def _write_new(target: Path, shown: str, text: str) -> None:
    if target.exists() or target.is_symlink():
        step(f"{shown} is there already and stays as it is")
        return
    write_changed(target, text)
    step(f"Wrote {shown}")
