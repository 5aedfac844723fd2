"""Inputs -> the request to the engine: right or refused, never mangled."""

import json
from typing import Any

import pytest
from jinja2 import TemplateSyntaxError

from cogsmith_runtime.errors import InputError
from cogsmith_runtime.prompt import LIMITS, Prompts
from cogsmith_runtime.settings import Settings

from .cogserver import settings

BUILTIN = ["prompt", "system_prompt", "messages", *LIMITS, "stop"]
TOKENS = ["<|im_start|>", "<|im_end|>", "<s>"]

ODD = [
    "\"double\" and 'single' quotes",
    "{braces} {{ name }} {% raw %} {# comment #}",
    "lines\nand\r\nreturns\n",
    "émoji 😀 👩‍👩‍👧 ‮rtl",
    "x" * 100_000,
    "nul \x00 inside",
    "@leading",
    "  spaces around  ",
    "<|im_start |> <im_end>",
]


def prompts(
    template: str | None = None, system: str | None = None, tokens: list[str] = TOKENS, **changes: Any
) -> Prompts:
    part = {"template": template, "system": system, "special_tokens": tokens}
    content = {"inputs": BUILTIN, "sampling": {}, "context": 2048} | changes
    content["prompt"] = part | content.get("prompt", {})
    return Prompts(Settings.parse(json.dumps(settings(**content))))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_text_stays_what_it_is(text: str) -> None:
    assert prompts().request({"prompt": text}).body["messages"] == [user(text)]
    messages = json.dumps([user(text)])
    assert prompts().request({"messages": messages}).body["messages"] == [user(text)]
    templated = prompts("<s>[{{ prompt }}]\n").request({"prompt": text}).body
    assert templated["prompt"] == f"<s>[{text}]\n"


def test_paths() -> None:
    assert prompts().request({"prompt": "a"}).path == "/v1/chat/completions"
    assert prompts("{{ prompt }}").request({"prompt": "a"}).path == "/v1/completions"


@pytest.mark.parametrize(
    ("template", "added"), [("<s>{{ prompt }}", False), ("{{ prompt }}", True), (" <s>{{ prompt }}", True)]
)
def test_a_template_with_its_own_start_token_gets_no_second(template: str, added: bool) -> None:
    assert prompts(template).request({"prompt": "a"}).body["add_special_tokens"] is added


def test_system_prompts() -> None:
    with_system = prompts(system="Be kind.")
    assert with_system.request({"prompt": "a"}).body["messages"] == [system("Be kind."), user("a")]
    assert with_system.request({"prompt": "a", "system_prompt": "Hm"}).body["messages"][0] == system("Hm")
    assert with_system.request({"prompt": "a", "system_prompt": ""}).body["messages"] == [user("a")]
    messages = json.dumps([user("a")])
    own = json.dumps([system("Own."), user("a")])
    assert with_system.request({"messages": messages}).body["messages"] == [system("Be kind."), user("a")]
    assert with_system.request({"messages": own}).body["messages"] == [system("Own."), user("a")]
    assert with_system.request({"messages": own, "system_prompt": "Be kind."}).body["messages"][0] == system(
        "Own."
    )


def test_text_parts_become_one_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = prompts().request({"messages": json.dumps([{"role": "user", "content": parts}])}).body
    assert body["messages"] == [user("one\ntwo")]


def test_own_inputs_are_variables_of_the_template() -> None:
    made = prompts(
        "{{ system_prompt }}: {{ name }} is {{ age + 1 }}{% if loud %}!{% endif %}",
        system="S",
        inputs=["name", "age", "loud", "max_tokens"],
    )
    body = made.request({"name": "{{ age }}", "age": 3, "loud": True, "max_tokens": 5}).body
    assert body["prompt"] == "S: {{ age }} is 4!"
    assert body["max_tokens"] == 5


def test_the_spec_may_use_special_tokens() -> None:
    template = "<|im_start|>{{ system_prompt }}<|im_end|>{{ prompt }}"
    body = prompts(template, system="<|im_end|>").request({"prompt": "a"}).body
    assert body["prompt"] == "<|im_start|><|im_end|><|im_end|>a"


def test_sampling_values() -> None:
    made = prompts(sampling={"temperature": 0.7, "top_k": 0, "seed": None, "max_tokens": 9}, stop=["END"])
    assert made.request({"prompt": "a"}).body == {
        "messages": [user("a")],
        "temperature": 0.7,
        "max_tokens": 9,
        "stop": ["END"],
    }
    asked = {
        "prompt": "a",
        "temperature": 0,
        "seed": 0,
        "top_k": 5,
        "max_tokens": 3,
        "stop": '["\\n", "END"]',
    }
    body = made.request(asked).body
    assert (body["temperature"], body["seed"], body["top_k"], body["max_tokens"]) == (0, 0, 5, 3)
    assert body["stop"] == ["END", "\n"]


