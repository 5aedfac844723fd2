"""Packed weights -> a folder for Cog's managed weights: all that `render` writes, the model's files, and `weights` in cog.yaml.

Experimental, as they are in Cog: `cog weights` is a hidden command, and specs/draft-weights.md of replicate/cog a draft. What is
written here holds from Cog 0.20 on, read in its source (pkg/config, pkg/model, pkg/weights) up to 0.22.0.

weights.lock is left to `cog weights import`: it names layers by the sha256 of what Go's gzip makes of the small files, which no other
gzip makes. The set digest in it is of the files alone, so that is known here.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from cogsmith.disk import check_room
from cogsmith.errors import UserError, of_weights
from cogsmith.plan import Plan
from cogsmith.progress import Bar, Reporter, no_bar
from cogsmith.readme import readme
from cogsmith.render import render, write
from cogsmith.verify import DamagedError
from cogsmith_runtime.weights import Index, WeightsError, fetch, source_of, verify

FILES = "weights"
# Where Cog mounts the files, read-only.
TARGET = f"/src/{FILES}"


def check_free(folder: Path) -> None:
    """Raise UserError where a folder is there already and holds something, or is none."""
    if folder.is_dir():
        if any(folder.iterdir()):
            raise UserError(f"{folder} is not empty", "remove it, or name another folder with --to")
    elif folder.exists():
        raise UserError(f"{folder} is not a folder", "name another with --to")


def export(plan: Plan, index: Index, where: str, folder: Path, bar: Bar = no_bar) -> None:
    """Make the folder, whole or not at all.

    Args:
        index: of the packed weights; every file is held to its sha256.
        where: the packed tar, as a path, file:// or http(s)://. May hold a signature.
        folder: absolute, and not there yet or empty. Its disk takes the files once; Cog's own cache takes them again.
        bar: shows the bytes of the files.

    Raises:
        UserError: the folder is taken or cannot hold them, or the tar cannot be read or is damaged.
    """
    check_free(folder)
    check_room(folder, index.content, f"export {plan.name}", "name a folder on a larger disk with --to")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside it, so that the last step is a rename.
    with TemporaryDirectory(prefix=".export-", dir=folder.parent) as work:
        made = Path(work, "made")
        write(rendered(plan, index), made)
        _fetched(index, where, Path(work), bar).rename(made / FILES)
        made.rename(folder)


def _fetched(index: Index, where: str, work: Path, bar: Bar) -> Path:
    try:
        source = source_of(where)
        with bar("Exporting") as progress:
            files = fetch(index, source, work, progress).folder
        with bar("Verifying") as progress:
            report = Reporter(progress, index.content)
            problems = verify(index, files, count=report.add)
            report.end()
    except WeightsError as error:
        raise of_weights(error) from None
    if problems:
        raise DamagedError(f"{source.name} is damaged: {problems[0]}", "remove it and pack again")
    return files


def rendered(plan: Plan, index: Index) -> dict[str, str]:
    """Every file of the folder but the model's, path -> text."""
    plan = replace(plan, environment={**plan.environment, "COG_WEIGHTS": TARGET})
    files = render(plan)
    files["cog.yaml"] += _cog_yaml(plan.name)
    # Cog takes them to the registry by themselves.
    files[".dockerignore"] += f"/{FILES}\n"
    files["README.md"] = readme(plan, _build(plan, index))
    return files


def set_digest(index: Index) -> str:
    """What `setDigest` in Cog's lock will be: sha256 of the lines that sha256sum writes, sorted.

    By pkg/model/weightsource/dirhash.go; the draft would sort by path.
    """
    lines = sorted(f"{member.sha256}  {member.path}" for member in index.files)
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _cog_yaml(name: str) -> str:
    weights = {"name": name, "target": TARGET, "source": {"uri": f"file://./{FILES}"}}
    header = (
        "# Cog's managed weights (experimental). Where image and weights are pushed: REGISTRY/OWNER/NAME.\n"
    )
    return header + yaml.safe_dump({"model": name, "weights": [weights]}, sort_keys=False)


def _build(plan: Plan, index: Index) -> list[str]:
    return [
        "## Build and push, with Cog's managed weights",
        "",
        f"Experimental, and written by `cogsmith weights export` for Cog 0.20 or newer. `{FILES}/` holds the files that were packed, and stays out of",
        f"the image: Cog pushes them as layers of their own and mounts them at `{TARGET}`, where `COG_WEIGHTS` in `cog.yaml` says that they are.",
        "",
        "Put the repository into `model` in `cog.yaml`, or into `COG_MODEL`. Then:",
        "",
        "```sh",
        "cog weights import   # pushes the files and writes weights.lock, which `cog push` and `cog run` need",
        "cog push --openapi-schema .cog/openapi_schema.json",
        "```",
        "",
        f"`setDigest` in `weights.lock` must be `{set_digest(index)}`.",
        "",
        f"`cog run` mounts the files too, and so does `cog serve` from Cog 0.21 on. With plain Docker: `-v $PWD/{FILES}:{TARGET}:ro`.",
        "",
    ]
