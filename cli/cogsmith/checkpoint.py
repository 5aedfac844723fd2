"""What is in a model's folder: its figures, its tokenizer's, its chat template, and whether it is whole.

Only small files and the headers of safetensors files are read, never a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cogsmith import model_config
from cogsmith.chat_template import Trial, try_template
from cogsmith.checkpoint_files import Folder, read_folder
from cogsmith.errors import UserError
from cogsmith.model_config import BadJsonError, ModelConfig, read_json
from cogsmith.model_files import ALL, Globs, Problem
from cogsmith.quantization import read_quantization

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "spiece.model", "vocab.txt")


class CheckpointError(UserError):
    """Everything that is wrong with a folder, each with its hint."""

    def __init__(self, folder: Path, problems: Sequence[Problem]) -> None:
        self.problems = tuple((f"{folder}: {message}", hint) for message, hint in problems)
        super().__init__(*self.problems[0])

    def lines(self) -> list[str]:
        return [line for message, hint in self.problems for line in (f"Error: {message}", f"Hint: {hint}")]


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint. Figures are those of the language model; None where config.json does not say.

    Attributes:
        folder: where it is.
        architecture: the first of config.json's `architectures`.
        dtype: the type its weights are meant to run in, such as bfloat16.
        context: most tokens that it was made for, before any position scaling asked for at run time.
        rope_scaling: the position scaling that its config asks for, such as `llama3 x8`.
        parameters: numbers in all tensors; packed ones of a quantized model count as stored.
        tensor_bytes: their size, in bytes.
        tensors: how many there are.
        quantization: how its weights are quantized; see `read_quantization`.
        chat_template: the text of its chat template, usable or not.
        system_role: whether its chat template takes a system message; None without a usable template.
        eos_token_ids: ids that end an answer.
        special_tokens: texts that become control tokens, the longest first.
        sampling: the values it advises, by this project's names of sampling parameters.
        files: what to pack: paths inside the folder, sorted.
        warnings: what is odd, one sentence each.
    """

    folder: Path
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
    tensor_bytes: int
    tensors: int
    quantization: str | None
    chat_template: str | None
    system_role: bool | None
    eos_token_ids: tuple[int, ...]
    bos_token: str | None
    eos_token: str | None
    special_tokens: tuple[str, ...]
    sampling: Mapping[str, int | float]
    files: tuple[str, ...]
    warnings: tuple[str, ...]


def read_checkpoint(folder: Path, code: bool = False, globs: Globs = ALL) -> Checkpoint:
    """Read a folder, and try its chat template in a child process.

    Args:
        folder: where it is.
        code: whether its Python files belong to the model.
        globs: which of its weights do.

    Raises:
        CheckpointError: with everything that keeps it from being packed and served.
    """
    _check_folder(folder)
    contents = read_folder(folder, code, globs)
    texts = _Texts(folder, contents)
    if not any(name in contents.names for name in _TOKENIZERS) and not _has_other_tokenizer(contents.names):
        contents.problems.append(
            ("holds no tokenizer", "download tokenizer.json or the tokenizer's other files too")
        )
    if contents.problems:
        raise CheckpointError(folder, contents.problems)
    return _described(contents, texts)


def _check_folder(folder: Path) -> None:
    if not folder.exists():
        hint = "correct `model`; a model of the Hugging Face Hub is written hf://owner/repo"
        raise CheckpointError(folder, [("there is no such folder", hint)])
    if not folder.is_dir():
        hint = "name the folder that holds config.json, or a .gguf file"
        raise CheckpointError(folder, [("is a file, must be a folder", hint)])
    names = {entry.name for entry in folder.iterdir()}
    if "adapter_config.json" in names and "config.json" not in names:
        hint = "name the model that it belongs to; merge the adapter into it first to serve both"
        raise CheckpointError(folder, [("is a LoRA adapter, not a model", hint)])


def _has_other_tokenizer(names: list[str]) -> bool:
    return {"vocab.json", "merges.txt"} <= set(names) or any(name.endswith(".tiktoken") for name in names)


