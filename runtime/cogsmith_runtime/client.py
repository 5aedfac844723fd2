"""An async client of the engine's OpenAI API: as much of it as the container needs."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from . import errors
from .prompt import CHAT, COMPLETION, Request

# An answer may take as long as it takes; a connection on this machine may not.
_NO_LIMIT = aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=10)
_SHORT = 3.0
_TOO_LONG = re.compile(
    r"maximum context length is|prompt contains|max_tokens must be at least 1, got (0|-)|longer than the maximum",
    re.IGNORECASE,
)
_MAX_TOKENS = re.compile(r"max_tokens=\d+ cannot be greater than|max_tokens.{0,40}too large", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of an answer. Counts are totals so far, None where the engine gave none.

    reasoning: text that the engine's reasoning parser tells from the answer.
    """

    text: str
    reasoning: str
    finish_reason: str | None
    prompt_tokens: int | None
    output_tokens: int | None


class Client:
    """Speaks to the engine at `root` ("http://127.0.0.1:PORT"). To be made and used in one event loop.

    context: tokens, prompt and answer together; it appears in errors.
    """

    def __init__(self, root: str, context: int) -> None:
        self._root = root
        self._context = context
        self._model: str | None = None
        # Limits of aiohttp (100 connections) must never be what holds a prediction back.
        self._session = aiohttp.ClientSession(
            timeout=_NO_LIMIT, connector=aiohttp.TCPConnector(limit=0), read_bufsize=2**20
        )

    async def close(self) -> None:
        """Close the connections. Answers in progress must have been ended before: they would wait for ever."""
        await self._session.close()

    async def healthy(self) -> bool:
        """True where the engine says it is ready. It says so also when frozen: see watch.py."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(_SHORT), self._session.get(self._root + "/health") as response:
                return response.status == 200
        return False

    async def learn_model(self) -> None:
        """Ask for the served model's name, which some engines want in every request."""
        async with self._session.get(self._root + "/v1/models") as response:
            self._model = (await response.json())["data"][0]["id"]

    async def metrics(self) -> str | None:
        """The engine's metrics as Prometheus text; None where it does not answer in a few seconds."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(_SHORT), self._session.get(self._root + "/metrics") as response:
                return await response.text() if response.status == 200 else None
        return None

    async def count(self, request: Request) -> int | None:
        """The number of tokens of a request's prompt; None where the engine cannot tell."""
        keys = ("messages", "prompt", "add_special_tokens", "chat_template_kwargs")
        body = {key: request.body[key] for key in keys if key in request.body}
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError, KeyError):
            async with (
                asyncio.timeout(10 * _SHORT),
                self._session.post(self._root + "/tokenize", json=self._named(body)) as response,
            ):
                return int((await response.json())["count"]) if response.status == 200 else None
        return None

    async def answers(self, seconds: float) -> bool:
        """True where the engine makes one token within `seconds`."""
        body = self._named({"prompt": "a", "max_tokens": 1})
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                asyncio.timeout(seconds),
                self._session.post(self._root + COMPLETION, json=body) as response,
            ):
                await response.read()
                return response.status < 500
        return False

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The answer, event by event, the last with a finish_reason.

        Closing it (or canceling the task) closes the connection, by which the engine stops the request.
        Raises InputError (the engine refused the request), EngineError (it failed on it) or aiohttp.ClientError.
        """
        if request.path == COMPLETION and request.max_tokens is None:
            request = await self._to_the_end(request)
        options = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        response = await self._session.post(
            self._root + request.path, json=self._named(request.body | options)
        )
        try:
            if response.status != 200:
                raise await self._refusal(request, response)
            finished = False
            async for line in response.content:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    break
                chunk = _chunk(request.path, data)
                finished = finished or chunk.finish_reason is not None
                yield chunk
            if not finished:
                raise errors.stream_broken("the engine ended it without a finish_reason")
        finally:
            response.close()

    async def _to_the_end(self, request: Request) -> Request:
        """The request with all the tokens that the context leaves, which is what a chat gets that sets no max_tokens.

        A completion would get 16, also with an explicit null.
        """
        count = await self.count(request)
        if count is None:
            raise errors.engine_failed("it did not count the prompt's tokens, and there is no max_tokens")
        if count >= self._context:
            raise errors.prompt_too_long(count, self._context)
        return replace(request, body={**request.body, "max_tokens": self._context - count})

    def _named(self, body: dict[str, Any]) -> dict[str, Any]:
        return body if self._model is None else {"model": self._model, **body}

    async def _refusal(self, request: Request, response: aiohttp.ClientResponse) -> errors.CodedError:
        message = _message(await response.text())
        if response.status >= 500:
            return errors.engine_failed(message)
        if _MAX_TOKENS.search(message) and request.max_tokens is not None:
            count = await self.count(request)
            if count is None or count < self._context:
                return errors.max_tokens_too_large(count, request.max_tokens, self._context)
            return errors.prompt_too_long(count, self._context)
        if _TOO_LONG.search(message):
            return errors.prompt_too_long(await self.count(request), self._context)
        return errors.refused(message)


def _chunk(path: str, data: bytes) -> Chunk:
    try:
        event = json.loads(data)
    except ValueError:
        raise errors.stream_broken("the engine sent an event that is not JSON") from None
    if "error" in event:
        # The status was sent long before, so a failure in mid-stream comes as an event.
        raise errors.engine_failed(_message(data.decode(errors="replace")))
    choice = (event.get("choices") or [{}])[0]
    delta = choice.get("delta") or {}
    usage = event.get("usage") or {}
    return Chunk(
        text=(delta.get("content") if path == CHAT else choice.get("text")) or "",
        # vLLM's name, and the one that TensorRT-LLM and older ones use.
        reasoning=delta.get("reasoning") or delta.get("reasoning_content") or "",
        finish_reason=choice.get("finish_reason"),
        prompt_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
    )


def _message(text: str) -> str:
    """The sentence in an error body, whichever of its shapes it has."""
    with contextlib.suppress(ValueError, AttributeError):
        body = json.loads(text)
        error = body.get("error", body.get("detail", body))
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    return " ".join(text.split())[:1000] or "it gave no reason"
