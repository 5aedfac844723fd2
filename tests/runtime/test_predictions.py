"""What an API user sees of one ready container: Cog's real server, the stub engine."""

import asyncio
import json
import time
from itertools import pairwise
from typing import Any

import pytest

from .cogserver import CONTEXT, CogServer

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def collect(server: CogServer, **inputs: Any) -> tuple[list[float], str, str]:
    """Times of the pieces, the whole answer, and the status in the last event."""
    times: list[float] = []
    text, data = "", dict[str, Any]()
    async for when, kind, data in server.events(**inputs):
        if kind == "output":
            times.append(when)
            text += data["chunk"]
    return times, text, str(data.get("status"))


async def test_four_streams_are_live_at_once_and_a_fifth_is_refused(server: CogServer) -> None:
    streams = [asyncio.create_task(collect(server, prompt="go", max_tokens=30)) for _ in range(4)]
    await asyncio.sleep(0.5)
    fifth = await server.predict(prompt="go")
    results = await asyncio.gather(*streams)
    assert fifth["http"] == 409
    assert max(times[0] for times, _, _ in results) < min(times[-1] for times, _, _ in results)
    for times, text, last in results:
        assert text == "".join(f"t{i} " for i in range(30))
        assert last == "succeeded"
        gaps = [after - before for before, after in pairwise(times)]
        assert max(gaps) < 0.5, "tokens came in lumps"


async def test_metrics_of_a_prediction(server: CogServer) -> None:
    done = await server.predict(prompt="one two three", max_tokens=10)
    assert done["status"] == "succeeded"
    assert "".join(done["output"]) == "".join(f"t{i} " for i in range(10))
    metrics = done["metrics"]
    assert (metrics["input_token_count"], metrics["output_token_count"]) == (3, 10)
    assert 0 < metrics["time_to_first_token"] < 1
    assert 10 < metrics["tokens_per_second"] < 25, "one token each 0.05 s"


async def gone_from_engine(server: CogServer) -> float:
    began = time.monotonic()
    while await server.engine_metric("num_requests_running"):
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def free_slots(server: CogServer) -> None:
    """All four slots work within a second: Cog frees a slot a moment after it has told of the end of its answer."""
    began = time.monotonic()
    while True:
        done = await asyncio.gather(*(server.predict(prompt="go", max_tokens=2) for _ in range(4)))
        failed = [one for one in done if one["status"] != "succeeded"]
        if not failed:
            return
        assert {one["http"] for one in failed} == {409}, failed
        assert time.monotonic() - began < 1
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("when", ["mid-stream", "before the first token"])
async def test_cancel_stops_the_request_in_the_engine(server: CogServer, when: str) -> None:
    prompt = "go" if when == "mid-stream" else "long"
    seen: list[str] = []
    status = ""

    async def read() -> None:
        nonlocal status
        async for _, kind, data in server.events(name=f"cancel-{prompt}", prompt=prompt, max_tokens=50):
            seen.append(kind)
            status = data.get("status", "")

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.6)
    assert await server.engine_metric("num_requests_running") == 1
    assert (await server.http.post(f"/predictions/cancel-{prompt}/cancel")).status_code == 200
    assert await gone_from_engine(server) < 1
    await asyncio.wait_for(reader, 1)
    assert status == "canceled"
    assert ("output" in seen) == (when == "mid-stream")
    await free_slots(server)


async def test_cancel_of_a_waiting_client_ends_as_canceled(server: CogServer) -> None:
    request = asyncio.create_task(
        server.http.put("/predictions/wait", json={"input": {"prompt": "go", "max_tokens": 50}})
    )
    await asyncio.sleep(0.4)
    await server.http.post("/predictions/wait/cancel")
    assert (await asyncio.wait_for(request, 1)).json()["status"] == "canceled"


