"""Which files of a checkpoint folder are the model: tensors, and the small files that an engine reads."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from cogsmith.links import may_follow
from cogsmith.model_config import BadJsonError, read_json
from cogsmith.safetensors import DamagedError, Tensor, read_header

INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
_KEPT_SUFFIXES = (".json", ".jinja", ".model", ".tiktoken")
_KEPT_NAMES = frozenset({"merges.txt", "vocab.txt"})
_KEPT_STARTS = ("license", "notice")
# Left over from training or made for other programs; no engine reads them.
_DROPPED = re.compile(
    r".*\.(bin|msgpack|h5)\.index\.json|trainer_state\.json|adapter_config\.json|.*\.safetensors"
)
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_SHOWN = 5

Problem = tuple[str, str]


@dataclass
class Folder:
    """A folder's files, and what is wrong with them.

    Attributes:
        names: its visible regular files, links that may be followed among them.
        tensors: every tensor by name, over all shards.
        shards: the safetensors files of the model.
        code: whether Python files belong to the model.
        problems: sentence and hint of each.
        warnings: what is odd, but no mistake.
    """

    path: Path
    code: bool = False
    names: list[str] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def packed(self) -> tuple[str, ...]:
        """The files that make the model, sorted: small ones that an engine reads, and the shards."""
        small = [name for name in self.names if _is_kept(name) or (self.code and name.endswith(".py"))]
        return tuple(sorted({*small, *self.shards}))


def read_folder(path: Path, code: bool = False) -> Folder:
    """List a folder, choose its safetensors files and read their headers.

    Links are followed where they stay inside the folder, or lead to the `blobs` folder two levels up: the cache of the
    Hugging Face client is made of such links. Any other link is a problem, for what it leads to would be published.
    """
    folder = Folder(path, code)
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(".") or entry.is_dir():
            continue
        if entry.is_symlink() and not _followed(path, entry):
            if _is_kept(entry.name) or entry.name.endswith(".safetensors"):
                folder.problems.append(_link_problem(entry))
        elif entry.is_file():
            folder.names.append(entry.name)
    _choose_shards(folder)
    _read_headers(folder)
    return folder


def _followed(folder: Path, link: Path) -> bool:
    try:
        return link.is_file() and may_follow(folder, link)
    except (OSError, RuntimeError):
        return False


def _link_problem(link: Path) -> Problem:
    if not link.exists():
        return f"{link.name} is a link to a file that is not there", "download the file again"
    return f"{link.name} is a link that leads out of the folder", "put a copy of the file in its place"


def _is_kept(name: str) -> bool:
    low = name.lower()
    if _DROPPED.fullmatch(low):
        return False
    return low.endswith(_KEPT_SUFFIXES) or low in _KEPT_NAMES or low.startswith(_KEPT_STARTS)


def _choose_shards(folder: Folder) -> None:
    found = [
        name for name in folder.names if name.endswith(".safetensors") and name != "adapter_model.safetensors"
    ]
    if INDEX in folder.names:
        _choose_indexed(folder, found)
        return
    # Some repositories carry the weights twice, once in their maker's own layout.
    usual = [name for name in found if not name.startswith("consolidated")]
    folder.shards = usual or found
    _check_numbers(folder)
    if not folder.shards and not folder.problems:
        folder.problems.append(_no_weights(folder.names))


def _choose_indexed(folder: Folder, found: list[str]) -> None:
    try:
        places = _index(folder.path)
    except BadJsonError as error:
        folder.problems.append((error.message, error.hint))
        return
    wanted = sorted(set(places.values()))
    absent = [name for name in wanted if name not in found]
    told = {message.split()[0] for message, _ in folder.problems}
    absent = [name for name in absent if name not in told]
    if absent:
        some = ", ".join(absent[:_SHOWN]) + (
            f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
        )
        message = f"{INDEX} names {len(absent)} of {len(wanted)} files that are not there: {some}"
        folder.problems.append((message, "download the missing files"))
    folder.shards = [name for name in wanted if name in found]


def _index(path: Path) -> dict[str, str]:
    places = read_json(path / INDEX).get("weight_map")
    good = isinstance(places, dict) and places and all(isinstance(name, str) for name in places.values())
    if not good or not isinstance(places, dict):
        raise BadJsonError(f"{INDEX} has no weight_map", "download the file again")
    outside = sorted(
        {name for name in places.values() if "/" in name or "\\" in name or name.startswith(".")}
    )
    if outside:
        raise BadJsonError(
            f"{INDEX} names {outside[0][:80]!r}, which is no file of the folder",
            "do not trust this checkpoint",
        )
    return places


def _check_numbers(folder: Folder) -> None:
    """Numbered shards without an index still say how many there must be."""
    counts: dict[tuple[str, str], set[int]] = {}
    for name in folder.shards:
        match = _NUMBERED.fullmatch(name)
        if match:
            counts.setdefault((match[1], match[3]), set()).add(int(match[2]))
    for (start, total), numbers in counts.items():
        absent = sorted(set(range(1, min(int(total), 10_000) + 1)) - numbers)
        if absent:
            some = ", ".join(f"{start}-{number:05d}-of-{total}.safetensors" for number in absent[:_SHOWN])
            more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
            folder.problems.append(
                (f"{len(absent)} of {int(total)} shards are not there: {some}{more}", "download them")
            )


def _no_weights(names: list[str]) -> Problem:
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        return "holds no safetensors, only GGUF", f"name the file itself in `model`: …/{gguf[0]}"
    pickles = [name for name in names if name.lower().endswith(_PICKLES)]
    if pickles:
        message = f"holds no safetensors, only {pickles[0]}: loading a pickle runs code that it carries"
        return message, "use a checkpoint in safetensors, or convert it with transformers' save_pretrained"
    return "holds no safetensors file", "download the model's .safetensors files too"


def _read_headers(folder: Folder) -> None:
    holders: dict[str, str] = {}
    damaged: set[str] = set()
    for shard in folder.shards:
        try:
            tensors = read_header(folder.path / shard)
        except DamagedError as error:
            damaged.add(shard)
            folder.problems.append((error.message, error.hint))
        except OSError as error:
            damaged.add(shard)
            folder.problems.append((f"{shard} cannot be read ({error.strerror})", "check its permissions"))
        else:
            _check_twice(folder, holders, tensors, shard)
            folder.tensors.update(tensors)
            holders.update(dict.fromkeys(tensors, shard))
    if INDEX in folder.names and folder.shards:
        _check_index(folder, holders, damaged)
    if folder.shards and not folder.tensors and not folder.problems:
        folder.problems.append(("holds safetensors files without a single tensor", "download them again"))


def _check_twice(folder: Folder, holders: dict[str, str], tensors: dict[str, Tensor], shard: str) -> None:
    """An engine loads every file that it finds, in an order of its own: of a tensor in two, either may win."""
    twice = sorted(set(holders) & set(tensors))
    if twice:
        other = holders[twice[0]]
        message = f"{shard} and {other} hold {len(twice)} tensors of the same name, such as {twice[0][:80]}"
        folder.problems.append((message, "keep the files of one copy of the weights"))


def _check_index(folder: Folder, holders: dict[str, str], damaged: set[str]) -> None:
    places = _index(folder.path)
    readable = set(folder.shards) - damaged
    stale = sorted(key for key, shard in places.items() if shard in readable and holders.get(key) != shard)
    if stale:
        message = f"{INDEX} does not fit the shards: {len(stale)} tensors are not where it says, such as {stale[0][:80]}"
        folder.problems.append((message, "download the index and the shards of one revision"))
    extra = sorted(set(holders) - set(places))
    if extra:
        folder.warnings.append(f"{len(extra)} tensors are in no line of {INDEX}, such as {extra[0][:80]}")
