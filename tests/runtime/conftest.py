"""Servers for the tests of the runtime: one that the harmless tests share, and one each for those that break it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from .cogserver import CogServer, settings

Start = Callable[..., Awaitable[CogServer]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CogServer]:
    running = CogServer(tmp_path_factory.mktemp("shared"), settings())
    try:
        await running.ready()
        yield running
    finally:
        await running.close()
        await running.nothing_left(8)


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a server of one's own: `await start(*stub_arguments, engine={…}, environment={…})`."""
    servers: list[CogServer] = []

    async def start_one(
        *stub_arguments: str, environment: dict[str, str] | None = None, ready: bool = True, **changes: Any
    ) -> CogServer:
        servers.append(CogServer(tmp_path / "cog", settings(*stub_arguments, **changes), **environment or {}))
        if ready:
            await servers[-1].ready()
        return servers[-1]

    yield start_one
    for server in servers:
        await server.close()
        await server.nothing_left(8)
