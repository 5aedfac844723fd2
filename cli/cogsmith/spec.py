"""What a user writes in models/<name>.yaml: the fields and their types, and reading a file into them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError

from cogsmith import cog_versions
from cogsmith.errors import Mistake, MistakesError
from cogsmith.hardware import Hardware, parse_hardware
from cogsmith.inputs import Input
from cogsmith.model_address import scheme
from cogsmith.model_files import Globs
from cogsmith.spec_fields import (
    CaseSpec,
    ImageSpec,
    InputSpec,
    OneOrMany,
    OutputSpec,
    Part,
    PromptSpec,
    ReasoningSpec,
    RemoteCodeSpec,
    SamplingSpec,
    Texts,
    WeightsSpec,
    about,
)
from cogsmith.spec_inputs import resolve_inputs
from cogsmith.spec_mistakes import Found, prune, type_mistakes
from cogsmith.spec_rules import RULES, secret_mistakes
from cogsmith.yamlfile import Document, load_yaml

_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_NAME_LIMIT = 64
NAME_RULE = f"at most {_NAME_LIMIT} of a-z and 0-9, with single . _ or - between them"
# Leaving out a wrong value can leave its mapping without a required key: that takes one more round for each level.
_ROUNDS = 8


def _empty_definition(value: Any) -> Any:
    return {} if value is None else value


class Spec(Part):
    """One model, as the user wrote it. Made by `load_spec`, which also checks the fields against each other.

    `machine` is what `hardware` names, `signature` what a prediction takes; None stands for a value that is chosen later.
    """

    model: str = Field(
        description="a folder with a checkpoint, a `.gguf` file (dequantized to bfloat16), `hf://owner/repo@revision`, "
        "`https://…/x.tar`, `s3://bucket/prefix` or `gs://bucket/prefix`",
        examples=["weights/my-model"],
    )
    backends: OneOrMany = Field(
        alias="backend",
        description="`vllm` or `tensorrt-llm`; a list of both renders a folder for each",
        examples=["vllm"],
    )
    hardware: str = Field(
        description="`cpu`, or a GPU: `l40s`; `:2`, `:4`, `:8` for several. Replicate's names are taken too",
        examples=["l40s", "h100:2", "cpu"],
    )
    context: int | None = about(
        None, "most tokens of prompt and answer together", 4096, "the checkpoint's, at most 8192", ge=16
    )
    concurrency: int | None = about(
        None,
        "predictions at once; one more is answered with 409",
        32,
        "4 on a CPU, 32 on a GPU",
        ge=1,
        le=1024,
    )
    prompt: PromptSpec = about(PromptSpec(), "how a prompt is made", {"system": "Be brief."}, "none")
    inputs: dict[str, Annotated[InputSpec, BeforeValidator(_empty_definition)]] | None = about(
        None,
        "exactly these inputs: a built-in one by its name, an own one with `type` and `description`",
        {"prompt": None, "max_tokens": {"max": 256}},
        "all built-in ones",
    )
    sampling: SamplingSpec = about(
        SamplingSpec(), "values where a request gives none", {"temperature": 0.7}, "none"
    )
    stop: Texts = about((), "up to 4 texts that end every answer", ["###"], "none")
    stop_token_ids: Annotated[tuple[int, ...], Field(strict=False)] = about(
        (), "tokens that end every answer, besides the checkpoint's own", [128009], "none"
    )
    output: OutputSpec = about(
        OutputSpec(), "what every answer is", {"type": "choice", "choices": ["yes", "no"]}, "text"
    )
    stream: bool = about(True, "send tokens as they come; `false`: the whole answer at once", False)
    reasoning: ReasoningSpec | None = about(
        None, "how thinking is told from the answer", {"parser": "qwen3"}, "all text is the answer"
    )
    engine: dict[str, Any] = about(
        {},
        "arguments of the engine under their own names, in snake_case; below `vllm` or `tensorrt-llm` those of that backend alone",
        {"gpu_memory_utilization": 0.9},
        "none",
    )
    environment: dict[str, str] = about(
        {},
        "variables of the container; Cog's own list of refused names applies, and secrets are refused",
        {"VLLM_LOGGING_LEVEL": "DEBUG"},
        "none",
    )
    image: ImageSpec = about(
        ImageSpec(), "what the image gets besides the engine", {"system_packages": ["git"]}, "none"
    )
    weights: WeightsSpec = about(
        WeightsSpec(), "where the packed weights lie", {"bucket": "file://.bucket"}, "none"
    )
    trust_remote_code: RemoteCodeSpec | None = about(
        None,
        "pack the checkpoint's Python code and let the engine run it",
        {"revision": "0123456789abcdef0123456789abcdef01234567"},
        "it is neither packed nor run",
    )
    tests: Annotated[tuple[CaseSpec, ...], Field(strict=False)] = about(
        (),
        "cases: `input`, and at least one expectation. They are checked; no command runs them yet",
        [{"input": {"prompt": "What is the capital of France?"}, "contains": "Paris"}],
        "none",
    )
    cog: str = about(cog_versions.DEFAULT, "the version of Cog", "0.23.1")

    _document: Document = PrivateAttr(default=Document("", {}, {}))
    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The model's name: its file's."""
        return self._name

    @property
    def document(self) -> Document:
        """The file it was read from."""
        return self._document

    @property
    def machine(self) -> Hardware:
        """The hardware that it names."""
        return parse_hardware(self.hardware)

    @property
    def is_gguf(self) -> bool:
        """Whether the model is one .gguf file instead of a folder."""
        return scheme(self.model) is None and self.model.lower().endswith(".gguf")

    @property
    def globs(self) -> Globs:
        """Which files of weights are the model's."""
        return Globs(self.weights.include, self.weights.exclude)

    @property
    def signature(self) -> tuple[Input, ...]:
        """The inputs of a prediction, in order, with the spec's own defaults and limits."""
        return resolve_inputs(self)

    def at(self, field: str) -> tuple[str, int]:
        """The file as shown, and the line of a dotted field, or of what is around it where it is absent."""
        return self._document.path, self._document.line(field)

    def mistake(self, field: str, message: str, hint: str) -> Mistake:
        """A mistake at that field, for stages that know more than the file."""
        path, line = self.at(field)
        return Mistake(path, line, field, message, hint)


