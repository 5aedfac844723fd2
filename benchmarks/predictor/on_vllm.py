"""Tokens per second through Cog's server, as a ratio to those of the same vLLM process asked directly."""

from __future__ import annotations

import asyncio
import statistics

import aiohttp
from client import Api, Cog, Direct, ask, new_session
from figures import Figure, table, turns
from processes import engine_root

from cogsmith.local import free_port
from cogsmith.output import step
from cogsmith.paths import Project
from cogsmith.plan import Plan
from cogsmith.session import running

ROUNDS = 12
STREAMS = (1, 4)
TOKENS = 64  # of an answer
# Cog frees a slot a moment after the last byte of its answer; a request in between is refused where all slots are in use.
PAUSE = 0.5
GOAL = 0.95


def run(project: Project, plan: Plan, rounds: int) -> str:
    """The table.

    Args:
        project: where the packed weights are.
        plan: the model.
        rounds: of each way to ask at each number of streams.

    Raises:
        UserError: the model is not packed or did not start, or an answer failed.
    """
    with running(project, plan, free_port()) as session:
        speeds = asyncio.run(_measure(engine_root(), Cog(session.server.url), rounds))
    figures = {streams: _figures(*of) for streams, of in speeds.items()}
    return table(f"{plan.engine.name} {plan.engine.version}, {plan.name}", figures)


async def _measure(root: str, cog: Api, rounds: int) -> dict[int, tuple[list[float], list[float]]]:
    found: dict[int, tuple[list[float], list[float]]] = {streams: ([], []) for streams in STREAMS}
    async with new_session() as session:
        async with session.get(f"{root}/v1/models") as response:
            direct = Direct(root, (await response.json())["data"][0]["id"])
        for streams, of in found.items():
            for api in (direct, cog):
                await _speed(session, api, streams)
            for number in range(rounds):
                step(f"vLLM, {streams} at once: round {number + 1} of {rounds}")
                for api in turns(direct, cog, number):
                    of[api is cog].append(await _speed(session, api, streams))
    return found


async def _speed(session: aiohttp.ClientSession, api: Api, streams: int) -> float:
    """Tokens per second of as many answers at once, from the first request to the last token."""
    await asyncio.sleep(PAUSE)
    answers = await asyncio.gather(*(ask(session, api, TOKENS) for _ in range(streams)))
    seconds = max(answer.ended for answer in answers) - min(answer.began for answer in answers)
    return sum(answer.tokens for answer in answers) / seconds


def _figures(direct: list[float], cog: list[float]) -> dict[str, Figure]:
    ratios = [ours / theirs for ours, theirs in zip(cog, direct, strict=True)]
    return {
        "direct, tokens/s": Figure(statistics.median(direct), direct),
        "through Cog, tokens/s": Figure(statistics.median(cog), cog),
        f"**through Cog / direct** (goal: {GOAL} or more)": Figure(statistics.median(ratios), ratios),
    }
