"""One shared server: what a client sees of it."""

from __future__ import annotations

import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from cogsmith_runtime.prompt import Prompts
from cogsmith_runtime.settings import Settings

from .served import Served, Stream, listening, wait_for

LONG = {
    "prompt": "Tell me a long story about a lighthouse.",
    "max_tokens": 200,
    "min_tokens": 200,
    "temperature": 0.0,
}
FRANCE = "What is the capital of France?"
SYSTEM = "You are a helpful assistant."


def test_the_first_answer_of_a_server_is_live_too(served: Served) -> None:
    stream = Stream(served, {**LONG, "max_tokens": 30, "min_tokens": 30}).join()
    gaps = [later - earlier for earlier, later in itertools.pairwise(stream.arrivals)]
    assert sum(gap > 0.01 for gap in gaps) > 20, stream.arrivals


def test_it_answers_and_counts(served: Served) -> None:
    answer = served.predict(prompt=FRANCE, temperature=0.0, max_tokens=40)
    assert answer["status"] == "succeeded", answer
    assert "Paris" in "".join(answer["output"])
    metrics = answer["metrics"]
    assert metrics["input_token_count"] == len(served.tokens(messages=[{"role": "user", "content": FRANCE}]))
    assert 0 < metrics["output_token_count"] <= 40
    assert metrics["time_to_first_token"] > 0
    assert metrics["tokens_per_second"] > 0


def test_serve_printed_a_command_for_each_way_to_call_it(served: Served) -> None:
    printed = served.log.read_text()
    for part in ("text/event-stream", "respond-async", "/my-id/cancel", "/health-check", "/openapi.json"):
        assert part in printed
    for phase in ("environment", "fetch", "verify", "engine import", "load", "warm-up"):
        assert phase in printed


def test_four_stream_live_and_a_fifth_is_refused(served: Served) -> None:
    time.sleep(0.5)  # the slot of the answer before
    streams = [Stream(served, LONG) for _ in range(4)]
    wait_for(lambda: all(stream.arrivals for stream in streams), 60, "four first tokens")
    fifth = Stream(served, LONG).join(30)
    assert fifth.status == 409
    assert "capacity" in fifth.end["error"]
    for stream in streams:
        stream.join()
        assert stream.end["status"] == "succeeded", stream.end
        assert stream.end["metrics"]["output_token_count"] == 200
        # One token at a time: about as many pieces as tokens, spread over the whole answer.
        assert len(stream.arrivals) > 150
    assert max(stream.arrivals[0] for stream in streams) < min(stream.arrivals[-1] for stream in streams)


def test_a_cancel_frees_the_slot_and_stops_the_engine(served: Served) -> None:
    headers = {"Prefer": "respond-async"}
    url = f"{served.url}/predictions/to-cancel"
    assert httpx.put(url, json={"input": LONG}, headers=headers, timeout=30).status_code == 202
    wait_for(lambda: served.engine_running() == 1, 30, "the engine to start on it")
    assert httpx.post(f"{url}/cancel", timeout=10).status_code == 200
    assert wait_for(lambda: served.engine_running() == 0, 5, "the engine to stop") < 1
    wait_for(lambda: served.health() == "READY", 5, "the slot")


def test_a_dropped_connection_frees_the_slot_and_stops_the_engine(served: Served) -> None:
    stream = Stream(served, LONG)
    stream.first()
    assert served.engine_running() == 1
    stream.drop()
    assert wait_for(lambda: served.engine_running() == 0, 5, "the engine to stop") < 1
    time.sleep(0.5)
    streams = [Stream(served, {**LONG, "max_tokens": 20, "min_tokens": 0}) for _ in range(4)]
    assert [stream.join().end["status"] for stream in streams] == ["succeeded"] * 4


@pytest.mark.parametrize(
    "text",
    [
        "\"double\" 'single' `back`",
        "{braces} {0} %s {# no comment #} {% no tag %}",
        "{{ prompt }} {{ 7 * 7 }}",
        "line one\nline two\r\n\n\ttabbed  ",
        "emoji 😀 👩‍👩‍👧 ünïcödé 漢字",
        "nul \0 inside",
        "@not-a-file",
        "<|not_a_special_token|> </s> [INST]",
        "\\n \\u0041 back\\slash",
    ],
)
def test_a_prompt_reaches_the_model_as_it_is(text: str, served: Served) -> None:
    answer = served.predict(prompt=text, max_tokens=1)
    assert answer["status"] == "succeeded", answer
    expected = served.tokens(messages=[{"role": "user", "content": text}])
    assert answer["metrics"]["input_token_count"] == len(expected)