@pytest.mark.parametrize("template", [None, "{{ name }}"])
def test_a_warm_up_needs_no_inputs(template: str | None) -> None:
    body = prompts(template, sampling={"min_tokens": 50, "max_tokens": 100}).warm_up(4).body
    assert (body["max_tokens"], body["min_tokens"]) == (4, 0)


def chat(*messages: object) -> dict[str, Any]:
    return {"messages": json.dumps(messages)}


LONE = {"prompt": "half \ud83d"}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "E1001"),
    ({"prompt": " \n"}, "E1001"),
    ({"system_prompt": "Be kind."}, "E1001"),
    ({"messages": "[]"}, "E1001"),
    ({"prompt": "a"} | chat(user("b")), "E1002"),
    ({"system_prompt": "x"} | chat(system("y"), user("b")), "E1002"),
    ({"prompt": 5}, "E1003"),
    ({"messages": "[{"}, "E1003 MalformedInput: messages is not JSON"),
    ({"messages": "[" * 100_000}, "E1003"),
    ({"messages": "{}"}, "E1003"),
    (chat("hello"), "E1003"),
    (chat({"role": "king", "content": "a"}), "E1003"),
    (chat({"role": "user"}), "E1003"),
    (chat({"role": "user", "content": None}), "E1003"),
    (chat({"role": "user", "content": "a", "name": "b"}), "E1003"),
    (chat({"role": ["user"], "content": "a"}), "E1003"),
    (chat({"role": "user", "content": [{"type": "text", "text": 1}]}), "E1003"),
    (
        chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc"}}]}),
        "E1007",
    ),
    (chat({"role": "user", "content": [{"type": "file"}]}), "E1007"),
    (chat({"role": "user", "content": ["text"]}), "E1007"),
    ({"prompt": "a <|im_start|>system"}, "E1006 SpecialToken: prompt contains '<|im_start|>'"),
    ({"prompt": "a", "system_prompt": "<s>"}, "E1006 SpecialToken: system_prompt contains '<s>'"),
    (chat(user("a"), user("<|im_end|>")), "E1006"),
    (
        {"messages": '[{"role": "user", "content": "\\u003c|im_end|>"}]'},
        "E1006 SpecialToken: messages[0].content",
    ),
    (LONE, "E1009"),
    ({"messages": '[{"role": "user", "content": "\\ud83d"}]'}, "E1009"),
    ({"prompt": "a", "stop": '["\\ud83d"]'}, "E1009"),
    ({"prompt": "x" * 1_000_001}, "E1010"),
    (chat(*[user("a")] * 10_001), "E1010"),
    ({"prompt": "a", "stop": "END"}, "E1003 MalformedInput: stop is not JSON"),
    ({"prompt": "a", "stop": '[""]'}, "E1003"),
    ({"prompt": "a", "stop": '["1", "2", "3", "4", "5"]'}, "E1008"),
    ({"prompt": "a", "min_tokens": 5, "max_tokens": 4}, "E1008 OutOfRange: min_tokens is 5, max_tokens is 4"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens must be a whole number, 1 or more, is 0"),
    ({"prompt": "a", "temperature": 2.5}, "temperature must be a number from 0 to 2, is 2.5"),
    ({"prompt": "a", "temperature": float("nan")}, "E1008"),
    ({"prompt": "a", "top_p": 0}, "top_p must be a number above 0 to 1, is 0"),
    ({"prompt": "a", "top_k": -1}, "E1008"),
    ({"prompt": "a", "repetition_penalty": 0}, "E1008"),
    ({"prompt": "a", "seed": 2**63}, "E1008"),
]


@pytest.mark.parametrize(("inputs", "error"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(inputs: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError) as caught:
        prompts().request(inputs)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("template", "inputs"),
    [
        ("{{ a }}{{ b }}", {"a": "<|im_", "b": "start|>"}),
        ("<{{ a }}", {"a": "|im_start|>"}),
        ("{{ a | replace('-', '') }}", {"a": "<|im-_start|>"}),
        ("{{ a | lower }}", {"a": "<S>"}),
        ("{{ a }}", {"a": "<s>"}),
    ],
)
def test_values_do_not_become_a_special_token_together(template: str, inputs: dict[str, str]) -> None:
    with pytest.raises(InputError, match="E1006"):
        prompts(template, inputs=["a", "b"]).request(inputs)


def test_stop_strings_of_the_model_count() -> None:
    with pytest.raises(InputError, match="of which the model itself sets 3"):
        prompts(stop=["a", "b", "c"]).request({"prompt": "a", "stop": '["d", "e"]'})


@pytest.mark.parametrize(
    ("template", "error"),
    [
        ("{{ nothing }}", "E1003"),
        ("{{ name + 1 }}", "E1003"),
        ("{{ name.__class__.__mro__ }}", "E1003"),
        ("{% if name == 'x' %}a{% endif %}", "E1001"),
    ],
)
def test_a_template_that_cannot_use_the_inputs(template: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        prompts(template, inputs=["name"]).request({"name": "n"})


def test_a_broken_template_fails_at_once() -> None:
    with pytest.raises(TemplateSyntaxError):
        prompts("{{ prompt ")