@dataclass
class _Texts:
    """The small JSON files; one that cannot be read becomes a problem of the folder."""

    folder: Path
    contents: Folder
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "hf_quant_config.json",
        ):
            if name in self.contents.names:
                self._read(name)
        if "config.json" not in self.contents.names:
            linked = any(message.startswith("config.json ") for message, _ in self.contents.problems)
            if not linked:
                self.contents.problems.insert(0, ("holds no config.json", "name the folder that holds it"))
        elif "config.json" in self.files:
            self._check_names(ModelConfig(self.files["config.json"]))

    def _check_names(self, config: ModelConfig) -> None:
        """An engine chooses the model's code by these two."""
        for key, value in (("architectures", config.architecture), ("model_type", config.model_type)):
            if value is None:
                hint = "name the folder of a language model in the transformers layout"
                self.contents.problems.append((f"config.json has no {key}", hint))

    def _read(self, name: str) -> None:
        try:
            self.files[name] = read_json(self.folder / name)
        except BadJsonError as error:
            self.contents.problems.append((error.message, error.hint))

    def get(self, name: str) -> dict[str, Any]:
        return self.files.get(name, {})

    def token(self, name: str) -> str | None:
        for file in ("tokenizer_config.json", "special_tokens_map.json"):
            text = model_config.token_text(self.get(file).get(name))
            if text is not None:
                return text
        return None


def _described(contents: Folder, texts: _Texts) -> Checkpoint:
    config = ModelConfig(texts.get("config.json"))
    generation = texts.get("generation_config.json")
    tokenizer_config = texts.get("tokenizer_config.json")
    template = _template(contents, tokenizer_config)
    bos, eos = texts.token("bos_token"), texts.token("eos_token")
    trial = try_template(template, bos or "", eos or "") if template is not None else None
    eos_ids = model_config.token_ids(generation.get("eos_token_id")) or config.eos_token_ids
    warnings = [
        *_template_warnings(trial),
        *_config_warnings(config, eos_ids, bool(generation)),
        *contents.warnings,
    ]
    tensors = contents.tensors.values()
    return Checkpoint(
        folder=contents.path,
        architecture=config.architecture or "",
        model_type=config.model_type or "",
        dtype=config.dtype,
        context=config.context,
        rope_scaling=config.rope_scaling,
        vocab_size=config.number("vocab_size"),
        layers=config.number("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
        hidden_size=config.hidden_size,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        parameters=sum(tensor.elements for tensor in tensors),
        tensor_bytes=sum(tensor.end - tensor.begin for tensor in tensors),
        tensors=len(contents.tensors),
        quantization=read_quantization(texts.get("config.json"), texts.files.get("hf_quant_config.json")),
        chat_template=template,
        system_role=trial.system_role if trial else None,
        eos_token_ids=eos_ids,
        bos_token=bos,
        eos_token=eos,
        special_tokens=model_config.special_tokens(texts.get("tokenizer.json"), tokenizer_config),
        sampling=model_config.sampling(generation),
        files=contents.packed(),
        warnings=tuple(warnings),
    )


def _template(contents: Folder, tokenizer_config: Mapping[str, Any]) -> str | None:
    """A file of its own wins over the one in tokenizer_config.json, as in transformers."""
    if "chat_template.jinja" in contents.names:
        text = (contents.path / "chat_template.jinja").read_text("utf-8", errors="replace")
        if text.strip():
            return text
    return model_config.config_template(tokenizer_config)


def _template_warnings(trial: Trial | None) -> list[str]:
    if trial is None:
        return ["has no chat template: give the spec a prompt.template"]
    if trial.error is not None:
        return [f"its chat template {trial.error}: give the spec a prompt.template"]
    if trial.refusal is not None:
        return [f"its chat template refuses a system message: {trial.refusal}"]
    if not trial.system_role:
        return ["its chat template leaves a system message out of the prompt"]
    return []


def _config_warnings(config: ModelConfig, eos_ids: tuple[int, ...], has_generation: bool) -> list[str]:
    warnings = []
    if not has_generation:
        warnings.append("has no generation_config.json: it advises no sampling values")
    if len(eos_ids) > 1:
        warnings.append(f"several tokens end an answer: {', '.join(map(str, eos_ids))}")
    if config.context is None:
        warnings.append("its config.json does not say how many tokens it takes: set `context` in the spec")
    return warnings
