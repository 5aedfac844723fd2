"""models/<name>.lock: what was resolved once and is committed. `render` needs the spec and this file, and nothing else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from cogsmith.checkpoint import Checkpoint
from cogsmith.engines import ENGINES, Engine
from cogsmith.errors import UserError
from cogsmith.spec import Spec
from cogsmith.spec_engine import builds_of
from cogsmith_runtime.weights import Index, WeightsError

HEADER = (
    "# Written by cogsmith: what was resolved for this model. Commit it; change the spec, not this file.\n"
)


class Facts(BaseModel):
    """The base of everything in a lock: as it was written, nothing more."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CheckpointFacts(Facts):
    """What the checkpoint's files say. Sizes in bytes, `context` in tokens."""

    architecture: str
    model_type: str
    dtype: str | None
    context: int | None
    rope_scaling: str | None
    vocab_size: int | None
    layers: int | None
    hidden_size: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    parameters: int
    tensors: int
    tensor_bytes: int
    quantization: str | None
    chat_template_sha256: str | None
    system_role: bool | None
    eos_token_ids: list[int]
    special_tokens: list[str]
    sampling: dict[str, float | int]


class EnginePins(Facts):
    """The engine build that the spec leads to, and the sha256 of its exact requirements."""

    name: str
    version: str
    requirements_sha256: str


class PackedWeights(Facts):
    """The packed object: its digest (also its key), its size in bytes, and the index that goes into the image."""

    digest: str
    size: int
    index: dict[str, Any]

    def parsed(self) -> Index:
        """The index, checked. Raises WeightsError where it is not as it was written."""
        return Index.parse(json.dumps(self.index))


class Lock(Facts):
    """One model, resolved.

    `engines` holds the pins of every engine build, `cog` the version for a spec that names none.

    `revision` is the commit of a model of the Hugging Face Hub, the sha256 of a tar, and null for what has no such name.

    `sources` says where the figures of `checkpoint` were read: by figure, and under `checkpoint` for all others.
    """

    version: Literal[2] = 2
    model: str
    revision: str | None = None
    sources: dict[str, str]
    checkpoint: CheckpointFacts
    engines: list[EnginePins]
    cog: str
    weights: PackedWeights | None = None

    def text(self) -> str:
        """The file's content: the same for the same facts."""
        content = yaml.safe_dump(
            self.model_dump(mode="json"),
            sort_keys=False,
            allow_unicode=True,
            width=1_000_000,
            default_flow_style=False,
        )
        return HEADER + content


def resolve(
    spec: Spec, checkpoint: Checkpoint, weights: PackedWeights | None, revision: str | None = None
) -> Lock:
    """The lock of a spec whose checkpoint was read, at that revision."""
    template = checkpoint.chat_template
    same = {
        name: getattr(checkpoint, name)
        for name in CheckpointFacts.model_fields.keys() - {"chat_template_sha256"}
    }
    hashed = {"chat_template_sha256": None if template is None else _sha256(template)}
    return Lock(
        model=spec.model,
        revision=revision,
        sources={"checkpoint": f"{spec.model}: its JSON files and the headers of its tensors"},
        checkpoint=CheckpointFacts.model_validate(same | hashed, strict=False),
        # All of them: another backend or hardware is a change of the spec alone.
        engines=[engine_pins(engine) for engine in ENGINES.values()],
        cog=spec.cog,
        weights=weights,
    )


def engine_pins(engine: Engine) -> EnginePins:
    """What a lock says of an engine row."""
    return EnginePins(
        name=engine.name, version=engine.version, requirements_sha256=_sha256(engine.requirements)
    )


def read_lock(path: Path) -> Lock:
    """Read a lock, whatever it was resolved from.

    Raises:
        UserError: there is none, or it is not as it was written.
    """
    shown = f"models/{path.name}"
    again = f"run `cogsmith lock {path.stem}`"
    if not path.exists():
        raise UserError(
            f"{shown} is missing", f"{again}, or `cogsmith pack {path.stem}`, which writes it too"
        )
    try:
        lock = Lock.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        if lock.weights is not None:
            _check_index(lock.weights)
    except (ValidationError, ValueError, RecursionError, OSError, WeightsError, yaml.YAMLError) as error:
        raise UserError(f"{shown} cannot be read: {_reason(error)}", f"do not edit it; {again}") from error
    return lock


def load_lock(path: Path, spec: Spec) -> Lock:
    """Read the lock that belongs to a spec.

    Raises:
        UserError: there is none, it cannot be read, or the spec's model or the engine's pins have moved on since.
    """
    lock = read_lock(path)
    locked_pins = {pins.name: pins for pins in lock.engines}
    checked: list[tuple[str, str | EnginePins, str | EnginePins]] = [("model", lock.model, spec.model)]
    for engine in builds_of(spec):
        checked.append(("engine", locked_pins.get(engine.name, "missing"), engine_pins(engine)))
    for what, locked, wanted in checked:
        if locked != wanted:
            raise UserError(
                f"models/{path.name} is out of date: "
                f"its {what} is {_short(locked)}, the spec leads to {_short(wanted)}",
                f"run `cogsmith lock {spec.name}`",
            )
    return lock


def _check_index(weights: PackedWeights) -> None:
    index = weights.parsed()
    if (index.digest, index.size) != (weights.digest, weights.size):
        raise ValueError("weights: the digest or the size is not the index's")


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        return f"{field}: {first['msg']}" if field else "it is no mapping"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _short(value: str | EnginePins) -> str:
    return (
        value
        if isinstance(value, str)
        else f"{value.name} {value.version} ({value.requirements_sha256[:12]})"
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
