"""Which files of a checkpoint folder are the model: tensors, and the small files that an engine reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cogsmith.links import may_follow
from cogsmith.model_config import BadJsonError, read_json
from cogsmith.model_files import (
    ALL,
    INDEX,
    Globs,
    Problem,
    is_kept,
    missing_numbers,
    no_weights,
    safetensors,
    some,
)
from cogsmith.safetensors import DamagedError, Tensor, read_header


@dataclass
class Folder:
    """A folder's files, and what is wrong with them.

    Attributes:
        names: its visible regular files, links that may be followed among them.
        tensors: every tensor by name, over all shards.
        shards: the safetensors files of the model.
        code: whether Python files belong to the model.
        globs: which of its weights do.
        problems: sentence and hint of each.
        warnings: what is odd, but no mistake.
    """

    path: Path
    code: bool = False
    globs: Globs = ALL
    names: list[str] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    shards: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def packed(self) -> tuple[str, ...]:
        """The files that make the model, sorted: small ones that an engine reads, and the shards."""
        small = [name for name in self.names if is_kept(name, self.code)]
        return tuple(sorted({*small, *self.shards}))


def read_folder(path: Path, code: bool = False, globs: Globs = ALL) -> Folder:
    """List a folder, choose its safetensors files and read their headers.

    Links are followed where they stay inside the folder, or lead to the `blobs` folder two levels up: the cache of the
    Hugging Face client is made of such links. Any other link is a problem, for what it leads to would be published.
    """
    folder = Folder(path, code, globs)
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(".") or entry.is_dir():
            continue
        if entry.is_symlink() and not _followed(path, entry):
            if is_kept(entry.name) or entry.name.endswith(".safetensors"):
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


def _choose_shards(folder: Folder) -> None:
    found = safetensors(folder.names, folder.globs)
    if INDEX in folder.names:
        _choose_indexed(folder, found)
        return
    folder.shards = found
    folder.problems += missing_numbers(folder.shards)
    if not folder.shards and not folder.problems:
        folder.problems.append(no_weights(folder.names, folder.globs))


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
        message = f"{INDEX} names {len(absent)} of {len(wanted)} files that are not there: {some(absent)}"
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
