"""Cog's own server on a small predict.py, as a container would run it, with the stub engine behind it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx

STUB = Path(__file__).with_name("stub_engine.py")
CONTEXT = 64

PREDICT = """
from typing import Optional
from cog import BaseRunner, ConcatenateIterator, Input, concurrent, streaming
from cogsmith_runtime.predictor import Model


class Predictor(BaseRunner):
    async def setup(self, weights: Optional[str] = None) -> None:
        self.model = await Model.start(weights, self.record_metric)

    @streaming
    @concurrent(max=4)
    async def run(
        self,
        prompt: Optional[str] = Input(default=None),
        system_prompt: Optional[str] = Input(default=None),
        messages: Optional[str] = Input(default=None),
        max_tokens: Optional[int] = Input(default=None),
        stop: Optional[str] = Input(default=None),
        json_schema: Optional[str] = Input(default=None),
    ) -> ConcatenateIterator[str]:
        return self.model.stream({
            "prompt": prompt, "system_prompt": system_prompt, "messages": messages,
            "max_tokens": max_tokens, "stop": stop, "json_schema": json_schema,
        })

    def healthcheck(self) -> bool:
        return self.model.healthy()
"""
# As it is rendered for `stream: false`.
WHOLE = (
    PREDICT.replace("    @streaming\n", "")
    .replace("ConcatenateIterator[str]:", "str:")
    .replace("return self.model.stream", "return await self.model.answer")
)

_TEXT = {"type": "string", "nullable": True}
SCHEMA = {
    "openapi": "3.0.2",
    "info": {"title": "Cog", "version": "0.1.0"},
    "paths": {"/predictions": {"post": {"x-cog-streaming": True}}},
    "components": {
        "schemas": {
            "Input": {
                "type": "object",
                "title": "Input",
                "properties": {
                    "prompt": _TEXT,
                    "system_prompt": _TEXT,
                    "messages": _TEXT,
                    "max_tokens": {"type": "integer", "nullable": True},
                    "stop": _TEXT,
                    "json_schema": _TEXT,
                },
            },
            "Output": {
                "type": "array",
                "items": {"type": "string"},
                "x-cog-array-type": "iterator",
                "x-cog-array-display": "concatenate",
            },
        }
    },
}

WHOLE_SCHEMA = json.loads(json.dumps(SCHEMA))
WHOLE_SCHEMA["paths"] = {"/predictions": {"post": {}}}
WHOLE_SCHEMA["components"]["schemas"]["Output"] = {"title": "Output", "type": "string"}


def settings(*stub_arguments: str, **changes: Any) -> dict[str, Any]:
    """settings.json's content for the stub engine; `engine` in changes is merged."""
    engine = {
        "name": "stub",
        "version": "1",
        "api": "vllm",
        "command": ["{python}", str(STUB), "--port", "{port}", "--model", "{model}", *stub_arguments],
        "environment": {},
        "start_timeout": 20,
        "load_mark": "Starting to load model",
    }
    base: dict[str, Any] = {
        "name": "demo",
        "context": CONTEXT,
        "concurrency": 4,
        "prompt": {
            "template": None,
            "chat_template_kwargs": {},
            "system": None,
            "special_tokens": ["<|im_start|>", "<|im_end|>"],
        },
        "output": {
            "kind": "text",
            "schema": None,
            "regex": None,
            "choices": [],
            "stream": True,
            "reasoning": "hide",
        },
        "inputs": ["prompt", "system_prompt", "messages", "max_tokens", "stop", "json_schema"],
        "sampling": {"max_tokens": 20},
        "stop": [],
        "stop_token_ids": [],
        "weights_url": None,
    }
    parts = {name: base[name] | changes.get(name, {}) for name in ("prompt", "output")}
    return base | changes | parts | {"engine": engine | changes.get("engine", {})}