async def test_cancel_after_the_end_is_harmless(server: CogServer) -> None:
    assert (await server.http.put("/predictions/over", json={"input": {"prompt": "go"}})).status_code == 200
    assert (await server.http.post("/predictions/over/cancel")).status_code in (200, 404)
    await free_slots(server)


async def test_a_dropped_connection_stops_the_request_in_the_engine(server: CogServer) -> None:
    async for _, kind, _ in server.events(prompt="go", max_tokens=50):
        if kind == "output":
            break
    assert await gone_from_engine(server) < 1
    await free_slots(server)


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({"prompt": "  "}, "E1001 MissingInput"),
        ({"prompt": "a", "messages": '[{"role": "user", "content": "b"}]'}, "E1002 ConflictingInputs"),
        ({"messages": '[{"role": "king", "content": "b"}]'}, "E1003 MalformedInput"),
        ({"messages": '[{"role": "cancelled", "content": "b"}]'}, "role is 'cancelled'"),
        ({"prompt": "word " * 100}, "E1004 PromptTooLong: the prompt has 100 tokens, the context holds 64"),
        ({"prompt": "a b c", "max_tokens": 62}, "E1005 MaxTokensTooLarge: the prompt has 3 tokens"),
        ({"prompt": "a b c", "max_tokens": 5000}, "Set max_tokens to 61 or less"),
        ({"prompt": "hi <|im_start|>system"}, "E1006 SpecialToken: prompt contains '<|im_start|>'"),
        ({"prompt": "refuse me"}, "E1000 Refused: the engine refused the request: n must be 1."),
        ({"prompt": "error"}, "E2004 EngineFailed"),
        ({"prompt": "nofinish"}, "E2005 StreamBroken"),
    ],
)
async def test_a_failed_prediction_says_why(server: CogServer, inputs: dict[str, Any], error: str) -> None:
    done = await server.predict(**inputs)
    assert (done["http"], done["status"]) == (200, "failed")
    assert error in done["error"]
    assert "\n" not in done["error"]


async def test_clipped_answers_give_out_nothing(server: CogServer) -> None:
    times, text, last = await collect(server, prompt="a b c", max_tokens=CONTEXT - 2)
    assert (times, text, last) == ([], "", "failed")


@pytest.mark.parametrize(
    "text",
    [
        "\"quotes\" and 'quotes'",
        "{braces} {{ double }} {% if %}",
        "line\nbreaks\r\n\ttabs",
        "émoji 😀👩‍👩‍👧",
        "@file",
        "a\x00b",
    ],
)
async def test_text_arrives_as_it_was_sent(server: CogServer, text: str) -> None:
    done = await server.predict(prompt="echo " + text)
    assert "".join(done["output"]) == text


async def test_a_long_text_arrives_as_it_was_sent(server: CogServer) -> None:
    text = "x" * 100_000
    messages = json.dumps([{"role": "user", "content": [{"type": "text", "text": "echo " + text}]}])
    done = await server.predict(messages=messages)
    assert "".join(done["output"]) == text


async def test_the_boot_report_is_in_the_setup_log_and_in_a_file(server: CogServer) -> None:
    logs = (await server.health())["setup"]["logs"]
    line = next(line for line in logs.splitlines() if "cogsmith boot report: " in line)
    report = json.loads(line.partition("cogsmith boot report: ")[2])
    phases = {phase["phase"]: phase for phase in report["phases"]}
    assert list(phases) == ["fetch", "verify", "engine_import", "load", "warm_up"]
    assert all(0 <= phase["seconds"] < 20 for phase in phases.values())
    assert all(0 <= phase["start"] <= report["seconds"] for phase in phases.values())
    assert phases["engine_import"]["seconds"] > 0
    assert sum(phase["seconds"] for phase in phases.values()) <= report["seconds"] + 0.01
    for name in ("fetch", "verify", "engine import", "load", "warm up"):
        assert f"cogsmith boot: {name} " in logs
    assert json.loads((server.folder / "logs/boot.json").read_text()) == report
