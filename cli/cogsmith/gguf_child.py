"""One GGUF file -> a folder of safetensors. Runs in the engine's environment, which has torch and transformers.

    python -I gguf_child.py MODEL.gguf FOLDER

Started with -I: this folder's own gguf.py would stand in front of the package of that name. The last line on
stderr says what went wrong.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

# What depends on the machine or on the library's patch level, not on the model.
_NOT_OF_THE_MODEL = (
    "_from_model_config",
    "_model_name_or_path",
    "_name_or_path",
    "is_local",
    "local_files_only",
    "transformers_version",
)
_QUANTIZED = ("quantization_config", "_pre_quantization_dtype")
_NEEDED = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json")


class BadModelError(Exception):
    """The file is at fault, not this program."""


def main() -> int:
    """Convert what the arguments name."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        parse_once()
        check(source)
        convert(source, folder)
        tidy(folder)
    except BadModelError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def parse_once() -> None:
    """Half of the time would go into what transformers asks for again and again, with the same answer."""
    import gguf  # type: ignore[import-not-found]

    for name in ("GGUFReader", "get_tensor_name_map"):
        setattr(gguf, name, functools.cache(getattr(gguf, name)))


def check(source: Path) -> None:
    """Refuse, before any tensor is read, a file that is cut short or that transformers does not know."""
    from gguf import GGUFReader
    from transformers.modeling_gguf_pytorch_utils import (  # type: ignore[import-not-found]
        GGUF_SUPPORTED_ARCHITECTURES,
    )

    try:
        reader = GGUFReader(str(source))
        field = reader.get_field("general.architecture")
        architecture = field.contents() if field else None
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise BadModelError(f"the file is damaged or cut short ({error})") from error
    if not architecture or not reader.tensors:
        raise BadModelError("the file has no model in it")
    known = set(GGUF_SUPPORTED_ARCHITECTURES)
    # transformers renames some: qwen2moe is its qwen2_moe.
    if not {architecture, architecture.replace("-", "_"), architecture.replace("moe", "_moe")} & known:
        raise BadModelError(f"transformers cannot read the GGUF architecture {architecture!r}")


def convert(source: Path, folder: Path) -> None:
    """Dequantize to bfloat16 and write model and tokenizer."""
    import torch  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found]

    place, name = str(source.parent), source.name
    try:
        tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=name)
        model = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.bfloat16)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise BadModelError(f"transformers cannot read the model: {first_line(error)}") from error
    # The weights are plain numbers now, but the model still counts as quantized, and would refuse to be saved.
    model.hf_quantizer = None
    model._is_quantized = False
    for name in _QUANTIZED:
        if hasattr(model.config, name):
            delattr(model.config, name)
    model.save_pretrained(folder, max_shard_size="5GB")
    tokenizer.save_pretrained(folder)
    if tokenizer.chat_template and not (folder / "chat_template.jinja").exists():
        raise BadModelError("its chat template was not written")


def tidy(folder: Path) -> None:
    """Make the files depend on the model alone, and see that they are all there."""
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing or not any(folder.glob("*.safetensors")):
        raise BadModelError(f"transformers wrote no {missing[0] if missing else 'tensors'}")
    for name in _NEEDED[:3]:
        path = folder / name
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in _NOT_OF_THE_MODEL:
            data.pop(key, None)
        path.write_text(
            json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