class CogServer:
    """`python -m cog.server.http` in a folder of its own. Everything it starts has the folder in its command line."""

    def __init__(self, folder: Path, content: dict[str, Any], **environment: str) -> None:
        self.folder = folder
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "config.json").write_text("{}")
        (folder / ".cog").mkdir()
        (folder / ".cog" / "openapi_schema.json").write_text(
            json.dumps(SCHEMA if content["output"]["stream"] else WHOLE_SCHEMA)
        )
        (folder / "settings.json").write_text(json.dumps(content))
        streams = content["output"]["stream"]
        (folder / "predict.py").write_text(PREDICT if streams else WHOLE)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        binaries = Path(sys.executable).parent
        self.output = (folder / "server.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{binaries}:{os.environ['PATH']}",
                "COG_PREDICT_TYPE_STUB": "predict.py:Predictor",
                "COG_MAX_CONCURRENCY": "4",
                "COG_WEIGHTS": str(folder / "model"),
                "COGSMITH_LOG_DIR": str(folder / "logs"),
                "COGSMITH_CACHE": str(folder / "cache"),
                "PORT": str(self.port),
                **environment,
            },
            stdout=self.output,
            stderr=self.output,
        )
        self.http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    async def health(self) -> dict[str, Any]:
        return dict((await self.http.get("/health-check")).json())

    async def until(self, condition: Callable[[dict[str, Any]], bool], seconds: float) -> float:
        """Wait for a state of the health check; return how many seconds it took."""
        began = time.monotonic()
        seen: object = None
        while time.monotonic() - began < seconds:
            try:
                seen = await self.health()
                if condition(seen):
                    return time.monotonic() - began
            except httpx.TransportError as error:
                seen = error
            await asyncio.sleep(0.05)
        raise AssertionError(f"after {seconds} s: {seen}\n{(self.folder / 'server.log').read_text()[-4000:]}")

    async def ready(self) -> None:
        await self.until(lambda health: health["status"] == "READY", 30)

    async def predict(self, **inputs: Any) -> dict[str, Any]:
        response = await self.http.post("/predictions", json={"input": inputs})
        return dict(response.json()) | {"http": response.status_code}

    async def events(self, name: str = "", **inputs: Any) -> AsyncIterator[tuple[float, str, dict[str, Any]]]:
        """Server-sent events of one prediction: when, which, what."""
        request = ("PUT", f"/predictions/{name}") if name else ("POST", "/predictions")
        headers = {"Accept": "text/event-stream"}
        async with self.http.stream(*request, json={"input": inputs}, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            kind = ""
            async for line in response.aiter_lines():
                if line.startswith("event:"):
                    kind = line[6:].strip()
                elif line.startswith("data:"):
                    yield time.monotonic(), kind, json.loads(line[5:])

    async def engine_metric(self, name: str) -> float:
        text = await asyncio.to_thread(self.engine_command)
        port = text[text.index("--port") + 1]
        async with httpx.AsyncClient() as http:
            lines = (await http.get(f"http://127.0.0.1:{port}/metrics")).text.splitlines()
        return float(next(line for line in lines if line.startswith(f"vllm:{name}")).split()[-1])

    def engine_command(self) -> list[str]:
        found = [c for c in self.command_lines() if "--port" in c and "--grace" not in c]
        return found[0]

    def command_lines(self) -> list[list[str]]:
        """The command line of each living process that names this server's folder or works in it."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = entry.read_text().split("\0")
                place = os.readlink(entry.with_name("cwd"))
            except OSError:
                continue
            if any(str(self.folder) in word for word in [place, *command]):
                found.append(command)
        return found

    async def nothing_left(self, seconds: float) -> float:
        began = time.monotonic()
        while left := self.command_lines():
            assert time.monotonic() - began < seconds, left
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def close(self) -> None:
        await self.http.aclose()
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, 15)
        finally:
            self.process.kill()
            self.process.wait()
            self.output.close()