def load_spec(path: Path) -> Spec:
    """Read and check one spec.

    Raises:
        MistakesError: with every mistake of the file.
    """
    document = load_yaml(path, _shown(path))
    found = Found(document)
    spec = _validate(document, found)
    spec._document = document
    spec._name = path.stem
    found.add(_name_mistakes(path, document.path))
    found.add(secret_mistakes(spec))
    found.add([mistake for rule in RULES for mistake in rule(spec)])
    if found.mistakes:
        raise MistakesError(found.mistakes)
    return spec


def _validate(document: Document, found: Found) -> Spec:
    """The fields of the right type. What is wrong is told and left out, so that the rest can still be checked."""
    data = document.data
    for _ in range(_ROUNDS):
        try:
            return Spec.model_validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            found.add(type_mistakes(document, errors, Spec))
            data = prune(data, errors)
    raise MistakesError(found.mistakes)


def is_model_name(name: str) -> bool:
    """Whether a model can be called so: its name is a file's, a folder's and an image's."""
    return len(name) <= _NAME_LIMIT and _NAME.fullmatch(name) is not None


def _name_mistakes(path: Path, shown: str) -> list[Mistake]:
    if is_model_name(path.stem):
        return []
    return [
        Mistake(shown, 1, "", f"the file's name is the model's name, must be {NAME_RULE}", "rename the file")
    ]


def _shown(path: Path) -> str:
    """The path as a person in this folder would write it."""
    absolute = Path.cwd() / path
    if absolute.is_relative_to(Path.cwd()):
        return absolute.relative_to(Path.cwd()).as_posix()
    return path.as_posix()
