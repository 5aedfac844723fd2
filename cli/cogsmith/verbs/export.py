"""`cogsmith weights export`: from packed weights to a folder that Cog's managed weights begin with."""

from __future__ import annotations

import json
from pathlib import Path

from cogsmith.managed_weights import check_free, set_digest
from cogsmith.managed_weights import export as export_files
from cogsmith.output import bytes_bar, data, size, step
from cogsmith.paths import Project
from cogsmith.plan import Plan
from cogsmith.session import packed_weights


def export(project: Project, plan: Plan, to: Path | None, *, as_json: bool) -> None:
    """Write a rendered folder with the model's files in it.

    Args:
        to: the folder; None for one beside the rendered folder.

    Raises UserError: it is taken, or the packed weights are not there, cannot be read or are damaged.
    """
    folder = (to or project.build_dir(f"{plan.folder}@managed")).resolve()
    check_free(folder)
    where = packed_weights(project, plan) or plan.settings.weights_url
    assert plan.index is not None
    assert where is not None
    export_files(plan, plan.index, where, folder, bytes_bar)
    count, content = len(plan.index.files), plan.index.content
    if not as_json:
        step(f"Exported {plan.name} to {folder}: {count} files, {size(content)}")
        step("Experimental, for Cog 0.20 or newer: its README.md says how `cog weights import` takes it")
        return
    facts = {
        "model": plan.name,
        "folder": str(folder),
        "digest": plan.index.digest,
        "set_digest": set_digest(plan.index),
        "files": count,
        "size": content,
    }
    data(json.dumps(facts) + "\n")
