"""The inputs of a prediction -> the request to the engine, or an InputError that says what to change."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from . import dialect, errors
from .constraint import NAMES, Constraint, constraint
from .settings import Settings

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"

Message = dict[str, str]

_ROLES = ("system", "user", "assistant", "tool")
_MAX_MESSAGES = 10_000
_MAX_STOP = 4  # the engine's own limit
_MAX_STOP_LENGTH = 1000
_TEXT_INPUTS = ("prompt", "system_prompt", "messages")


@dataclass(frozen=True, slots=True)
class _Limit:
    low: float
    high: float
    whole: bool = False
    low_excluded: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if math.isinf(self.high):
            return f"{kind} above {self.low:g}" if self.low_excluded else f"{kind}, {self.low:g} or more"
        return f"{kind} {'above' if self.low_excluded else 'from'} {self.low:g} to {self.high:.15g}"

    def allows(self, value: float) -> bool:
        if self.whole and value != int(value):
            return False
        return self.low <= value <= self.high and not (self.low_excluded and value == self.low)


# What the engine takes. Checked here because its own answers name fields of its API and speak of pydantic.
LIMITS = {
    "max_tokens": _Limit(1, math.inf, whole=True),
    "min_tokens": _Limit(0, math.inf, whole=True),
    "temperature": _Limit(0, 2),
    "top_p": _Limit(0, 1, low_excluded=True),
    "top_k": _Limit(0, math.inf, whole=True),
    "presence_penalty": _Limit(-2, 2),
    "frequency_penalty": _Limit(-2, 2),
    "repetition_penalty": _Limit(0, math.inf, low_excluded=True),
    "seed": _Limit(0, 2**63 - 1, whole=True),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the engine: path below its root, and the JSON body without the streaming options.

    constraint: what its answer must be as a whole, or None.
    """

    path: str
    body: dict[str, Any]
    constraint: Constraint | None = None

    @property
    def max_tokens(self) -> int | None:
        value = self.body.get("max_tokens")
        return None if value is None else int(value)


