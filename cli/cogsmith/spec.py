"""What a user writes in models/<name>.yaml: the fields and their types, and reading a file into them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from cogsmith.errors import Mistake, MistakesError
from cogsmith.hardware import Hardware, parse_hardware
from cogsmith.inputs import Input
from cogsmith.spec_inputs import resolve_inputs
from cogsmith.spec_mistakes import Found, prune, type_mistakes
from cogsmith.spec_rules import RULES, secret_mistakes
from cogsmith.yamlfile import Document, load_yaml

_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
_NAME_LIMIT = 64
# Leaving out a wrong value can leave its mapping without a required key: that takes one more round for each level.
_ROUNDS = 8


class _Part(BaseModel):
    """A mapping of the file. A key with nothing after it counts as absent, as where all below it is commented out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key == "default"}


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _empty_definition(value: Any) -> Any:
    return {} if value is None else value


Texts = Annotated[tuple[str, ...], Field(strict=False)]


class PromptSpec(_Part):
    """How a prompt is made: a Jinja template over the inputs (else the checkpoint's own), and a system prompt."""

    template: str | None = None
    system: str | None = None


class SamplingSpec(_Part):
    """Values of sampling parameters where a request gives none. Their limits are those of the inputs of the same names."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None


class InputSpec(_Part):
    """One entry of `inputs`, as written. Which keys go together depends on the name: see spec_inputs."""

    type: Literal["string", "integer", "number", "boolean"] | None = None
    description: str | None = None
    default: Any = None
    min: Any = None
    max: Any = None
    min_length: Annotated[int, Field(ge=0)] | None = None
    max_length: Annotated[int, Field(ge=0)] | None = None
    regex: str | None = None
    choices: Annotated[tuple[Any, ...], Field(strict=False)] | None = None


class ImageSpec(_Part):
    """What the image gets besides the engine: apt packages, shell commands at build time, pinned Python packages."""

    system_packages: Texts = ()
    run: Texts = ()
    python_packages: Texts = ()


class WeightsSpec(_Part):
    """Where packed weights go (`bucket`), and the prefix they are read from at boot (`url`)."""

    bucket: str = "file://.bucket"
    url: str | None = None


class CaseSpec(_Part):
    """One entry of `tests`: an input, and what its answer must show."""

    name: str | None = None
    input: dict[str, Any]
    contains: Annotated[Texts, BeforeValidator(_one_or_many)] = ()
    regex: str | None = None
    json_schema: dict[str, Any] | None = None
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    min_tokens: Annotated[int, Field(ge=1)] | None = None


class Spec(_Part):
    """One model, as the user wrote it. Made by `load_spec`, which also checks the fields against each other.

    Attributes:
        model: a folder with a checkpoint, or a .gguf file; relative to the project's root.
        backend: the engine: `vllm`.
        hardware: as written; `machine` is what it names.
        context: most tokens of prompt and answer together; None: chosen from the checkpoint.
        concurrency: predictions at once; None: chosen later.
        inputs: as written; None: the built-in ones. `signature` is what a prediction takes.
        stop: texts that end every answer.
        engine: engine arguments under their own names, in snake_case.
        environment: variables of the container.
        cog: the version of Cog that the image is built for.
    """

    model: str
    backend: str
    hardware: str
    context: Annotated[int, Field(ge=16)] | None = None
    concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    prompt: PromptSpec = PromptSpec()
    inputs: dict[str, Annotated[InputSpec, BeforeValidator(_empty_definition)]] | None = None
    sampling: SamplingSpec = SamplingSpec()
    stop: Texts = ()
    engine: dict[str, Any] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    image: ImageSpec = ImageSpec()
    weights: WeightsSpec = WeightsSpec()
    tests: Annotated[tuple[CaseSpec, ...], Field(strict=False)] = ()
    cog: str = "0.23.1"

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
        return self.model.lower().endswith(".gguf")

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


def _name_mistakes(path: Path, shown: str) -> list[Mistake]:
    if _NAME.fullmatch(path.stem) and len(path.stem) <= _NAME_LIMIT:
        return []
    rule = f"at most {_NAME_LIMIT} of a-z and 0-9, with single . _ or - between them"
    return [Mistake(shown, 1, "", f"the file's name is the model's name, must be {rule}", "rename the file")]


def _shown(path: Path) -> str:
    """The path as a person in this folder would write it."""
    absolute = Path.cwd() / path
    if absolute.is_relative_to(Path.cwd()):
        return absolute.relative_to(Path.cwd()).as_posix()
    return path.as_posix()
