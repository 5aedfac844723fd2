"""What an answer must be: spelled for each engine, limited in size, and refused where no engine enforces it."""

import json
import re
from typing import Any

import pytest

from cogsmith_runtime.errors import InputError
from cogsmith_runtime.prompt import Prompts, Request
from cogsmith_runtime.settings import Settings

from .cogserver import settings

CITY = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}
INPUTS = ["prompt", "max_tokens", "json_schema", "regex", "choices"]


def request(api: str = "vllm", output: dict[str, Any] | None = None, **inputs: Any) -> Request:
    content = settings(inputs=INPUTS, output=output or {}, engine={"api": api})
    return Prompts(Settings.parse(json.dumps(content))).request({"prompt": "a", **inputs})


@pytest.mark.parametrize(
    ("output", "inputs", "vllm"),
    [
        ({"kind": "json", "schema": CITY}, {"json_schema": json.dumps(CITY)}, {"json": CITY}),
        ({"kind": "regex", "regex": "a|b"}, {"regex": "a|b"}, {"regex": "a|b"}),
        ({"kind": "choice", "choices": ["a", "b"]}, {"choices": '["a", "b"]'}, {"choice": ["a", "b"]}),
    ],
)
def test_by_the_spec_or_by_a_request_it_is_the_same(
    output: dict[str, Any], inputs: dict[str, str], vllm: dict[str, Any]
) -> None:
    assert request(output=output).body["structured_outputs"] == vllm
    assert request(**inputs).body["structured_outputs"] == vllm
    assert request(**inputs).constraint == request(output=output).constraint


def test_tensorrt_llm_gets_the_bare_schema_and_choices_as_an_expression() -> None:
    def spelled(**inputs: str) -> Any:
        body = request("tensorrt-llm", **inputs).body
        assert "structured_outputs" not in body
        return body["response_format"]

    assert spelled(json_schema=json.dumps(CITY)) == {"type": "json", "schema": CITY}
    assert spelled(regex="a+") == {"type": "regex", "regex": "a+"}
    texts = ["very (good)", "so.so", "bad|awful", '"quoted" 😀', "a\\b", "[x]{2}", "two\nlines", "-/^$"]
    found = spelled(choices=json.dumps(texts))
    assert found["type"] == "regex"
    for text in texts:
        assert re.fullmatch(found["regex"], text)
    for text in ("very good", "soXso", "bad", "awful", "", "xx"):
        assert not re.fullmatch(found["regex"], text)


def test_json_without_a_schema_is_any_object() -> None:
    output = {"kind": "json"}
    assert request(output=output).body["structured_outputs"] == {"json_object": True}
    assert request("tensorrt-llm", output).body["response_format"] == {"type": "json_object"}


def test_an_empty_input_is_none() -> None:
    body = request(json_schema="", regex="", choices="").body
    assert "structured_outputs" not in body


def test_variables_of_the_chat_template_and_stop_tokens_reach_the_engine() -> None:
    content = settings(prompt={"chat_template_kwargs": {"enable_thinking": False}}, stop_token_ids=[7])
    body = Prompts(Settings.parse(json.dumps(content))).request({"prompt": "a"}).body
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["stop_token_ids"] == [7]


DEEP: dict[str, Any] = {"type": "object"}
for _ in range(40):
    DEEP = {"type": "array", "items": DEEP}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"json_schema": "{"}, "E1003 MalformedInput: json_schema is not JSON"),
        ({"json_schema": "[" * 10_000}, "E1003 MalformedInput: json_schema is not JSON"),
        ({"json_schema": "[]"}, "E1003 MalformedInput: json_schema must be a JSON object."),
        ({"json_schema": '{"type": "strin"}'}, 'E1003 MalformedInput: json_schema: type is "strin"'),
        ({"json_schema": '{"$ref": "http://x/y"}'}, "nothing is fetched"),
        ({"json_schema": '{"properties": {"a": {"uniqueItems": true}}}'}, "uniqueItems cannot be enforced"),
        ({"json_schema": '{"enum": []}'}, "enum is empty"),
        ({"json_schema": '{"pattern": "(?=a)a"}'}, "the pattern in json_schema looks ahead"),
        ({"json_schema": json.dumps(DEEP)}, "E1010 TooLarge: json_schema has 33 levels"),
        ({"json_schema": json.dumps({"title": "x" * 20_000})}, "E1010 TooLarge: json_schema has"),
        ({"regex": "("}, "E1003 MalformedInput: regex is no regular expression"),
        ({"regex": "(a)\\1"}, "refers back"),
        ({"regex": "(a{1000}){1000}"}, "E1010 TooLarge: regex has 1000000 repetitions"),
        ({"regex": "a" * 2000}, "E1010 TooLarge: regex has 2000 characters"),
        ({"choices": "[]"}, "E1003 MalformedInput: choices must be a JSON list of texts."),
        ({"choices": "[1]"}, "E1003 MalformedInput: choices[0] must be a text"),
        ({"choices": json.dumps(["x"] * 101)}, "E1010 TooLarge: choices has 101 entries"),
        ({"choices": json.dumps(["x" * 501])}, "E1010 TooLarge: choices[0] has 501 characters"),
        ({"choices": '["a"]', "regex": "a"}, "E1002 ConflictingInputs: regex and choices are given."),
        ({"json_schema": 5}, "E1003 MalformedInput: json_schema must be text, is int."),
    ],
)
def test_what_is_refused(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        request(**inputs)
    assert message in str(caught.value)


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"type": {"enum": ["a"]}, "enum": {"type": "integer"}}}
    assert request(json_schema=json.dumps(schema)).body["structured_outputs"] == {"json": schema}
