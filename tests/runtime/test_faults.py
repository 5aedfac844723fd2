"""When the engine fails under Cog's real server: how soon it is noticed, what is said, and that nothing is left."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from .conftest import Start


@pytest.mark.parametrize("fault", ["die", "kill"])
async def test_a_dead_engine_fails_its_predictions(start: Start, fault: str) -> None:
    server = await start()
    other = asyncio.create_task(server.predict(prompt="go", max_tokens=60))
    began = time.monotonic()
    broken = await server.predict(prompt=fault)
    done = await other
    assert time.monotonic() - began < 10
    for one in (broken, done):
        assert one["status"] == "failed"
        assert "E2002 EngineDied" in one["error"]
    assert await server.until(lambda health: health["status"] == "UNHEALTHY", 5) < 2
    assert "E2002" in (await server.predict(prompt="go"))["error"]
    assert [c for c in server.command_lines() if "--port" in c] == [], "the engine's own processes are gone"


async def test_a_frozen_engine_is_noticed(start: Start) -> None:
    server = await start(environment={"COGSMITH_STALL_SECONDS": "1"})
    began = time.monotonic()
    done = await server.predict(prompt="freeze")
    # Stall 1 s, two samples 1 s apart, a probe of 2 s.
    assert time.monotonic() - began < 15
    assert "E2003 EngineHung" in done["error"]
    assert await server.until(lambda health: health["status"] == "UNHEALTHY", 5) < 2


async def test_a_long_prefill_is_no_hang(start: Start) -> None:
    server = await start(environment={"COGSMITH_STALL_SECONDS": "0.5"})
    done = await server.predict(prompt="long", max_tokens=3)
    assert done["status"] == "succeeded"
    assert done["metrics"]["time_to_first_token"] > 3


async def test_sigterm_lets_predictions_end_and_leaves_nothing(start: Start) -> None:
    server = await start("--delay", "0.2")
    running = [asyncio.create_task(server.predict(prompt="go", max_tokens=10)) for _ in range(4)]
    await asyncio.sleep(0.6)
    server.process.send_signal(signal.SIGTERM)
    assert [done["status"] for done in await asyncio.gather(*running)] == ["succeeded"] * 4
    assert await asyncio.to_thread(server.process.wait, 5) == 0
    await server.nothing_left(2)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_sigkill_leaves_nothing(start: Start, busy: bool) -> None:
    server = await start("--delay", "0.5", "--context", "500", context=500)
    running = [asyncio.create_task(server.predict(prompt="go", max_tokens=400)) for _ in range(4 * busy)]
    await asyncio.sleep(0.7 * busy)
    server.process.kill()
    server.process.wait()
    try:
        await server.nothing_left(3)
    finally:
        await asyncio.gather(*running, return_exceptions=True)


async def test_nothing_is_left_when_the_worker_is_killed(start: Start) -> None:
    server = await start()
    workers = [c for c in server.command_lines() if "--port" in c]
    assert workers
    # Each thread has a list of its own.
    threads = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    children = [pid for thread in threads for pid in thread.read_text().split()]
    assert children
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    began = time.monotonic()
    while [c for c in server.command_lines() if "--port" in c]:
        assert time.monotonic() - began < 8
        await asyncio.sleep(0.1)


async def test_a_failed_start_is_one_coded_sentence(start: Start) -> None:
    line = "ValueError: Unknown quantization method: nope. Must be one of ['awq']."
    server = await start("--fail-with", f"Traceback (most recent call last):\n{line}", ready=False)
    await server.until(lambda health: health["status"] == "SETUP_FAILED", 20)
    logs = (await server.health())["setup"]["logs"]
    assert "E2115 UnknownQuantization: the engine does not know the model's quantization nope." in logs
    assert "Traceback" not in logs
    assert [c for c in server.command_lines() if "--port" in c] == []


async def test_an_engine_that_is_never_ready_is_ended(start: Start) -> None:
    server = await start("--never-ready", engine={"start_timeout": 2}, ready=False)
    await server.until(lambda health: health["status"] == "SETUP_FAILED", 20)
    assert "E2101 EngineStartTimeout" in (await server.health())["setup"]["logs"]
    assert [c for c in server.command_lines() if "--port" in c] == []


async def test_an_engine_that_cannot_answer_never_becomes_ready(start: Start) -> None:
    server = await start("--context", "0", ready=False)
    await server.until(lambda health: health["status"] == "SETUP_FAILED", 20)
    assert "E1005" in (await server.health())["setup"]["logs"]
