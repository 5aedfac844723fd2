"""One row per family of Cog versions: how a predictor is written for it, and how its tokens reach a caller.

Read in replicate/cog at the tags: python/cog/__init__.py (what it exports), pkg/config/data/config_schema_v1.0.json (keys of
cog.yaml), pkg/schema/openapi*.go (marks in the schema), crates/coglet-python/src/predictor.rs (what is awaited).
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version


@dataclass(frozen=True)
class CogVersion:
    """What differs between versions of Cog.

    Attributes:
        since: the first version of the family.
        base: the class that a predictor derives from.
        method: its method, and the key of cog.yaml that names the class.
        async_setup: an `async def setup` is awaited; before it, Cog dropped its coroutine and went on.
        streaming: there is a mark `@streaming`, and server-sent events; before it, webhooks and polling carry a stream.
        concurrent: there is a mark `@concurrent(max=N)`; before it, cog.yaml says `concurrency.max`.
    """

    since: str
    base: str
    method: str
    async_setup: bool
    streaming: bool
    concurrent: bool


FAMILIES = (
    CogVersion("0.17.0", "BasePredictor", "predict", async_setup=False, streaming=False, concurrent=False),
    CogVersion("0.18.0", "BasePredictor", "predict", async_setup=True, streaming=False, concurrent=False),
    CogVersion("0.20.0", "BaseRunner", "run", async_setup=True, streaming=False, concurrent=False),
    CogVersion("0.21.0", "BaseRunner", "run", async_setup=True, streaming=True, concurrent=False),
    CogVersion("0.22.0", "BaseRunner", "run", async_setup=True, streaming=True, concurrent=True),
)
KNOWN = (
    "0.17.0",
    "0.17.1",
    "0.17.2",
    "0.18.0",
    "0.19.0",
    "0.19.1",
    "0.19.2",
    "0.19.3",
    "0.20.0",
    "0.21.0",
    "0.22.0",
    "0.23.0",
    "0.23.1",
)
DEFAULT = "0.23.1"


def cog_version(version: str) -> CogVersion:
    """The row that a version of `KNOWN` belongs to."""
    return [family for family in FAMILIES if Version(family.since) <= Version(version)][-1]
