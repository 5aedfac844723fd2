"""The machines a model can be built for: one row per GPU. A figure without a source is None, never a guess."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass

COUNTS = (1, 2, 4, 8)

_DRIVER = "total memory as the driver reports it on that card, not the nameplate"
_H100 = f"{_DRIVER}; vLLM 0.19 logs collected in llm-d-incubation/llm-d-planner PR 205"
_REPLICATE_ALL = COUNTS
_CAPABILITY = "NVIDIA's list of CUDA GPUs by compute capability"


class HardwareError(ValueError):
    """The text names no hardware known here."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        name: how a spec names it.
        title: how people name it.
        memory_gib: what the driver reports for one card, in GiB; None where no source is known.
        memory_source: where that figure comes from.
        capability: CUDA compute capability, (major, minor).
        capability_source: where that figure comes from.
        replicate: Replicate's SKU for one card, or None where Replicate has none.
        replicate_counts: how many cards Replicate's SKUs of it come with.
        desktop: a card for one's own machine, which nobody is pointed to.
    """

    name: str
    title: str
    memory_gib: float | None
    memory_source: str | None
    capability: tuple[int, int]
    capability_source: str
    replicate: str | None = None
    replicate_counts: tuple[int, ...] = ()
    desktop: bool = False


# By size, smallest first: the nearest GPU that runs a model is looked for in this order.
GPUS: tuple[Gpu, ...] = (
    Gpu("t4", "NVIDIA T4 16 GB", 14.56, _DRIVER, (7, 5), _CAPABILITY, "gpu-t4", (1,)),
    Gpu("l4", "NVIDIA L4 24 GB", 22.03, _DRIVER, (8, 9), _CAPABILITY),
    Gpu("a10g", "NVIDIA A10G 24 GB", None, None, (8, 6), _CAPABILITY),
    Gpu("l40s", "NVIDIA L40S 48 GB", 44.39, _DRIVER, (8, 9), _CAPABILITY, "gpu-l40s", _REPLICATE_ALL),
    Gpu("a100-40", "NVIDIA A100 40 GB", None, None, (8, 0), _CAPABILITY),
    Gpu(
        "a100-80", "NVIDIA A100 80 GB", 79.25, _DRIVER, (8, 0), _CAPABILITY, "gpu-a100-large", _REPLICATE_ALL
    ),
    Gpu("h100", "NVIDIA H100 80 GB", 79.19, _H100, (9, 0), _CAPABILITY, "gpu-h100", _REPLICATE_ALL),
    Gpu("h200", "NVIDIA H200 141 GB", None, None, (9, 0), _CAPABILITY, "gpu-h200", (1,)),
    Gpu("b200", "NVIDIA B200", None, None, (10, 0), _CAPABILITY),
    Gpu("rtx-4090", "NVIDIA GeForce RTX 4090 24 GB", None, None, (8, 9), _CAPABILITY, desktop=True),
    Gpu("rtx-5090", "NVIDIA GeForce RTX 5090 32 GB", None, None, (12, 0), _CAPABILITY, desktop=True),
)
_BY_NAME = {gpu.name: gpu for gpu in GPUS}


@dataclass(frozen=True)
class Hardware:
    """What a spec's `hardware` names: `gpu` is None for the CPU, and `count` is then 0."""

    gpu: Gpu | None
    count: int

    @property
    def name(self) -> str:
        """Its one spelling: `cpu`, `l40s`, `h100:2`."""
        if self.gpu is None:
            return "cpu"
        return self.gpu.name if self.count == 1 else f"{self.gpu.name}:{self.count}"

    @property
    def sku(self) -> str | None:
        """Replicate's SKU, or None where Replicate has no such machine."""
        if self.gpu is None:
            return "cpu"
        if self.gpu.replicate is None or self.count not in self.gpu.replicate_counts:
            return None
        return self.gpu.replicate if self.count == 1 else f"{self.gpu.replicate}-{self.count}x"


def _skus() -> dict[str, Hardware]:
    known = {}
    for gpu in GPUS:
        for count in gpu.replicate_counts:
            machine = Hardware(gpu, count)
            if machine.sku:
                known[machine.sku] = machine
    return known


_BY_SKU = _skus()
NAMES: tuple[str, ...] = ("cpu", *_BY_NAME)


def parse_hardware(text: str) -> Hardware:
    """Read `cpu`, `l40s`, `h100:2`, or one of Replicate's SKU names in either spelling (`gpu-l40s-2x`, `gpu-2x-l40s`).

    Raises:
        HardwareError: nothing of that name is known, or not in that number.
    """
    word = text.strip().lower()
    if word == "cpu":
        return Hardware(None, 0)
    if word.startswith("gpu-"):
        return _parse_sku(text, word)
    name, colon, count = word.partition(":")
    if name == "cpu":
        raise HardwareError(f"is {_show(text)}, the CPU takes no number", "write cpu")
    gpu = _BY_NAME.get(name)
    if gpu is None:
        raise HardwareError(f"is {_show(text)}, which is not known", _suggest(name, NAMES))
    if not colon:
        return Hardware(gpu, 1)
    if count not in {str(number) for number in COUNTS}:
        wanted = "1, 2, 4 or 8"
        raise HardwareError(
            f"is {_show(text)}, must name {wanted} GPUs", f"write {name}, {name}:2, {name}:4 or {name}:8"
        )
    return Hardware(gpu, int(count))


def _parse_sku(text: str, word: str) -> Hardware:
    swapped = re.sub(r"^gpu-(\d+x)-(.+)$", r"gpu-\2-\1", word)
    machine = _BY_SKU.get(swapped)
    if machine is None:
        raise HardwareError(
            f"is {_show(text)}, which is no SKU of Replicate", _suggest(swapped, tuple(_BY_SKU))
        )
    return machine


def _show(text: str) -> str:
    return json.dumps(text[:40], ensure_ascii=False)


def _suggest(word: str, known: tuple[str, ...]) -> str:
    same_start = [name for name in known if word and name.startswith(f"{word}-")]
    near = same_start or difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known: {', '.join(known)}"
