"""What the predictor under Cog's server adds to an engine, against the same client on the engine's own API in the same run.

    .venv/bin/python benchmarks/predictor/measure.py [--rounds N] [stub] [vllm]

stub: an engine that only sends tokens on time. vllm: vLLM on this CPU with the packed demo model. Both by default.
The tables go to stdout: a figure over all rounds, with the least and the largest of the rounds' own behind it.
"""

from __future__ import annotations

import argparse
import os
import sys

import aiohttp
import on_stub
import on_vllm

from cogsmith.errors import UserError
from cogsmith.output import problem
from cogsmith.paths import Project
from cogsmith.verbs.render import planned

MODEL = "smollm2-135m"
PARTS = {"stub": on_stub, "vllm": on_vllm}


def measure(parts: list[str], rounds: int | None) -> None:
    project = Project.here()
    plan = planned(project, MODEL)
    load = os.getloadavg()[0]
    print(f"{len(os.sched_getaffinity(0))} processors, load {load:.2f} before the run, Cog {plan.cog}")
    for name in parts:
        part = PARTS[name]
        count = rounds or part.ROUNDS
        result = part.run(project, plan, count)
        print(f"\n{count} rounds\n{result}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int)
    parser.add_argument("parts", nargs="*", metavar="stub|vllm", default=[*PARTS])
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"there is no part {min(unknown)}; the parts are {', '.join(PARTS)}")
    try:
        measure(options.parts, options.rounds)
    except UserError as error:
        problem(f"Error: {error.message}{f' ({error.hint})' if error.hint else ''}")
        return 1
    except (aiohttp.ClientError, TimeoutError) as error:
        problem(f"Error: a connection broke: {error or type(error).__name__}")
        return 1
    except KeyboardInterrupt:
        problem("Interrupted")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
