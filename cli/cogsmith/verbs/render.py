"""`cogsmith render`: the folder that `cog build` takes. Offline; the same spec and lock give the same bytes anywhere."""

from __future__ import annotations

from cogsmith.lock import load_lock
from cogsmith.output import step, warn
from cogsmith.paths import Project
from cogsmith.plan import Plan, engine_of, make_plan
from cogsmith.render import render as render_files
from cogsmith.render import write
from cogsmith.spec import load_spec


def planned(project: Project, name: str, hardware: str | None) -> Plan:
    """The plan of a model, from its spec and its lock.

    Raises:
        UserError: the spec is wrong, or the lock is missing or out of date.
    """
    spec = load_spec(project.spec_path(name))
    return make_plan(spec, load_lock(project.lock_path(spec.name), spec, engine_of(spec)), hardware)


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
    if plan.folder != plan.name:
        warn(
            f"{shown} is for trying the model on {plan.hardware.name}; it is not the image that the spec describes"
        )
    if plan.index is None:
        warn(f"the weights are not packed yet: run `cogsmith pack {plan.name}`")
