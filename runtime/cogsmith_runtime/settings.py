"""settings.json: what the container needs to know, written at render time and read at boot."""

import json
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

Number = float | int | None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine process is started.

    api: whose variant of the OpenAI API it speaks, `vllm` or `tensorrt-llm`.
    command: argv, in which {python}, {model}, {port} and {root} (the folder of settings.json) are replaced, as whole words or
    inside one.
    environment: set before the start, {cpus} replaced by the numbers of the processors that it may use, as 0,1; what the
    container's own environment says wins.
    start_timeout: seconds the engine may take until it is ready.
    load_mark: a log line holding this text means that imports are done and loading begins.
    """

    name: str
    version: str
    api: str
    command: tuple[str, ...]
    environment: dict[str, str]
    start_timeout: int
    load_mark: str


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """How inputs become a prompt.

    template: Jinja text over the inputs; None: the checkpoint's own chat template.
    chat_template_kwargs: variables of the checkpoint's chat template, such as enable_thinking.
    system: the default system prompt.
    special_tokens: texts that the tokenizer turns into control tokens; refused inside a user's text.
    """

    template: str | None
    chat_template_kwargs: dict[str, Any]
    system: str | None
    special_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """What an answer is.

    kind: `text`, `json`, `regex` or `choice`. The one of `schema` (a JSON Schema), `regex` and `choices` that belongs to it is set.
    stream: whether tokens are sent as they come; else the whole answer at once.
    reasoning: what becomes of the text that a reasoning parser tells from the answer: `show` or `hide`.
    """

    kind: str
    schema: dict[str, Any] | None
    regex: str | None
    choices: tuple[str, ...]
    stream: bool
    reasoning: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the runtime reads from settings.json.

    context: tokens, prompt and answer together. concurrency: predictions at once.
    inputs: names, in the order of the predictor's signature.
    sampling: values that an input of the same name replaces. stop: strings that always end an answer.
    stop_token_ids: tokens that do so, besides those that the engine itself takes from the checkpoint.
    weights_url: a permanent URL of the packed weights without a query string, or None.
    """

    name: str
    engine: EngineSettings
    context: int
    concurrency: int
    prompt: PromptSettings
    output: OutputSettings
    inputs: tuple[str, ...]
    sampling: dict[str, Number]
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    weights_url: str | None

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a settings file. ValueError: a key is unknown, missing or of the wrong type; it is named."""
        try:
            return cls.parse(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `load`, from JSON text."""
        raw = _keys(cls, json.loads(text), "")
        return cls(
            name=_typed(raw["name"], str, "name"),
            engine=_engine(raw["engine"]),
            context=_typed(raw["context"], int, "context"),
            concurrency=_typed(raw["concurrency"], int, "concurrency"),
            prompt=_prompt(raw["prompt"]),
            output=_output(raw["output"]),
            inputs=_strings(raw["inputs"], "inputs"),
            sampling=_sampling(raw["sampling"]),
            stop=_strings(raw["stop"], "stop"),
            stop_token_ids=_ids(raw["stop_token_ids"]),
            weights_url=_optional(raw["weights_url"], "weights_url"),
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _engine(value: object) -> EngineSettings:
    raw = _keys(EngineSettings, value, "engine.")
    environment = _typed(raw["environment"], dict, "engine.environment")
    return EngineSettings(
        name=_typed(raw["name"], str, "engine.name"),
        version=_typed(raw["version"], str, "engine.version"),
        api=_one_of(raw["api"], ("vllm", "tensorrt-llm"), "engine.api"),
        command=_strings(raw["command"], "engine.command"),
        environment={k: _typed(v, str, f"engine.environment.{k}") for k, v in environment.items()},
        start_timeout=_typed(raw["start_timeout"], int, "engine.start_timeout"),
        load_mark=_typed(raw["load_mark"], str, "engine.load_mark"),
    )


def _prompt(value: object) -> PromptSettings:
    raw = _keys(PromptSettings, value, "prompt.")
    return PromptSettings(
        template=_optional(raw["template"], "prompt.template"),
        chat_template_kwargs=_typed(raw["chat_template_kwargs"], dict, "prompt.chat_template_kwargs"),
        system=_optional(raw["system"], "prompt.system"),
        special_tokens=_strings(raw["special_tokens"], "prompt.special_tokens"),
    )


def _output(value: object) -> OutputSettings:
    raw = _keys(OutputSettings, value, "output.")
    if not isinstance(raw["stream"], bool):
        raise ValueError(f"output.stream: must be true or false, is {raw['stream']!r}")  # noqa: TRY004
    return OutputSettings(
        kind=_one_of(raw["kind"], ("text", "json", "regex", "choice"), "output.kind"),
        schema=None if raw["schema"] is None else _typed(raw["schema"], dict, "output.schema"),
        regex=_optional(raw["regex"], "output.regex"),
        choices=_strings(raw["choices"], "output.choices"),
        stream=raw["stream"],
        reasoning=_one_of(raw["reasoning"], ("show", "hide"), "output.reasoning"),
    )


def _sampling(value: object) -> dict[str, Number]:
    for key, number in _typed(value, dict, "sampling").items():
        if isinstance(number, bool) or not isinstance(number, int | float | None):
            raise ValueError(f"sampling.{key}: must be a number or null, is {number!r}")  # noqa: TRY004
    return dict(_typed(value, dict, "sampling"))


def _keys(kind: type[Any], value: object, prefix: str) -> dict[str, Any]:
    raw: dict[str, Any] = _typed(value, dict, prefix.rstrip(".") or "settings")
    known = {field.name for field in fields(kind) if field.default is MISSING}
    if unknown := sorted(set(raw) - known):
        raise ValueError(f"{prefix}{unknown[0]}: unknown key")
    if missing := sorted(known - set(raw)):
        raise ValueError(f"{prefix}{missing[0]}: missing key")
    return raw


def _typed(value: object, kind: type[Any], where: str) -> Any:
    # bool is an int in Python, and no setting is a bool.
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"{where}: must be of type {kind.__name__}, is {value!r}")  # noqa: TRY004
    return value


def _one_of(value: object, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise ValueError(f"{where}: must be one of {', '.join(known)}, is {value!r}")
    return str(value)


def _ids(value: object) -> tuple[int, ...]:
    return tuple(
        _typed(item, int, f"stop_token_ids[{i}]")
        for i, item in enumerate(_typed(value, list, "stop_token_ids"))
    )


def _optional(value: object, where: str) -> str | None:
    return None if value is None else str(_typed(value, str, where))


def _strings(value: object, where: str) -> tuple[str, ...]:
    return tuple(_typed(item, str, f"{where}[{i}]") for i, item in enumerate(_typed(value, list, where)))
