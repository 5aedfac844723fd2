"""Notices a hung engine, which its own health route does not: a frozen vLLM answers 200 and gives no token for ever.

Hung means all of: predictions run, none got a token for a while, no number in the engine's metrics moves, and a
request for one token stays without an answer. A long prefill is not a hang, though it can look like one for
as long as one step of the engine takes: so an engine that computes gets far more time for the probe.
Nothing is asked while no prediction runs.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .client import Client
from .engine import Engine
from .errors import engine_hung

STALL = 10.0
_BETWEEN_SAMPLES = 2.0
# From the last token to the verdict: STALL + 1 + two metrics answers (up to 3 s each) + 2 + PROBE, below 45 s.
_PROBE = 20.0
_PROBE_WHILE_COMPUTING = 120.0
_COMPUTING = 0.5  # of one core


class Watch:
    """Watches an engine while predictions run, and fails it when it hangs.

    stall: seconds without a token on any stream before anything is asked.
    """

    def __init__(self, engine: Engine, client: Client, stall: float = STALL) -> None:
        self._engine = engine
        self._client = client
        self._stall = stall
        self._running = 0
        self._last_token = 0.0
        self._last_sign = 0.0
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def prediction(self) -> Iterator[Callable[[], None]]:
        """For as long as a prediction runs. Gives the function to call at each token."""
        if self._running == 0:
            # Only then: new predictions, one every few seconds, must not hide that none of them gets a token.
            self._token()
            self._task = asyncio.create_task(self._look())
        self._running += 1
        try:
            yield self._token
        finally:
            self._running -= 1
            if self._running == 0 and self._task is not None:
                self._task.cancel()

    def _token(self) -> None:
        self._last_token = self._last_sign = time.monotonic()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._stall / 4))
            if time.monotonic() - self._last_sign < self._stall:
                continue
            if await self._moving() or await self._answers():
                self._last_sign = time.monotonic()
                continue
            self._engine.fail(engine_hung(time.monotonic() - self._last_token))
            return

    async def _moving(self) -> bool:
        before = _numbers(await self._client.metrics())
        await asyncio.sleep(min(_BETWEEN_SAMPLES, self._stall))
        return before != _numbers(await self._client.metrics())

    async def _answers(self) -> bool:
        probe = min(_PROBE, 2 * self._stall)
        before, _ = self._engine.activity()
        if await self._client.answers(probe):
            return True
        after, stopped = self._engine.activity()
        # One that is stopped makes others spin while they wait for it, which is no work.
        if stopped or after - before < _COMPUTING * probe:
            return False
        return await self._client.answers(_PROBE_WHILE_COMPUTING)


def _numbers(metrics: str | None) -> list[str]:
    """The engine's own numbers; those of its web server move with every request for them."""
    server = ("#", "http_", "process_", "python_")
    return [line for line in (metrics or "").splitlines() if not line.startswith(server)]
