"""The rendered folder under older and newer Cog servers: 32 predictions at once, live by what that version has, and canceled.

Each version is installed from PyPI into an environment of its own. A stub stands for the engine, at its API: what is tried is the
predictor under Cog's server, and no version of Cog takes another path through the engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uv
from aiohttp import web

from checkpoints import write_checkpoint
from cogsmith.cog_versions import cog_version
from cogsmith.local import LocalServer, free_port
from cogsmith.paths import Project
from cogsmith.verbs.lock import lock
from cogsmith.verbs.render import planned, render

STUB = Path(__file__).parent.parent / "runtime" / "stub_engine.py"
VERSIONS = ("0.17.2", "0.20.0", "0.23.1")
WITH_EVENTS = [version for version in VERSIONS if cog_version(version).streaming]
MANY = 32
# Cog answers 409 also while slots are free: to the later of two requests that ask for one in the same instant, and until a moment after
# an answer has ended.
RETRIES = 20
TOKENS = 20
DELAY = 0.1
# What the runtime imports besides Cog, at the versions of the image.
PACKAGES = ("aiohttp", "crc32c", "jinja2", "jsonschema")


class Running:
    """One version's server, and the folder that it runs."""

    def __init__(self, version: str, url: str, folder: Path) -> None:
        self.version, self.url, self.folder = version, url, folder

    async def engine_running(self) -> float:
        """How many requests the engine works on."""
        async with httpx.AsyncClient() as http:
            lines = (await http.get(f"http://127.0.0.1:{self.engine_port()}/metrics")).text.splitlines()
        return float(next(line for line in lines if "num_requests_running" in line).split()[-1])

    def engine_port(self) -> str:
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = entry.read_text().split("\0")
            except OSError:
                continue
            if words[1:2] == [str(STUB)] and str(self.folder) in " ".join(words):
                return words[words.index("--port") + 1]
        raise AssertionError("no engine runs")

    async def until_engine_runs(self, count: int, seconds: float) -> None:
        began = time.monotonic()
        while (running := await self.engine_running()) != count:
            assert time.monotonic() - began < seconds, running
            await asyncio.sleep(0.02)


def environment_of(version: str, coglet: str, folder: Path) -> Path:
    """Python of a fresh environment, made as an image is: `sdk_version` first, then the step that pins coglet."""
    tool = uv.find_uv_bin()
    subprocess.run([tool, "venv", "-q", str(folder)], check=True)
    python = folder / "bin" / "python"
    install = [tool, "pip", "install", "-q", "--python", str(python)]
    subprocess.run([*install, f"cog=={version}", *PACKAGES], check=True)
    subprocess.run([*install, "--no-deps", coglet], check=True)
    return python


def rendered(root: Path, version: str) -> Path:
    """build/tiny as `render` writes it, with the stub named as the engine."""
    (root / "models").mkdir(parents=True)
    spec = f'model: weights/tiny\nbackend: vllm\nhardware: cpu\nconcurrency: {MANY}\ncog: "{version}"\n'
    (root / "models/tiny.yaml").write_text(spec)
    write_checkpoint(root / "weights/tiny")
    project = Project(root)
    old = Path.cwd()
    os.chdir(root)
    try:
        lock(project, "tiny")
        render(project, planned(project, "tiny"))
    finally:
        os.chdir(old)
    folder = root / "build/tiny"
    settings = json.loads((folder / "settings.json").read_text())
    command = ["{python}", str(STUB), "--port", "{port}", "--model", "{model}", "--delay", str(DELAY)]
    settings["engine"]["command"] = [*command, "--context", str(settings["context"])]
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module", params=VERSIONS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp(f"cog-{request.param}")
    folder = rendered(root / "project", request.param)
    [coglet] = re.findall(r" (coglet==\S+)\"", (folder / "cog.yaml").read_text())
    python = environment_of(request.param, coglet, root / "venv")
    environment = {
        "COG_WEIGHTS": str(root / "project/weights/tiny"),
        "COG_THROTTLE_RESPONSE_INTERVAL": "0",
        "COGSMITH_CACHE": str(root / "cache"),
    }
    port = free_port()
    with LocalServer(folder, python, port, MANY, environment, root / "logs") as running:
        running.wait_ready(60, lambda _: None)
        yield Running(request.param, running.url, root / "project")


@pytest.fixture(autouse=True)
async def all_slots_free(server: Running) -> None:
    await server.until_engine_runs(0, 5)


