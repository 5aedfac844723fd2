"""A stand-in for vLLM's server, at the edge of the process, for two reasons.

The real one cannot be made to show most of its faults on demand, and takes half a minute to start. Routes, event
format, error bodies and metric names are those observed with vLLM 0.32; what a request does is said by its prompt:

    die         three tokens, then an error event, and the process exits with status 0, as vLLM's does
    kill        three tokens, then the process is killed
    freeze      two tokens, then nothing for anybody any more, while /health and /metrics go on to answer
    long        no token for a while, and the metrics move: a long prefill
    error       two tokens, then an error event
    nofinish    two tokens, then the end without a finish_reason
    echo TEXT   TEXT as one piece
    body        the request's body as one piece
    think       three tokens of reasoning, then tokens
    otherwise   "t0 t1 t2 …" until max_tokens
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from aiohttp import web

LONG = 4.0


class Stub:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.running = 0
        self.tokens = 0
        self.steps = 0
        self.frozen = asyncio.Event()

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "stub"}]})

    async def metrics(self, _: web.Request) -> web.Response:
        lines = {
            "num_requests_running": self.running,
            "generation_tokens_total": self.tokens,
            "kv_cache_usage_perc": self.steps / 1e6,
        }
        text = "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in lines.items())
        return web.Response(text=text + f"process_cpu_seconds_total {time.process_time()}\n")

    async def tokenize(self, request: web.Request) -> web.Response:
        text = prompt_of(await request.json())
        return web.json_response({"count": len(text.split()), "max_model_len": self.options.context})

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        chat = request.path.endswith("/chat/completions")
        text = prompt_of(body)
        if refusal := self.refusal(body, len(text.split())):
            return refused(refusal)
        if not body.get("stream"):
            await self.step(0)
            return web.json_response({"choices": [{"text": "t0", "finish_reason": "length"}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.running += 1
        try:
            await self.answer(response, body, text, chat)
        finally:
            self.running -= 1
        return response

    def refusal(self, body: dict[str, Any], prompt_tokens: int) -> str | None:
        most, context = body.get("max_tokens") or 1, self.options.context
        if most > context:
            return f"max_tokens={most} cannot be greater than max_model_len={context}."
        if prompt_tokens > context:
            return (
                f"This model's maximum context length is {context} tokens. However, your prompt contains at "
                f"least {context + 1} input tokens."
            )
        return "n must be 1" if text_is(body, "refuse me") else None

    async def answer(self, response: web.StreamResponse, body: dict[str, Any], text: str, chat: bool) -> None:
        prompt_tokens = len(text.split())
        # As observed: a completion that sets no max_tokens gets 16 tokens, a chat all that fit.
        most = min(body.get("max_tokens") or (10_000 if chat else 16), self.options.context - prompt_tokens)
        word, _, rest = text.partition(" ")
        if word == "body":
            rest = json.dumps(body)
        pieces = [rest] if word in ("echo", "body") else (f"t{i} " for i in range(most))
        if word == "long":
            await self.long_prefill()
        for made, piece in enumerate(pieces, start=1):
            await self.step(self.options.delay)
            self.tokens += 1
            usage = {"prompt_tokens": prompt_tokens, "completion_tokens": made}
            finish = "stop" if word in ("echo", "body") else "length" if made == most else None
            thinks = word == "think" and made <= 3
            await event(response, choice(piece, finish, chat, thinks) | {"usage": usage})
            if await self.fault(word, made, response):
                return
        await event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")

    async def fault(self, word: str, made: int, response: web.StreamResponse) -> bool:
        if word == "freeze" and made == 2:
            self.frozen.set()
        elif word == "kill" and made == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        elif word in ("die", "error") and made == 3:
            error = {
                "message": "EngineCore encountered an issue.",
                "type": "InternalServerError",
                "code": 500,
            }
            await event(response, {"error": error})
            if word == "die":
                asyncio.get_running_loop().call_later(0.3, os._exit, 0)
            return True
        elif word == "nofinish" and made == 2:
            return True
        return False

    async def step(self, delay: float) -> None:
        await asyncio.sleep(delay)
        if self.frozen.is_set():
            await asyncio.Event().wait()

    async def long_prefill(self) -> None:
        for _ in range(int(LONG / 0.05)):
            self.steps += 1
            await asyncio.sleep(0.05)


def prompt_of(body: dict[str, Any]) -> str:
    return str(body.get("prompt") or body["messages"][-1]["content"])


def text_is(body: dict[str, Any], text: str) -> bool:
    return prompt_of(body) == text


def choice(text: str, finish: str | None, chat: bool, thinks: bool = False) -> dict[str, Any]:
    key = "reasoning" if thinks else "content"
    content: dict[str, Any] = {"delta": {key: text}} if chat else {"text": text}
    return {"choices": [content | {"index": 0, "finish_reason": finish}]}


def refused(message: str) -> web.Response:
    error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    return web.json_response({"error": error}, status=400)


async def event(response: web.StreamResponse, data: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(data)}\n\n".encode())


async def serve(options: argparse.Namespace) -> None:
    stub = Stub(options)
    app = web.Application(client_max_size=2**28)
    app.router.add_get("/health", stub.health)
    app.router.add_get("/v1/models", stub.models)
    app.router.add_get("/metrics", stub.metrics)
    app.router.add_post("/tokenize", stub.tokenize)
    app.router.add_post("/v1/chat/completions", stub.generate)
    app.router.add_post("/v1/completions", stub.generate)
    # Without this aiohttp lets a handler run on when its client is gone; vLLM ends the request.
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", options.port).start()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--fail-with", help="write this and exit with status 1")
    parser.add_argument("--never-ready", action="store_true")
    parser.add_argument("--stubborn", action="store_true", help="one of its processes ignores SIGTERM")
    options = parser.parse_args()
    # As vLLM's workers: another process, here in a session of its own too, where a signal to the group misses it.
    sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); " * options.stubborn
    sleeper += "import time; time.sleep(1000)"
    subprocess.Popen([sys.executable, "-c", sleeper, options.model], start_new_session=True)
    if options.fail_with:
        print(options.fail_with, flush=True)
        sys.exit(1)
    print("Starting to load model", options.model, flush=True)
    if options.never_ready:
        time.sleep(1000)
    asyncio.run(serve(options))


if __name__ == "__main__":
    main()
