"""A folder whose weights are torch's pickles (.bin) -> a folder of safetensors, made once, by a child in the engine's environment.

A pickle is a program. It is read with torch's `weights_only`, which runs none of it but makes tensors, and in a child without
credentials all the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from cogsmith.checkpoint import CheckpointError
from cogsmith.conversion import convert_once, locked
from cogsmith.links import may_follow
from cogsmith.model_config import BadJsonError, read_json
from cogsmith.model_files import BIN_INDEX, Globs, Problem, bins, is_kept, missing_numbers, safetensors, some

# Goes up when the same files would be converted to other bytes.
CONVERTER = 1
_CHILD = Path(__file__).with_name("pickles_child.py")
# Tensors that share memory in the pickle are written out one by one.
_GROWTH = 1.5
_POINTER = b"version "


def only_pickles(names: Iterable[str], globs: Globs) -> list[str]:
    """The .bin files of a model that has no safetensors; empty for any other."""
    names = list(names)
    return [] if safetensors(names, globs) else sorted(bins(names, globs))


def convert(
    folder: Path, globs: Globs, code: bool, python: Callable[[], Path], cache: Path, log: Path
) -> Path:
    """A folder with the same model in safetensors: converted weights, and the small files beside them.

    Args:
        python: gives that of an environment with torch and safetensors; asked only when there is something to convert.
        cache: folders are kept below it, by the sha256 of what they were made from.
        log: what the child prints.

    Raises:
        UserError: a shard is missing or no pickle of tensors, the disk is too full, the child failed.
    """
    names = _plain_files(folder)
    shards = _complete(folder, names, only_pickles(names, globs))
    weights = _digest(folder, shards)
    made = convert_once(
        cache / "converted" / f"{weights}-bin-{CONVERTER}",
        folder,
        int(sum((folder / name).stat().st_size for name in shards) * _GROWTH),
        _CHILD,
        [folder / name for name in shards],
        python,
        log,
    )
    return _with_small_files(made, folder, [name for name in names if is_kept(name, code)])


def _plain_files(folder: Path) -> list[str]:
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_file():
            continue
        if path.is_symlink() and not may_follow(folder, path):
            raise CheckpointError(
                folder,
                [
                    (
                        f"{path.name} is a link that leads out of the folder",
                        "put a copy of the file in its place",
                    )
                ],
            )
        found.append(path.name)
    return found


def _complete(folder: Path, names: list[str], shards: list[str]) -> list[str]:
    problems: list[Problem] = []
    if BIN_INDEX in names:
        try:
            places = read_json(folder / BIN_INDEX).get("weight_map")
        except BadJsonError as error:
            raise CheckpointError(folder, [(error.message, error.hint)]) from None
        wanted = sorted({str(name) for name in places.values()}) if isinstance(places, dict) else []
        absent = [name for name in wanted if name not in shards]
        if absent or not wanted:
            said = f"names {len(absent)} of {len(wanted)} files that are not there: {some(absent)}"
            problems.append(
                (f"{BIN_INDEX} {said if wanted else 'has no weight_map'}", "download the missing files")
            )
        shards = [name for name in shards if name in wanted]
    else:
        problems += missing_numbers(shards)
    for name in shards:
        with (folder / name).open("rb") as file:
            head = file.read(len(_POINTER))
        if head == _POINTER:
            problems.append(
                (f"{name} is a Git LFS pointer, not the file", "run `git lfs pull` in its repository")
            )
        elif not head:
            problems.append((f"{name} is empty: an interrupted download?", "download the file again"))
    if problems:
        raise CheckpointError(folder, problems)
    return shards


def _digest(folder: Path, names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        with (folder / name).open("rb") as file:
            digest.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def _with_small_files(made: Path, folder: Path, small: list[str]) -> Path:
    """A change of a small file must not have gigabytes converted again: the tensors are links to the converted ones."""
    whole = made.with_name(f"{made.name}-with-{_digest(folder, small)[:16]}")
    if whole.is_dir():
        return whole
    with locked(whole):
        partial = whole.with_name(whole.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        if not whole.is_dir():
            partial.mkdir()
            for path in sorted(made.iterdir()):
                os.link(path, partial / path.name)
            for name in small:
                if not (partial / name).exists():
                    shutil.copyfile(folder / name, partial / name)
            partial.rename(whole)
    return whole
