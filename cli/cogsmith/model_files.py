"""Which of a model's files belong to it, told by their names alone: small files that an engine reads, and one copy of the weights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

INDEX = "model.safetensors.index.json"
BIN_INDEX = "pytorch_model.bin.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
_KEPT_SUFFIXES = (".json", ".jinja", ".model", ".tiktoken")
_KEPT_NAMES = frozenset({"merges.txt", "vocab.txt"})
_KEPT_STARTS = ("license", "notice")
# Left over from training or made for other programs; no engine reads them.
_DROPPED = re.compile(
    r".*\.(bin|msgpack|h5)\.index\.json|trainer_state\.json|adapter_config\.json|.*\.safetensors"
)
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.(safetensors|bin)")
# Other .bin files are an optimizer's, a scheduler's or a trainer's.
_BIN = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")
_SHOWN = 5

Problem = tuple[str, str]


@dataclass(frozen=True)
class Globs:
    """Which files of weights belong to the model: those that a pattern of `include` matches and none of `exclude` does."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def take(self, name: str) -> bool:
        """Whether a file of weights does. Without `include` all do."""
        included = not self.include or any(fnmatchcase(name, glob) for glob in self.include)
        return included and not any(fnmatchcase(name, glob) for glob in self.exclude)


ALL = Globs()


def is_kept(name: str, code: bool = False) -> bool:
    """Whether it is a small file that an engine reads; Python files are with `code`."""
    low = name.lower()
    if _DROPPED.fullmatch(low):
        return False
    kept = low.endswith(_KEPT_SUFFIXES) or low in _KEPT_NAMES or low.startswith(_KEPT_STARTS)
    return kept or (code and name.endswith(".py"))


def safetensors(names: Iterable[str], globs: Globs) -> list[str]:
    """The model's safetensors files, as far as names tell."""
    found = [
        name
        for name in names
        if name.endswith(".safetensors") and name != "adapter_model.safetensors" and globs.take(name)
    ]
    # Some repositories carry the weights twice, once in their maker's own layout.
    usual = [name for name in found if not name.startswith("consolidated")]
    return usual or found


def bins(names: Iterable[str], globs: Globs) -> list[str]:
    """The model's weights as torch pickles them."""
    return [name for name in names if _BIN.fullmatch(name) and globs.take(name)]


def chosen(names: Iterable[str], globs: Globs, code: bool = False) -> list[str]:
    """Of all files of a repository those to fetch: the small ones, and the weights in one format, safetensors before .bin.

    Files below folders are no part of the model: they hold other layouts (original/, onnx/).
    """
    top = sorted(name for name in names if "/" not in name and not name.startswith("."))
    small = {name for name in top if is_kept(name, code)}
    if "config.json" not in top:
        small |= {"adapter_config.json"} & set(top)  # by it an adapter is told
    weights = safetensors(top, globs)
    if not weights:
        weights = bins(top, globs)
        if weights and BIN_INDEX in top:
            weights.append(BIN_INDEX)
    return sorted({*small, *weights})


def missing_numbers(names: Iterable[str]) -> list[Problem]:
    """Numbered shards say without an index how many there must be: those that are not there."""
    counts: dict[tuple[str, str, str], set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match:
            counts.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    problems = []
    for (start, total, ending), numbers in counts.items():
        absent = sorted(set(range(1, min(int(total), 10_000) + 1)) - numbers)
        if absent:
            shown = some(f"{start}-{number:05d}-of-{total}.{ending}" for number in absent)
            problems.append((f"{len(absent)} of {int(total)} shards are not there: {shown}", "download them"))
    return problems


def some(names: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def no_weights(names: Iterable[str], globs: Globs = ALL) -> Problem:
    """What a folder holds instead of weights, for one that has none."""
    names = list(names)
    if globs != ALL and (found := safetensors(names, ALL) or bins(names, ALL)):
        message = f"has no weights that weights.include and weights.exclude leave, only {some(found)}"
        return message, "change the patterns"
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        return "holds no safetensors, only GGUF", f"name the file itself in `model`: …/{gguf[0]}"
    pickles = [name for name in names if name.lower().endswith(_PICKLES)]
    if pickles:
        message = f"holds no safetensors, only {pickles[0]}: loading a pickle runs code that it carries"
        return message, "use a checkpoint in safetensors, or convert it with transformers' save_pretrained"
    return "holds no safetensors file", "download the model's .safetensors files too"
