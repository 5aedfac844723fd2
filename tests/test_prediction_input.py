"""-i and --json: what a user types is what the model gets."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cogsmith.errors import UserError
from cogsmith.inputs import BY_NAME, Input
from cogsmith.prediction_input import from_json, from_pairs

INPUTS = (
    BY_NAME["prompt"],
    BY_NAME["max_tokens"],
    BY_NAME["temperature"],
    BY_NAME["seed"],
    Input("strict", "boolean", "Be strict."),
    Input("label", "string", "One of two.", choices=("a", "b")),
)
TEXTS = [
    '"quoted"',
    "{braces} {{ x }}",
    "two\nlines",
    "😀",
    "@file.txt",
    "<|im_start|>",
    "a=b",
    "x" * 100_000,
    "'",
    "-i",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_taken_as_it_is(text: str) -> None:
    assert from_pairs([f"prompt={text}"], INPUTS) == {"prompt": text}
    assert from_json(json.dumps({"prompt": text}), INPUTS) == {"prompt": text}


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("max_tokens=8", 8),
        ("max_tokens=8.0", 8),
        ("temperature=0", 0),
        ("temperature=1e-2", 0.01),
        ("seed=0", 0),
        ("strict=true", True),
        ("label=a", "a"),
    ],
)
def test_values_are_read_as_their_inputs_type(pair: str, value: Any) -> None:
    given = from_pairs([pair, "prompt=x"], INPUTS)
    read = given[pair.partition("=")[0]]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("max_tokens=1.5", "must be a whole number"),
        ("max_tokens=true", "must be a whole number"),
        ("temperature=NaN", "must be a number"),
        ("strict=yes", "must be true or false"),
        ("label=c", 'must be one of "a", "b"'),
        ("seed=-1", "must be >= 0"),
    ],
)
def test_a_value_that_the_input_does_not_take_is_refused(pair: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        from_pairs([pair, "prompt=x"], INPUTS)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(UserError) as caught:
        from_pairs(["temperatur=1", "seed=x"], INPUTS)
    assert caught.value.lines() == [
        "Error: temperatur: no such input",
        "Hint: did you mean temperature?",
        'Error: seed: must be a whole number, is "x"',
        "Error: there is no prompt",
        "Hint: write -i prompt=…",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"prompt": "a", "prompt": "b"}', "prompt is there twice"),
        ("[" * 200_000, "is not JSON"),
        ('{"prompt": "\\ud800"}', "half of a surrogate pair"),
        ('{"prompt": " "}', "there is no prompt"),
        ('{"prompt": "a", "": 1}', "an empty name: no such input"),
    ],
    ids=["twice", "deep", "surrogate", "blank", "no name"],
)
def test_json_oddities(text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        from_json(text, INPUTS)
    assert said in "\n".join(caught.value.lines())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UserError, match="no UTF-8"):
        from_pairs(["prompt=" + b"a\xff".decode(errors="surrogateescape")], INPUTS)


def test_prompt_and_messages_exclude_each_other() -> None:
    inputs = (*INPUTS, BY_NAME["messages"])
    messages = '[{"role": "user", "content": "x"}]'
    with pytest.raises(UserError, match="both given"):
        from_pairs(["prompt=a", f"messages={messages}"], inputs)
    with pytest.raises(UserError, match="there is no prompt and no messages"):
        from_pairs([], inputs)
    assert from_pairs([f"messages={messages}"], inputs) == {"messages": messages}


def test_json_comes_from_a_file_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "input.json"
    path.write_text('{"prompt": "@x"}')
    assert from_json(f"@{path}", INPUTS) == {"prompt": "@x"}
    for name in ("-", "@-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"prompt": "x", "seed": 0}')))
        assert from_json(name, INPUTS) == {"prompt": "x", "seed": 0}