@pytest.mark.parametrize(
    ("inputs", "code", "parts"),
    [
        ({"prompt": "hi <|im_start|>system"}, "E1", ["<|im_start|>"]),
        ({"prompt": "word " * 20_000}, "E1", ["20", "2048"]),
        ({"prompt": "word " * 2000, "max_tokens": 500}, "E1", ["500", "2048"]),
        ({"prompt": ""}, "E1", ["prompt"]),
        ({"prompt": "a", "messages": '[{"role": "user", "content": "b"}]'}, "E1", ["messages"]),
        ({"messages": "[{}]"}, "E1", ["messages"]),
        (
            {
                "messages": json.dumps(
                    [
                        {
                            "role": "user",
                            "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}],
                        }
                    ]
                )
            },
            "E1",
            ["image_url"],
        ),
        ({"prompt": "a", "min_tokens": 9, "max_tokens": 3}, "E1", ["min_tokens"]),
        ({"prompt": "a", "stop": "not json"}, "E1", ["stop"]),
    ],
    ids=lambda value: None,
)
def test_what_cannot_be_right_is_refused_with_a_code(
    inputs: dict[str, Any], code: str, parts: list[str], served: Served
) -> None:
    answer = served.predict(**inputs)
    assert answer["status"] == "failed"
    assert f" {code}" in answer["error"], answer["error"]
    assert all(part in answer["error"] for part in parts), answer["error"]
    assert served.health() == "READY"


def test_inputs_against_the_schema_are_refused_by_cog(served: Served) -> None:
    answer = httpx.post(
        f"{served.url}/predictions", json={"input": {"prompt": "a", "temperature": 3}}, timeout=30
    )
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"][-1] == "temperature"


def test_messages_system_prompt_stop_and_seed(served: Served) -> None:
    conversation = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": FRANCE}]
    as_messages = served.predict(messages=json.dumps(conversation), temperature=0.0, max_tokens=20)
    as_prompt = served.predict(prompt=FRANCE, system_prompt=SYSTEM, temperature=0.0, max_tokens=20)
    assert as_messages["output"] == as_prompt["output"]
    assert as_messages["metrics"]["input_token_count"] == len(served.tokens(messages=conversation))
    stopped = served.predict(prompt=FRANCE, temperature=0.0, max_tokens=20, stop='["Paris"]')
    assert "Paris" not in "".join(stopped["output"])
    seeded = [
        served.predict(prompt="Say a random word.", temperature=1.5, max_tokens=8, seed=0) for _ in range(2)
    ]
    assert seeded[0]["output"] == seeded[1]["output"]
    free = {
        "".join(served.predict(prompt="Say a random word.", temperature=1.5, max_tokens=8)["output"])
        for _ in range(4)
    }
    assert len(free) > 1


def test_a_template_gives_exactly_its_tokens(served: Served) -> None:
    settings = Settings.load(served.root / "build/smol/settings.json")
    raw = json.loads(settings.to_json())
    raw["prompt"]["template"] = "<|im_start|>user\n{{ question }}<|im_end|>\n<|im_start|>assistant\n"
    raw["inputs"] = ["question"]
    request = Prompts(Settings.parse(json.dumps(raw))).request({"question": "{{ 7 * 7 }} ?"})
    assert request.path == "/v1/completions"
    text = "<|im_start|>user\n{{ 7 * 7 }} ?<|im_end|>\n<|im_start|>assistant\n"
    assert request.body["prompt"] == text
    answer = httpx.post(
        f"{served.engine_url()}{request.path}",
        json={**request.body, "stream": False, "stream_options": None, "max_tokens": 1},
        timeout=60,
    )
    counted = answer.json()["usage"]["prompt_tokens"]
    # <|im_start|> is token 1 and <|im_end|> token 2 of this model; nothing is put before the first.
    expected = served.tokens(prompt=text, add_special_tokens=False)
    assert expected[0] == 1
    assert expected[-4:] == served.tokens(prompt="<|im_start|>assistant\n", add_special_tokens=False)
    assert counted == len(expected)


CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 20},
        "size": {"enum": ["small", "large"]},
        "rivers": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
        "capital": {"type": "boolean"},
    },
    "required": ["city", "size", "rivers", "capital"],
    "additionalProperties": False,
}


