"""Torch's pickled tensors -> a folder of safetensors. Runs in the engine's environment, which has torch and safetensors.

    python -I pickles_child.py SHARD.bin… FOLDER

One shard is in memory at a time. The last line on stderr says what went wrong.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"


class BadModelError(Exception):
    """A file is at fault, not this program."""


def main() -> int:
    """Convert what the arguments name."""
    *shards, folder = (Path(argument) for argument in sys.argv[1:])
    try:
        folder.mkdir()
        convert(shards, folder)
    except BadModelError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def convert(shards: list[Path], folder: Path) -> None:
    """Write each shard under its name in the safetensors layout, and an index where there are several."""
    from safetensors.torch import save_file  # type: ignore[import-not-found]

    places: dict[str, str] = {}
    total = 0
    for shard in shards:
        tensors = load(shard)
        name = shard.name.removeprefix("pytorch_").removesuffix(".bin") + ".safetensors"
        twice = sorted(places.keys() & tensors.keys())
        if twice:
            raise BadModelError(f"{shard.name} and another file both hold the tensor {twice[0]!r}")
        places.update(dict.fromkeys(tensors, name))
        total += sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        temporary = folder / f".{name}.new"
        save_file(tensors, temporary, metadata={"format": "pt"})
        temporary.rename(folder / name)
        print(f"{shard.name}: {len(tensors)} tensors", flush=True)  # noqa: T201
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def load(shard: Path) -> dict[str, Any]:
    """The tensors of one file, each with memory of its own: safetensors knows no sharing."""
    data = unpickled(shard)
    if not isinstance(data, dict) or not data:
        raise BadModelError(f"{shard.name} holds no tensors by name")
    import torch  # type: ignore[import-not-found]

    seen: set[int] = set()
    tensors = {}
    for name, tensor in sorted(data.items(), key=lambda item: str(item[0])):
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor) or tensor.is_sparse:
            raise BadModelError(f"{shard.name} holds something else than tensors by name: {str(name)[:80]!r}")
        memory = tensor.untyped_storage().data_ptr()
        plain = tensor.detach().contiguous()
        if memory in seen or plain.untyped_storage().nbytes() != plain.numel() * plain.element_size():
            plain = plain.clone()
        seen.add(memory)
        tensors[name] = plain
    return tensors


def unpickled(shard: Path) -> Any:
    """What the file holds, read so that it can make tensors and nothing else."""
    import pickle

    import torch

    try:
        try:
            return torch.load(shard, weights_only=True, map_location="cpu", mmap=True)
        except RuntimeError as error:
            if "mmap" not in str(error):
                raise
            # Files of before torch 1.6 cannot be mapped.
            return torch.load(shard, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f" ({found[1]})" if found else ""
        raise BadModelError(f"{shard.name} holds more than tensors{what}, and is not loaded") from error
    except Exception as error:  # bytes of anyone's making: what they raise is not to be foreseen
        raise BadModelError(f"{shard.name} is damaged or cut short ({first_line(error)})") from error


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0][:120]


if __name__ == "__main__":
    sys.exit(main())
