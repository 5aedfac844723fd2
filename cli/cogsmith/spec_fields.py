"""The mappings that a spec is made of: their fields, types, descriptions and examples.

The JSON Schema that editors read and the README's table are made from what is written here and in spec.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator


class Part(BaseModel):
    """A mapping of the file. A key with nothing after it counts as absent, as where all below it is commented out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key == "default"}


def about(default: Any, description: str, example: Any, otherwise: str = "", **more: Any) -> Any:
    """A field's description and example; `otherwise` says in words what holds where it is left out."""
    extra: dict[str, Any] = {"x-default": otherwise} if otherwise else {}
    return Field(default, description=description, examples=[example], json_schema_extra=extra, **more)


def one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], Field(strict=False)]
_EITHER = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
OneOrMany = Annotated[Texts, BeforeValidator(one_or_many), WithJsonSchema(_EITHER)]


class PromptSpec(Part):
    """How a prompt is made: a Jinja template over the inputs (else the checkpoint's own), and a system prompt."""

    template: str | None = about(
        None,
        "Jinja over the inputs, rendered once; what a user sends is never rendered again",
        "Question: {{ question }}\nAnswer:",
        "the checkpoint's chat template",
    )
    system: str | None = about(None, "default system prompt", "Answer in one sentence.", "none")
    chat_template_kwargs: dict[str, Any] = about(
        {}, "variables of the checkpoint's chat template", {"enable_thinking": False}, "none"
    )


class SamplingSpec(Part):
    """Values of sampling parameters where a request gives none. Their limits are those of the inputs of the same names."""

    max_tokens: int | None = about(None, "most tokens of an answer", 256, "512, or half the context")
    min_tokens: int | None = about(None, "fewest tokens before the model may stop", 8, "0")
    temperature: float | None = about(
        None, "randomness, 0 to 2; 0 is greedy", 0.7, "the checkpoint's advice, else 1"
    )
    top_p: float | None = about(
        None,
        "choose among the likeliest tokens that have this probability together",
        0.9,
        "the checkpoint's advice, else 1",
    )
    top_k: int | None = about(
        None, "choose among this many tokens; 0 means all", 20, "the checkpoint's advice, else 0"
    )
    presence_penalty: float | None = about(
        None, "-2 to 2; above 0 favours unused tokens", 0.5, "the checkpoint's advice, else 0"
    )
    frequency_penalty: float | None = about(
        None, "-2 to 2; above 0 favours rarely used tokens", 0.5, "the checkpoint's advice, else 0"
    )
    repetition_penalty: float | None = about(
        None, "above 1 discourages repetition", 1.1, "the checkpoint's advice, else 1"
    )
    seed: int | None = about(None, "repeats answers; 0 is a seed", 0, "a new one for each answer")


class InputSpec(Part):
    """One entry of `inputs`, as written. Which keys go together depends on the name: see spec_inputs."""

    type: Literal["string", "integer", "number", "boolean"] | None = about(
        None, "of an own input", "string", "that of the built-in input"
    )
    description: str | None = about(
        None, "one line, shown in the playground", "What to ask.", "that of the built-in input"
    )
    default: Any = about(None, "value where a request gives none", 128, "an own input is required")
    min: Any = about(None, "least number", 1, "that of the built-in input")
    max: Any = about(None, "greatest number", 256, "that of the built-in input")
    min_length: int | None = about(None, "fewest characters", 1, "none", ge=0)
    max_length: int | None = about(None, "most characters", 500, "none", ge=0)
    regex: str | None = about(None, "what a text must match", "^[a-z_, ]+$", "none")
    choices: Annotated[tuple[Any, ...], Field(strict=False)] | None = about(
        None, "the only values it takes", ["sqlite", "postgres"], "any"
    )


class OutputSpec(Part):
    """What every answer is. `schema` is the JSON Schema of a `json` answer, under the key `schema`."""

    type: Literal["text", "json", "regex", "choice"] = about("text", "what every answer is", "json")
    json_schema: dict[str, Any] | None = about(
        None,
        "JSON Schema of a json answer",
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "any JSON object",
        alias="schema",
    )
    regex: str | None = about(
        None, "what a regex answer matches as a whole", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "none"
    )
    choices: Texts = about((), "the texts that a choice answer is one of", ["positive", "negative"], "none")


class ReasoningSpec(Part):
    """How the thinking of a reasoning model is told from its answer, and what becomes of it."""

    parser: str = Field(description="the engine's reasoning parser for this model", examples=["qwen3"])
    show: bool = about(False, "keep the thinking in the answer, between `<think>` and `</think>`", True)


class RemoteCodeSpec(Part):
    """Leave to run Python out of the checkpoint, given for one revision of it."""

    revision: str = Field(
        description="the commit (40 hex digits) whose code you have read",
        examples=["0123456789abcdef0123456789abcdef01234567"],
    )


class ImageSpec(Part):
    """What the image gets besides the engine: apt packages, shell commands at build time, pinned Python packages."""

    system_packages: Texts = about((), "apt packages on top of the engine's", ["git"], "none")
    run: Texts = about((), "shell commands at build time", ["echo hello"], "none")
    python_packages: Texts = about(
        (), "pinned Python packages on top of the engine's", ["einops==0.8.1"], "none"
    )


class WeightsSpec(Part):
    """Where packed weights go (`bucket`), the prefix they are read from at boot (`url`), and which files of weights are the model's."""

    bucket: str = about(
        "file://.bucket",
        "where `pack` writes: `file://FOLDER`, `s3://BUCKET/PREFIX` or `gs://BUCKET/PREFIX`",
        "s3://my-bucket/models",
    )
    url: str | None = about(
        None,
        "`https://` prefix from which the container reads the object. Without it the container needs `COG_WEIGHTS`",
        "https://weights.example.com/models",
        "none",
    )
    include: Texts = about(
        (),
        "patterns of names: only these files of weights; the small files are always taken",
        ["model-*.safetensors"],
        "all of one format, safetensors before .bin",
    )
    exclude: Texts = about(
        (), "patterns of names: not these files of weights", ["*.fp16.safetensors"], "none"
    )


class CaseSpec(Part):
    """One entry of `tests`: an input, and what its answer must show."""

    name: str | None = about(None, "shown in the report", "capital", "none")
    input: dict[str, Any] = Field(
        description="input of the prediction", examples=[{"prompt": "What is the capital of France?"}]
    )
    contains: OneOrMany = about((), "texts that the answer contains", ["Paris"], "none")
    regex: str | None = about(None, "what the answer matches somewhere", "Paris|paris", "none")
    json_schema: dict[str, Any] | None = about(
        None, "schema that the answer obeys", {"type": "object"}, "none"
    )
    max_seconds: float | None = about(None, "longest it may take", 10.0, "any", gt=0)
    min_tokens: int | None = about(None, "fewest tokens of the answer", 1, "any", ge=1)
