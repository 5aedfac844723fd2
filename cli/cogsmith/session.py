"""A model running on this machine: everything from the spec to a server that answers, each phase timed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cogsmith import environment
from cogsmith.bucket import Store, open_bucket, tar_key
from cogsmith.errors import UserError
from cogsmith.local import LocalServer
from cogsmith.output import waiting
from cogsmith.paths import Project, cache_dir
from cogsmith.plan import Plan
from cogsmith.verbs.render import render

# What the setup may take on top of the engine's own start: fetching at 20 MiB/s, the slowest link that is of any use.
FETCH_BYTES_PER_SECOND = 20 * 2**20


@dataclass
class Running:
    """A server that is ready, and the seconds that each phase took."""

    server: LocalServer
    phases: dict[str, float] = field(default_factory=dict)


@contextmanager
def running(project: Project, plan: Plan, port: int) -> Iterator[Running]:
    """Render, make the environment, start Cog's server and wait until it is ready; end all of it afterwards.

    Raises:
        UserError: the GPU or the packed weights are not here, or a phase failed.
    """
    _check_gpu(plan)
    weights = packed_weights(project, plan)
    render(project, plan)
    phases: dict[str, float] = {}
    started = time.monotonic()
    python = environment.ensure(plan.engine, plan.packages, plan.cog)
    phases["environment"] = time.monotonic() - started
    variables = {"COGSMITH_CACHE": str(cache_dir() / "weights")}
    if weights is not None:
        variables["COG_WEIGHTS"] = weights
    logs = project.state_dir(plan.folder)
    timeout = (
        plan.settings.engine.start_timeout
        + (plan.index.size if plan.index else 0) / FETCH_BYTES_PER_SECOND
        + 120
    )
    server = LocalServer(project.build_dir(plan.folder), python, port, plan.concurrency, variables, logs)
    started = time.monotonic()
    with server:
        with waiting(
            f"Starting {plan.name} on {plan.engine.name} {plan.engine.version}; logs in {logs.relative_to(project.root)}"
        ) as say:
            report = server.wait_ready(timeout, say)
        phases |= {name.replace("_", " "): seconds for name, seconds in report.items()}
        # Cog's server, its worker and their imports: what is in no phase of the report.
        phases["server"] = max(0.0, time.monotonic() - started - sum(report.values()))
        yield Running(server, phases)


def _check_gpu(plan: Plan) -> None:
    if plan.hardware.gpu is not None and shutil.which("nvidia-smi") is None:
        raise UserError(
            f"{plan.name} is for {plan.hardware.name}, and this machine shows no NVIDIA GPU",
            "try it on the CPU with --hardware cpu (slow; not the image that the spec describes)",
        )


def packed_weights(project: Project, plan: Plan) -> str | None:
    """Where the reader on this machine finds the packed tar: in its bucket, maybe signed; None where the plan's own URL serves.

    Raises:
        UserError: nothing is packed, or the bucket does not have it.
    """
    again = f"run `cogsmith pack {plan.name}`"
    if plan.index is None:
        raise UserError(f"the weights of {plan.name} are not packed", again)
    key = tar_key(plan.index.digest)
    bucket = open_bucket(plan.bucket, project.root)
    if isinstance(bucket, Store) and plan.settings.weights_url is not None:
        return None
    found = bucket.find(key)
    if found is not None and found.size == plan.index.size:
        return bucket.readable(key)
    if plan.settings.weights_url is not None:
        return None
    raise UserError(f"the packed weights {plan.index.digest[:16]}… are not in {plan.bucket}", again)
