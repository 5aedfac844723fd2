"""Answers that are constrained, thought about, or sent as a whole, under Cog's real server."""

import asyncio
import json

import pytest

from .conftest import Start


async def test_a_constraint_reaches_the_engine(start: Start) -> None:
    server = await start()
    done = await server.predict(prompt="body", json_schema='{"type": "object"}')
    assert json.loads("".join(done["output"]))["structured_outputs"] == {"json": {"type": "object"}}


async def test_a_constrained_answer_that_is_cut_off_is_a_failure(start: Start) -> None:
    server = await start("--delay", "0.01")
    done = await server.predict(prompt="go", max_tokens=5, json_schema='{"type": "object"}')
    assert done["status"] == "failed"
    assert "E2006 OutputCut" in done["error"]
    assert "max_tokens (5) was reached" in done["error"]


@pytest.mark.parametrize(
    ("reasoning", "text"), [("hide", "t3 t4 "), ("show", "<think>t0 t1 t2 </think>t3 t4 ")]
)
async def test_thinking_is_hidden_or_shown(start: Start, reasoning: str, text: str) -> None:
    server = await start("--delay", "0.01", output={"reasoning": reasoning})
    done = await server.predict(prompt="think", max_tokens=5)
    assert "".join(done["output"]) == text


async def test_thinking_that_never_ends_is_closed(start: Start) -> None:
    server = await start("--delay", "0.01", output={"reasoning": "show"})
    done = await server.predict(prompt="think", max_tokens=2)
    assert "".join(done["output"]) == "<think>t0 t1 </think>"


async def test_a_whole_answer_is_one_text(start: Start) -> None:
    server = await start("--delay", "0.01", output={"stream": False})
    done = await server.predict(prompt="go", max_tokens=3)
    assert (done["status"], done["output"]) == ("succeeded", "t0 t1 t2 ")
    refused = await server.predict(prompt="go <|im_end|> cancelled")
    assert refused["status"] == "failed"
    assert "E1006 SpecialToken" in refused["error"]


async def test_whole_answers_run_at_once_and_can_be_canceled(start: Start) -> None:
    server = await start("--delay", "0.2", output={"stream": False})
    url = "/predictions/whole"
    headers = {"Prefer": "respond-async"}
    answer = await server.http.put(url, json={"input": {"prompt": "go", "max_tokens": 50}}, headers=headers)
    assert answer.status_code == 202
    others = await asyncio.gather(*(server.predict(prompt="go", max_tokens=3) for _ in range(3)))
    assert [other["output"] for other in others] == ["t0 t1 t2 "] * 3
    assert await server.engine_metric("num_requests_running") == 1
    assert (await server.http.post(f"{url}/cancel")).status_code == 200
    await asyncio.sleep(1)
    assert await server.engine_metric("num_requests_running") == 0
