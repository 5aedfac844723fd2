"""The one client of the benchmark: asks an OpenAI API or Cog's server for an answer, and reads its server-sent events."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from cogsmith.errors import UserError

# Cog's server refuses the later of two requests that ask for a slot in the same instant, also while slots are free.
TRIES = 20

PROMPT = "Write a long story about a lighthouse keeper and his dog."


@dataclass
class Answer:
    """Monotonic times in seconds.

    pieces: each text with the time at which it was there.
    tokens: how many, by what the server says at the end.
    """

    began: float
    pieces: list[tuple[float, str]] = field(default_factory=list)
    tokens: int = 0

    @property
    def first(self) -> float:
        """Seconds to the first text."""
        return self.pieces[0][0] - self.began

    @property
    def ended(self) -> float:
        """When the last text was there."""
        return self.pieces[-1][0]


class Api(Protocol):
    """One way to ask."""

    name: str
    url: str

    def body(self, tokens: int) -> dict[str, Any]:
        """The request for an answer of exactly this many tokens."""

    def read(self, answer: Answer, kind: str, data: bytes, now: float) -> None:
        """Take one event into the answer."""


class Direct:
    """The engine's own API, as any client of it would use it."""

    name = "direct"

    def __init__(self, root: str, model: str) -> None:
        self.url = f"{root}/v1/chat/completions"
        self._model = model

    def body(self, tokens: int) -> dict[str, Any]:
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": PROMPT}],
            "temperature": 0,
            "max_tokens": tokens,
            "min_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def read(self, answer: Answer, kind: str, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise UserError(f"the engine failed: {event['error']}")
        for choice in event["choices"]:
            if text := choice["delta"].get("content"):
                answer.pieces.append((now, text))
        if event.get("usage"):
            answer.tokens = event["usage"]["completion_tokens"]


class Cog:
    """Cog's server."""

    name = "through Cog"

    def __init__(self, root: str) -> None:
        self.url = f"{root}/predictions"

    def body(self, tokens: int) -> dict[str, Any]:
        return {
            "input": {"prompt": PROMPT, "temperature": 0, "max_tokens": tokens, "min_tokens": tokens},
        }

    def read(self, answer: Answer, kind: str, data: bytes, now: float) -> None:
        if kind not in {"output", "completed", "error"}:
            return
        event = json.loads(data)
        if kind == "output":
            answer.pieces.append((now, event["chunk"]))
            return
        end = event.get("prediction", event)
        if end.get("status") != "succeeded":
            raise UserError(f"a prediction failed: {end.get('error')}")
        answer.tokens = end["metrics"]["output_token_count"]


async def ask(session: aiohttp.ClientSession, api: Api, tokens: int) -> Answer:
    """One answer, read to the end of the connection's response. A request refused with 409 is made again at once, on the same clock.

    Raises:
        UserError: the server refused or failed, or gave another number of tokens.
    """
    answer = Answer(time.monotonic())
    headers = {"Accept": "text/event-stream"}
    for left in reversed(range(TRIES)):
        async with session.post(api.url, json=api.body(tokens), headers=headers) as response:
            if response.status == 409 and left:
                continue
            if response.status != 200:
                raise UserError(f"{api.url} answered {response.status}: {(await response.text())[:300]}")
            await _read(api, answer, response)
            break
    if answer.tokens != tokens or not answer.pieces:
        raise UserError(f"{api.url} gave {answer.tokens} tokens, {tokens} were asked for")
    return answer


async def _read(api: Api, answer: Answer, response: aiohttp.ClientResponse) -> None:
    kind = ""
    async for line in response.content:
        now = time.monotonic()
        if line.startswith(b"event:"):
            kind = line[6:].strip().decode()
        elif line.startswith(b"data:"):
            api.read(answer, kind, line[5:].strip(), now)


def new_session() -> aiohttp.ClientSession:
    """Connections are kept from one request to the next, for both ways; their number is not limited."""
    timeout = aiohttp.ClientTimeout(total=120)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout, read_bufsize=2**20)
