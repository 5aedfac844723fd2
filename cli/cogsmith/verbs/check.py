"""`cogsmith check`: every mistake of the specs, without writing anything."""

from __future__ import annotations

from collections.abc import Sequence

from cogsmith.errors import SeveralError, UserError
from cogsmith.lock import load_lock
from cogsmith.output import step
from cogsmith.paths import Project
from cogsmith.plan import engine_of, make_plan
from cogsmith.render import render
from cogsmith.spec import load_spec


def check(project: Project, names: Sequence[str]) -> None:
    """Check the named models, or all; a model with a lock also against what its checkpoint says.

    Raises:
        SeveralError: with the mistakes of every spec, and what else is wrong.
        UserError: there is no spec.
    """
    names = names or project.names()
    if not names:
        raise UserError(
            "models/ holds no spec", "write models/NAME.yaml: model, backend and hardware are enough"
        )
    errors: list[UserError] = []
    for name in names:
        try:
            _check(project, name)
        except UserError as error:
            errors.append(error)
    if errors:
        raise SeveralError(errors)


def _check(project: Project, name: str) -> None:
    path = project.spec_path(name)
    spec = load_spec(path)
    lock = project.lock_path(spec.name)
    if not lock.exists():
        step(f"{path}: ok; no lock yet, so not checked against the checkpoint")
        return
    render(make_plan(spec, load_lock(lock, spec, engine_of(spec))))
    step(f"{path}: ok")