class Prompts:
    """Builds requests by one model's settings.

    A template that does not compile raises jinja2's TemplateSyntaxError at once, so that a container with one never
    becomes ready.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._special = settings.prompt.special_tokens
        # Far above what fits into the context (a token averages 3 to 5 characters), so that this only keeps
        # absurd sizes away from the tokenizer; what is merely too long is answered with its count of tokens.
        self._max_text = max(1_000_000, 16 * settings.context)
        environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
        template = settings.prompt.template
        self._template = None if template is None else environment.from_string(template)
        # The text of a control token can also come about where values meet (`{{ a }}{{ b }}`). See _check_seams.
        marks = {c for token in self._special for c in token if not c.isalnum() and not c.isspace()}
        self._neutral = str.maketrans({c: chr(0xE000 + i) for i, c in enumerate(sorted(marks))})

    def request(self, inputs: Mapping[str, object]) -> Request:
        """Inputs by name (None: not given) -> the request. InputError: E1001 to E1010."""
        sampling = self._sampling(inputs)
        if self._settings.stop_token_ids:
            sampling["stop_token_ids"] = list(self._settings.stop_token_ids)
        asked = {name: inputs.get(name) for name in NAMES if name in self._settings.inputs}
        bound = constraint(asked, self._settings.output)
        if bound is not None:
            sampling |= dialect.constrained(self._settings.engine.api, bound)
        texts = self._texts(inputs)
        if self._template is None:
            return Request(CHAT, self._chat(self._messages(texts)) | sampling, bound)
        rendered = self._render(texts | self._own(inputs))
        # A template that writes the begin-of-text token itself must not get a second one from the tokenizer.
        begins = any(rendered.startswith(token) for token in self._special)
        return Request(COMPLETION, {"prompt": rendered, "add_special_tokens": not begins} | sampling, bound)

    def warm_up(self, tokens: int) -> Request:
        """A request for a few tokens that needs no inputs: an own input's possible values are not known here."""
        sampling = self._sampling({}) | {"max_tokens": tokens, "min_tokens": 0}
        if self._template is None:
            return Request(CHAT, self._chat([{"role": "user", "content": "Hello"}]) | sampling)
        return Request(COMPLETION, {"prompt": "Hello"} | sampling)

    def _chat(self, messages: list[Message]) -> dict[str, Any]:
        variables = self._settings.prompt.chat_template_kwargs
        return {"messages": messages} | ({"chat_template_kwargs": variables} if variables else {})

    # -- text -----------------------------------------------------------------------------------------------------

    def _texts(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """prompt, system_prompt and messages, as far as the model has these inputs; checked, messages parsed."""
        names = [name for name in _TEXT_INPUTS if name in self._settings.inputs]
        given = {name: self._text(name, inputs.get(name)) for name in names}
        if given.get("prompt") and given.get("messages"):
            raise errors.conflicting_inputs("prompt and messages are both given.", "Send one of them.")
        if ("prompt" in names or "messages" in names) and not (given.get("prompt") or given.get("messages")):
            if given.get("prompt") is None and given.get("messages") is None:
                raise errors.missing_input(
                    "there is no prompt.", f"Give {' or '.join(n for n in names if n != 'system_prompt')}."
                )
            raise errors.missing_input("the prompt is empty.", "Write something into it.")
        texts: dict[str, Any] = dict(given)
        if given.get("messages"):
            texts["messages"] = self._parsed_messages(given["messages"] or "")
        return texts

    def _text(self, name: str, value: object) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise errors.malformed_input(f"{name} must be text, is {type(value).__name__}.")
        if len(value) > self._max_text:
            raise errors.too_large(name, len(value), self._max_text)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise errors.not_text(name) from None
        if name == "system_prompt" and value == self._settings.prompt.system:
            return value  # the spec's own, which may hold control tokens
        for token in self._special:
            if token in value:
                raise errors.special_token(name, token)
        return value if name in ("system_prompt", "messages") or value.strip() else ""

    def _messages(self, texts: Mapping[str, Any]) -> list[Message]:
        system = texts.get("system_prompt")
        messages: list[Message] = texts.get("messages") or [
            {"role": "user", "content": texts.get("prompt") or ""}
        ]
        if any(message["role"] == "system" for message in messages):
            # An empty one is no system prompt: it is what the schema gives where a request gives none.
            if system and system != self._settings.prompt.system:
                raise errors.conflicting_inputs(
                    "system_prompt is given and messages hold a system message.", "Send one of them."
                )
            return messages
        if system is None:
            system = self._settings.prompt.system
        return [{"role": "system", "content": system}, *messages] if system else messages

    def _parsed_messages(self, text: str) -> list[Message]:
        raw = _json_list("messages", text)
        if not raw:
            raise errors.missing_input("messages is an empty list.", "Give at least one message.")
        if len(raw) > _MAX_MESSAGES:
            raise errors.too_large("messages", len(raw), _MAX_MESSAGES, "entries")
        return [self._message(f"messages[{i}]", message) for i, message in enumerate(raw)]

    def _message(self, where: str, raw: object) -> Message:
        if not isinstance(raw, dict) or set(raw) != {"role", "content"}:
            raise errors.malformed_input(
                f"{where} must be an object with the keys role and content, and no others.",
                'Example: {"role": "user", "content": "Hello"}.',
            )
        if raw["role"] not in _ROLES:
            raise errors.malformed_input(
                f"{where}.role is {raw['role']!r:.100}.", f"Use one of {', '.join(_ROLES)}."
            )
        content = raw["content"]
        if isinstance(content, list):
            content = "\n".join(self._part(f"{where}.content[{i}]", part) for i, part in enumerate(content))
        if not isinstance(content, str):
            raise errors.malformed_input(f"{where}.content must be a string.")
        # Again, decoded: a JSON escape can hide what the raw text did not show.
        self._text(f"{where}.content", content)
        return {"role": raw["role"], "content": content}

    @staticmethod
    def _part(where: str, part: object) -> str:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text":
            # An image_url or a file part would make the engine fetch what a stranger names.
            raise errors.unsupported_content(where, f"{kind!s:.100}")
        if not isinstance(part, dict) or set(part) != {"type", "text"} or not isinstance(part["text"], str):
            raise errors.malformed_input(f"{where} must hold type and text only, and text must be a string.")
        return part["text"]

    # -- template -------------------------------------------------------------------------------------------------

    def _own(self, inputs: Mapping[str, object]) -> dict[str, object]:
        """The values of the model's own inputs, as variables of the template."""
        builtin = {*LIMITS, "stop", *_TEXT_INPUTS, *NAMES}
        own: dict[str, object] = {}
        for name in self._settings.inputs:
            if name not in builtin:
                value = inputs.get(name)
                if isinstance(value, str):
                    self._text(name, value)
                elif value is not None and not isinstance(value, int | float):
                    raise errors.malformed_input(f"{name} must be text, a number or a truth value.")
                own[name] = value
        return own

    def _render(self, variables: dict[str, object]) -> str:
        assert self._template is not None
        if variables.get("system_prompt") is None:
            variables["system_prompt"] = self._settings.prompt.system
        try:
            rendered = self._template.render(variables)
            self._check_seams(rendered, variables)
        except TemplateError as error:
            raise errors.malformed_input(f"the prompt template cannot use these inputs: {error}.") from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise errors.malformed_input(f"the prompt template cannot use these inputs: {error}.") from error
        if not rendered.strip():
            raise errors.missing_input("the prompt is empty.", "Write something into the inputs.")
        if len(rendered) > 2 * self._max_text:
            raise errors.too_large("the prompt", len(rendered), 2 * self._max_text)
        return rendered

    def _check_seams(self, rendered: str, variables: Mapping[str, object]) -> None:
        """Refuse values that become a control token together, or through a filter of the template.

        The template is rendered a second time with values whose punctuation is swapped for private characters of the
        same length. What it then holds of a token's text is the template's own; anything more came from the values.
        """
        if not any(token in rendered for token in self._special):
            return
        neutral = self._template.render(self._neutralized(variables)) if self._template is not None else ""
        for token in self._special:
            if rendered.count(token) > neutral.count(token):
                raise errors.special_token("the inputs together", token)

    def _neutralized(self, variables: Mapping[str, object]) -> dict[str, object]:
        neutral = dict(variables)
        for name, value in variables.items():
            # The default system prompt is the spec's, not a user's, and may hold control tokens.
            if isinstance(value, str) and value != self._settings.prompt.system:
                neutral[name] = value.translate(self._neutral)
            elif isinstance(value, list):
                neutral[name] = [{k: v.translate(self._neutral) for k, v in item.items()} for item in value]
        return neutral

    # -- sampling -------------------------------------------------------------------------------------------------

    def _sampling(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, limit in LIMITS.items():
            value = inputs.get(name) if name in self._settings.inputs else None
            if value is None:
                value = self._settings.sampling.get(name)
            if value is not None:
                values[name] = _number(name, value, limit)
        if values.get("top_k") == 0:
            del values["top_k"]  # 0 means off, which engines spell differently; absent means off for all
        if values.get("max_tokens") is not None and values.get("min_tokens", 0) > values["max_tokens"]:
            raise errors.out_of_range(
                f"min_tokens is {values['min_tokens']}, max_tokens is {values['max_tokens']}.",
                "Lower min_tokens, or raise max_tokens.",
            )
        if stop := self._stop(inputs.get("stop") if "stop" in self._settings.inputs else None):
            values["stop"] = stop
        return values

    def _stop(self, value: object) -> list[str]:
        own = list(self._settings.stop)
        if value is None or value == "":
            return own
        if not isinstance(value, str):
            raise errors.malformed_input("stop must be a JSON list of strings, as text.")
        asked = _json_list("stop", value)
        for i, text in enumerate(asked):
            if not isinstance(text, str) or not text:
                raise errors.malformed_input(f"stop[{i}] must be a string that is not empty.")
            if len(text) > _MAX_STOP_LENGTH:
                raise errors.too_large(f"stop[{i}]", len(text), _MAX_STOP_LENGTH)
            try:
                text.encode()
            except UnicodeEncodeError:
                raise errors.not_text(f"stop[{i}]") from None
        together = list(dict.fromkeys([*own, *asked]))
        if len(together) > _MAX_STOP:
            mine = f" of which the model itself sets {len(own)}" if own else ""
            raise errors.out_of_range(
                f"there are {len(together)} stop strings,{mine} and the engine takes {_MAX_STOP}.",
                f"Send at most {_MAX_STOP - len(own)}.",
            )
        return together


def _json_list(name: str, text: str) -> list[Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.malformed_input(f"{name} is not JSON: {error}.", "Send a JSON list, as text.") from None
    if not isinstance(value, list):
        raise errors.malformed_input(f"{name} must be a JSON list, is {type(value).__name__}.")
    return value


def _number(name: str, value: object, limit: _Limit) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise errors.out_of_range(f"{name} must be {limit}, is {value!r:.50}.")
    if not limit.allows(value):
        raise errors.out_of_range(f"{name} must be {limit}, is {value}.")
    return int(value) if limit.whole else value
