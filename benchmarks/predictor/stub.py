"""A stand-in for vLLM's server that computes nothing and sends its tokens on time.

    python stub.py --port PORT --rate TOKENS_PER_SECOND

The first token of an answer is due one period after the request came in; each later one at the next tick of a clock that
all answers share, because an engine's step gives a token to every answer at once. A token's text is two times,
`DUE:SENT`, in microseconds of the monotonic clock, which all processes of a machine share: so whoever reads it knows how
late this process was and how long the token was on its way. Routes and events are vLLM's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

from aiohttp import web

# As an event of vLLM 0.32 with the usage in it: what is read must have its real size.
EVENT = {
    "id": "chatcmpl-8f5d2c1b7a3e4f60",
    "object": "chat.completion.chunk",
    "created": 1750000000,
    "model": "stub",
    "choices": [
        {
            "index": 0,
            "delta": {"content": "TEXT"},
            "logprobs": None,
            "finish_reason": "FINISH",
            "token_ids": None,
        }
    ],
    "usage": {"prompt_tokens": 12, "total_tokens": "TOTAL", "completion_tokens": "MADE"},
}
PROMPT_TOKENS = 12
# Filled in, not made anew by json.dumps for each token: this process must not be what is late.
HEAD, REST = json.dumps(EVENT).split("TEXT")
LATER, USAGE = REST.split('"FINISH"')
TOTAL, MADE = USAGE.split('"TOTAL"')
MADE, END = MADE.split('"MADE"')


def event(text: str, made: int, last: bool) -> bytes:
    """One token as vLLM would send it."""
    finish = '"length"' if last else "null"
    total = PROMPT_TOKENS + made
    return f"data: {HEAD}{text}{LATER}{finish}{TOTAL}{total}{MADE}{made}{END}\n\n".encode()


class Stub:
    def __init__(self, rate: float) -> None:
        self.period = 1 / rate

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "stub"}]})

    async def empty(self, _: web.Request) -> web.Response:
        return web.Response()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        came = time.monotonic()
        body: dict[str, Any] = await request.json()
        tokens = int(body["max_tokens"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        due = came + self.period
        tick = int(due / self.period)
        for made in range(1, tokens + 1):
            await asyncio.sleep(due - time.monotonic())
            text = f"{due * 1e6:.0f}:{time.monotonic() * 1e6:.0f} "
            await response.write(event(text, made, made == tokens))
            due = (tick + made) * self.period
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens}
        await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response


async def serve(port: int, rate: float) -> None:
    stub = Stub(rate)
    app = web.Application()
    app.router.add_get("/health", stub.empty)
    app.router.add_get("/metrics", stub.empty)
    app.router.add_get("/v1/models", stub.models)
    app.router.add_post("/v1/chat/completions", stub.chat)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.rate))