def text_of(answer: dict[str, Any]) -> str:
    assert answer["status"] == "succeeded", answer
    return "".join(answer["output"])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_json_obeys_the_schema_of_its_request(temperature: float, served: Served) -> None:
    schema = json.dumps(CITY)
    answer = served.predict(
        prompt="Describe Paris.", json_schema=schema, temperature=temperature, seed=0, max_tokens=300
    )
    jsonschema.validate(json.loads(text_of(answer)), CITY)


def test_json_that_max_tokens_cuts_off_is_no_success(served: Served) -> None:
    answer = served.predict(prompt="Describe Paris.", json_schema=json.dumps(CITY), max_tokens=5)
    assert answer["status"] == "failed"
    assert "max_tokens" in answer["error"]


def test_a_regex_and_choices_are_obeyed(served: Served) -> None:
    date = r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]"
    for seed in range(3):
        answer = served.predict(prompt="When did the war end?", regex=date, temperature=1.0, seed=seed)
        assert re.fullmatch(date, text_of(answer))
        labels = ["very (good)", "so.so", "bad|awful", '"quoted" 😀']
        answer = served.predict(prompt="How was it?", choices=json.dumps(labels), temperature=1.0, seed=seed)
        assert text_of(answer) in labels


@pytest.mark.parametrize(
    "inputs",
    [
        {"json_schema": '{"type": "strin"}'},
        {"json_schema": "no json"},
        {"json_schema": '{"$ref": "http://127.0.0.1:1/x.json"}'},
        {"regex": "([a-z"},
        {"regex": "(a{1000}){1000}"},
        {"regex": "(?=a)a"},
        {"choices": "[]"},
        {"choices": "[1]"},
        {"regex": "a", "choices": '["a"]'},
    ],
    ids=str,
)
def test_a_constraint_that_cannot_be_enforced_is_refused(inputs: dict[str, str], served: Served) -> None:
    began = time.monotonic()
    answer = served.predict(prompt="Hello", max_tokens=20, **inputs)
    assert answer["status"] == "failed", answer
    assert " E10" in answer["error"]
    assert time.monotonic() - began < 5
    assert text_of(served.predict(prompt="Hello", max_tokens=4, min_tokens=2))


def test_what_a_spec_says_of_every_answer_is_obeyed(served: Served) -> None:
    """The request as the runtime makes it, for settings with an `output` of their own."""
    raw = json.loads(Settings.load(served.root / "build/smol/settings.json").to_json())
    for output, fits in (
        ({"kind": "json", "schema": CITY}, lambda text: jsonschema.validate(json.loads(text), CITY) is None),
        ({"kind": "regex", "regex": "[a-f]{3,6}"}, lambda text: re.fullmatch("[a-f]{3,6}", text)),
        ({"kind": "choice", "choices": ["yes", "no"]}, lambda text: text in {"yes", "no"}),
    ):
        raw["output"] |= {"schema": None, "regex": None, "choices": [], **output}
        request = Prompts(Settings.parse(json.dumps(raw))).request(
            {"prompt": FRANCE, "max_tokens": 300, "seed": 0}
        )
        answer = httpx.post(f"{served.engine_url()}{request.path}", json=request.body, timeout=120).json()
        assert fits(answer["choices"][0]["message"]["content"]), answer


def test_a_stop_text_that_lies_across_pieces_is_found(served: Served) -> None:
    free = served.predict(prompt="Count from one to twenty in words.", temperature=0.0, max_tokens=40)
    pieces = free["output"]
    text = "".join(pieces)
    for index in range(3, 12):
        stop = pieces[index][-2:] + pieces[index + 1] + pieces[index + 2][:2]
        answer = served.predict(
            prompt="Count from one to twenty in words.",
            temperature=0.0,
            max_tokens=40,
            stop=json.dumps([stop]),
        )
        assert text_of(answer) == text[: text.index(stop)]


def test_seed_zero_repeats(served: Served) -> None:
    seeded = {
        text_of(served.predict(prompt="Name a town.", temperature=1.5, max_tokens=12, seed=0))
        for _ in range(3)
    }
    assert len(seeded) == 1


def test_every_port_is_of_this_machine_alone(served: Served) -> None:
    ports = listening(served.root)
    assert len(ports) >= 2
    assert {address for address, _ in ports} == {"127.0.0.1"}


def test_the_logs_are_kept(served: Served, project: Path) -> None:
    logs = project / ".cogsmith/smol"
    assert "Starting to load model" in (logs / "engine.log").read_text()
    assert "boot report" in (logs / "server.log").read_text()
