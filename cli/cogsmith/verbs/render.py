"""`cogsmith render`: the folder that `cog build` takes. Offline; the same spec and lock give the same bytes anywhere."""

from __future__ import annotations

import difflib
from pathlib import Path

from cogsmith.lock import load_lock
from cogsmith.output import data, step, warn
from cogsmith.paths import Project
from cogsmith.plan import Plan, make_plan, plans
from cogsmith.render import owned, write
from cogsmith.render import render as render_files
from cogsmith.spec import load_spec


def planned(project: Project, name: str, hardware: str | None = None, backend: str | None = None) -> Plan:
    """The plan of a model for one of its backends, from its spec and its lock.

    Raises:
        UserError: the spec is wrong, the lock is missing or out of date, or it is open which backend is meant.
    """
    spec = load_spec(project.spec_path(name))
    return make_plan(spec, load_lock(project.lock_path(spec.name), spec), hardware, backend)


def every_plan(project: Project, name: str, hardware: str | None, backend: str | None) -> tuple[Plan, ...]:
    """The plans of a model: for the backend that was asked for, else for each that the spec names."""
    if backend is not None:
        return (planned(project, name, hardware, backend),)
    spec = load_spec(project.spec_path(name))
    return plans(spec, load_lock(project.lock_path(spec.name), spec), hardware)


def render(project: Project, plan: Plan) -> None:
    """Write build/NAME/; only what changed is written, and what is no longer rendered is removed.

    Raises:
        UserError: a file cannot be written, or a text of the spec cannot be put into a signature.
    """
    folder = project.build_dir(plan.folder)
    shown = folder.relative_to(project.root)
    changes = write(render_files(plan), folder)
    if not changes.written and not changes.removed:
        step(f"{shown} is up to date")
    else:
        removed = f", removed {', '.join(changes.removed)}" if changes.removed else ""
        count = len(changes.written)
        step(f"Rendered {shown}: {count} file{'' if count == 1 else 's'} written{removed}")
    if plan.other_hardware:
        warn(
            f"{shown} is for trying the model on {plan.hardware.name}; it is not the image that the spec describes"
        )
    if plan.index is None:
        warn(f"the weights are not packed yet: run `cogsmith pack {plan.name}`")


def show_diff(project: Project, plan: Plan) -> None:
    """What `render` would change in build/NAME/, as a unified diff on stdout; nothing is written."""
    folder = project.build_dir(plan.folder)
    shown = folder.relative_to(project.root)
    files = render_files(plan)
    differing = 0
    for path in sorted(files.keys() | owned(folder)):
        lines = _diff(_read(folder / path), files.get(path), f"{shown}/{path}")
        data(lines)
        differing += bool(lines)
    if differing:
        step(f"{shown}: {differing} file{'' if differing == 1 else 's'} would change")
    else:
        step(f"{shown} is up to date")


def _diff(old: str | None, new: str | None, shown: str) -> str:
    """As `git diff` and `patch` spell it: a file that is not there is /dev/null."""
    lines = difflib.unified_diff(
        (old or "").splitlines(keepends=True),
        (new or "").splitlines(keepends=True),
        "/dev/null" if old is None else f"a/{shown}",
        "/dev/null" if new is None else f"b/{shown}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
