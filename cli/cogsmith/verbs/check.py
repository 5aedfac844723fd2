"""`cogsmith check`: every mistake of the specs, without writing anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cogsmith.errors import MistakesError, SeveralError, UserError
from cogsmith.lock import load_lock
from cogsmith.output import data, step
from cogsmith.paths import Project
from cogsmith.plan import plans
from cogsmith.render import render
from cogsmith.spec import load_spec


@dataclass(frozen=True)
class Checked:
    """What was found at one model. `locked`: it has a lock, so it was held against its checkpoint too."""

    name: str
    file: str
    locked: bool
    error: UserError | None

    def as_json(self) -> dict[str, Any]:
        """For a program: an error that has no place in the spec has its file alone."""
        return {
            "name": self.name,
            "file": self.file,
            "ok": self.error is None,
            "locked": self.locked,
            "mistakes": _mistakes(self.error, self.file),
        }


def check(project: Project, names: Sequence[str]) -> None:
    """Check the named models, or all; a model with a lock also against what its checkpoint says.

    Raises:
        SeveralError: with the mistakes of every spec, and what else is wrong.
        UserError: there is no spec.
    """
    errors = []
    for checked in _checked(project, names):
        if checked.error is not None:
            errors.append(checked.error)
        elif checked.locked:
            step(f"{checked.file}: ok")
        else:
            step(f"{checked.file}: ok; no lock yet, so not checked against the checkpoint")
    if errors:
        raise SeveralError(errors)


def check_json(project: Project, names: Sequence[str]) -> bool:
    """The same, as one JSON object on stdout; says whether all is well.

    Raises:
        UserError: there is no spec.
    """
    found = [checked.as_json() for checked in _checked(project, names)]
    data(json.dumps({"models": found}, indent=1, ensure_ascii=False) + "\n")
    return all(model["ok"] for model in found)


def _checked(project: Project, names: Sequence[str]) -> list[Checked]:
    names = names or project.names()
    if not names:
        raise UserError("models/ holds no spec", "`cogsmith init NAME` writes one")
    return [_check(project, name) for name in names]


def _check(project: Project, name: str) -> Checked:
    plain = name.removesuffix(".yaml").removeprefix("models/")
    lock = project.lock_path(plain)
    locked, error = False, None
    try:
        spec = load_spec(project.spec_path(name))
        locked = lock.exists()
        if locked:
            for plan in plans(spec, load_lock(lock, spec)):
                render(plan)
    except UserError as caught:
        error = caught
    return Checked(plain, f"models/{plain}.yaml", locked, error)


def _mistakes(error: UserError | None, file: str) -> list[dict[str, str | int | None]]:
    if error is None:
        return []
    if not isinstance(error, MistakesError):
        return [{"file": file, "line": None, "field": "", "message": error.message, "hint": error.hint}]
    return [
        {"file": one.path, "line": one.line, "field": one.field, "message": one.message, "hint": one.hint}
        for one in error.mistakes
    ]
