"""What is added to a first token, to every token, and in processor time: on an engine that only sends tokens on time."""

from __future__ import annotations

import asyncio
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
from client import Answer, Api, Cog, Direct, ask, new_session
from figures import Figure, table, turns
from processes import engine_root, server_cpu

from cogsmith.local import LocalServer, free_port
from cogsmith.output import step, waiting
from cogsmith.paths import Project
from cogsmith.plan import Plan
from cogsmith.render import render, write

STUB = Path(__file__).with_name("stub.py")
ROUNDS = 5
STREAMS = (1, 8, 32)
RATE = 20  # tokens per second of each stream
TOKENS = 32  # of an answer
ANSWERS = 6  # of each stream in a round
# Twice as many as streams: Cog frees a slot a moment after the last byte of its answer, and a stream asks again at once.
CONCURRENCY = 2 * max(STREAMS)

Values = Callable[[list[Answer]], list[float]]
Statistic = Callable[[list[float]], float]


@dataclass
class Taken:
    """What one way to ask gave at one number of streams, by round: the answers, and the processor time of Cog's server."""

    answers: list[list[Answer]] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def all(self) -> list[Answer]:
        return [answer for answers in self.answers for answer in answers]


def run(project: Project, plan: Plan, rounds: int) -> str:
    """The table.

    Args:
        project: where the state of the run lies, in .cogsmith/bench-predictor.
        plan: the model whose predictor is asked; only its engine is another.
        rounds: of each way to ask at each number of streams.

    Raises:
        UserError: the server did not start, or an answer failed.
    """
    with _server(project, plan) as server:
        with waiting("Starting Cog's server on the stub engine") as say:
            server.wait_ready(60, say)
        taken = asyncio.run(_measure(Direct(engine_root(), "stub"), Cog(server.url), rounds))
    figures = {streams: _figures(*of) for streams, of in taken.items()}
    return table(f"stub engine, {RATE} tokens/s a stream", figures)


def _server(project: Project, plan: Plan) -> LocalServer:
    engine = replace(
        plan.settings.engine,
        name="stub",
        version="1",
        command=("{python}", str(STUB), "--port", "{port}", "--rate", str(RATE)),
        environment={},
        start_timeout=30,
    )
    settings = replace(plan.settings, engine=engine, concurrency=CONCURRENCY)
    changed = replace(plan, settings=settings, concurrency=CONCURRENCY, index=None)
    place = project.state_dir("bench-predictor")
    write(render(changed), place / "build")
    weights = place / "model"
    weights.mkdir(exist_ok=True)
    variables = {"COG_WEIGHTS": str(weights), "COGSMITH_CACHE": str(place / "cache")}
    return LocalServer(
        place / "build", Path(sys.executable), free_port(), CONCURRENCY, variables, place / "logs"
    )


async def _measure(direct: Api, cog: Api, rounds: int) -> dict[int, tuple[Taken, Taken]]:
    found = {streams: (Taken(), Taken()) for streams in STREAMS}
    async with new_session() as session:
        for streams, of in found.items():
            for api in (direct, cog):
                await _round(session, api, streams, 1)
            for number in range(rounds):
                step(f"Stub engine, {streams} at once: round {number + 1} of {rounds}")
                for api in turns(direct, cog, number):
                    before = server_cpu()
                    answers = await _round(session, api, streams, ANSWERS)
                    taken = of[api is cog]
                    taken.cpu.append(server_cpu() - before)
                    taken.answers.append(answers)
    return found


async def _round(session: aiohttp.ClientSession, api: Api, streams: int, answers: int) -> list[Answer]:
    """Each stream asks for one answer after the other; their starts are spread over the time of an answer."""
    spread = TOKENS / RATE / streams

    async def stream(number: int) -> list[Answer]:
        await asyncio.sleep(number * spread)
        return [await ask(session, api, TOKENS) for _ in range(answers)]

    return [answer for of in await asyncio.gather(*map(stream, range(streams))) for answer in of]


def _figures(direct: Taken, cog: Taken) -> dict[str, Figure]:
    made = [sum(answer.tokens for answer in answers) for answers in cog.answers]
    cpu = Figure(
        sum(cog.cpu) / sum(made) * 1e6,
        [used / tokens * 1e6 for used, tokens in zip(cog.cpu, made, strict=True)],
    )
    median = statistics.median
    return {
        "first token, direct, median, ms": _figure(direct, _first, median),
        "first token, through Cog, median, ms": _figure(cog, _first, median),
        "**added to a first token**, median, ms": _added(direct, cog, _first, median),
        "**added to a first token**, p95, ms": _added(direct, cog, _first, _p95),
        "a token's way, direct, median, ms": _figure(direct, _way, median),
        "a token's way, through Cog, median, ms": _figure(cog, _way, median),
        "**added to a token's way**, median, ms": _added(direct, cog, _way, median),
        "**added to a token's way**, p95, ms": _added(direct, cog, _way, _p95),
        "**processor time of Cog's server and worker**, µs per token": cpu,
        "the stub's own lateness, direct, p95, ms": _figure(direct, _late, _p95),
        "the stub's own lateness, through Cog, p95, ms": _figure(cog, _late, _p95),
    }


def _figure(of: Taken, values: Values, statistic: Statistic) -> Figure:
    return Figure(statistic(values(of.all())), [statistic(values(answers)) for answers in of.answers])


def _added(direct: Taken, cog: Taken, values: Values, statistic: Statistic) -> Figure:
    theirs, ours = _figure(direct, values, statistic), _figure(cog, values, statistic)
    return Figure(ours.value - theirs.value, [a - b for a, b in zip(ours.rounds, theirs.rounds, strict=True)])


def _p95(values: list[float]) -> float:
    """The least value that 95 of 100 do not exceed; of fewer than 20 it is the largest."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def _first(answers: list[Answer]) -> list[float]:
    """From a request to its first token, in ms."""
    return [answer.first * 1e3 for answer in answers]


def _way(answers: list[Answer]) -> list[float]:
    """From when the stub sent a token to when it was here, in ms."""
    return [now * 1e3 - sent / 1e3 for now, _, sent in _stamps(answers)]


def _late(answers: list[Answer]) -> list[float]:
    """From when a token was due to when the stub sent it, in ms."""
    return [(sent - due) / 1e3 for _, due, sent in _stamps(answers)]


def _stamps(answers: list[Answer]) -> list[tuple[float, int, int]]:
    """When each token was here in seconds, when it was due and sent in µs; see stub.py."""
    found = []
    for answer in answers:
        for now, text in answer.pieces:
            for token in text.split():
                due, sent = token.split(":")
                found.append((now, int(due), int(sent)))
    return found