@pytest.fixture
async def hooks() -> AsyncIterator[tuple[str, dict[str, list[tuple[float, dict[str, Any]]]]]]:
    """An address for webhooks, and what came to it: prediction -> (when, what)."""
    seen: dict[str, list[tuple[float, dict[str, Any]]]] = defaultdict(list)

    async def take(request: web.Request) -> web.Response:
        body = await request.json()
        seen[request.match_info["name"]].append((time.monotonic(), body))
        return web.Response()

    app = web.Application()
    app.router.add_post("/{name}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port := free_port())
    await site.start()
    yield f"http://127.0.0.1:{port}", seen
    await runner.cleanup()


async def ask(http: httpx.AsyncClient, server: Running, name: str, hook: str, tokens: int = TOKENS) -> None:
    """Start a prediction whose webhooks go to `hook`/`name`."""
    body = {"input": {"prompt": "go", "max_tokens": tokens}, "webhook": f"{hook}/{name}"}
    filters = {"webhook_events_filter": ["start", "output", "completed"]}
    for _ in range(RETRIES):
        answer = await http.put(
            f"{server.url}/predictions/{name}", json=body | filters, headers={"Prefer": "respond-async"}
        )
        if answer.status_code != 409:
            break
    assert answer.status_code == 202, answer.text


async def until_over(events: list[tuple[float, dict[str, Any]]], seconds: float) -> dict[str, Any]:
    """The last state of a prediction. Cog sends its webhooks side by side, so the last to come may be of an earlier state."""
    began = time.monotonic()
    while True:
        for _, body in events:
            if body["status"] in {"succeeded", "failed", "canceled"}:
                return body
        assert time.monotonic() - began < seconds, events[-1:]
        await asyncio.sleep(0.05)


async def test_many_predictions_come_live_over_webhooks(server: Running, hooks: Any) -> None:
    hook, seen = hooks
    names = [f"hook-{number}" for number in range(MANY)]
    async with httpx.AsyncClient(timeout=30) as http:
        began = time.monotonic()
        await asyncio.gather(*(ask(http, server, name, hook) for name in names))
        ends = await asyncio.gather(*(until_over(seen[name], 30) for name in names))
    whole = "".join(f"t{number} " for number in range(TOKENS))
    assert {end["status"] for end in ends} == {"succeeded"}
    assert {"".join(end["output"]) for end in ends} == {whole}
    assert {end["metrics"]["output_token_count"] for end in ends} == {TOKENS}
    # All at once: alone one takes TOKENS * DELAY.
    assert max(events[-1][0] for events in seen.values()) - began < 2.5 * TOKENS * DELAY
    for name in names:
        growing = [(when, len(body.get("output") or [])) for when, body in seen[name]]
        first = next(when for when, length in growing if length)
        assert growing[-1][0] - first > 0.6 * TOKENS * DELAY, growing
        assert len({length for _, length in growing}) > TOKENS / 2, growing


@pytest.mark.parametrize("server", WITH_EVENTS, indirect=True)
async def test_many_predictions_come_live_as_events(server: Running) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        began = time.monotonic()
        arrivals = await asyncio.gather(*(stream(http, server) for _ in range(MANY)))
    for times in arrivals:
        assert len(times) == TOKENS
        assert times[0] - began < 0.6 * TOKENS * DELAY
        assert times[-1] - times[0] > 0.6 * TOKENS * DELAY


async def stream(http: httpx.AsyncClient, server: Running) -> list[float]:
    """When each piece of an answer came."""
    body = {"input": {"prompt": "go", "max_tokens": TOKENS}}
    headers = {"Accept": "text/event-stream"}
    for _ in range(RETRIES):
        async with http.stream("POST", f"{server.url}/predictions", json=body, headers=headers) as answer:
            if answer.status_code == 200:
                return [time.monotonic() async for line in answer.aiter_lines() if line == "event: output"]
            assert answer.status_code == 409, await answer.aread()
    raise AssertionError("409 again and again")


async def test_a_cancel_reaches_the_engine(server: Running, hooks: Any) -> None:
    hook, seen = hooks
    async with httpx.AsyncClient(timeout=30) as http:
        await asyncio.gather(*(ask(http, server, name, hook, 200) for name in ("stay", "go")))
        await server.until_engine_runs(2, 5)
        canceled = await http.post(f"{server.url}/predictions/go/cancel")
        assert canceled.status_code == 200
        await server.until_engine_runs(1, 1)
        assert (await until_over(seen["go"], 5))["status"] == "canceled"
        await http.post(f"{server.url}/predictions/stay/cancel")
        await server.until_engine_runs(0, 1)
        assert (await until_over(seen["stay"], 5))["status"] == "canceled"


@pytest.mark.parametrize("server", WITH_EVENTS, indirect=True)
async def test_a_client_that_goes_away_stops_the_engine(server: Running) -> None:
    body = {"input": {"prompt": "go", "max_tokens": 200}}
    headers = {"Accept": "text/event-stream"}
    async with httpx.AsyncClient(timeout=30) as http:
        async with http.stream("POST", f"{server.url}/predictions", json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if line == "event: output":
                    break
            assert await server.engine_running() == 1
        await server.until_engine_runs(0, 1)
