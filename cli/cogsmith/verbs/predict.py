"""`cogsmith predict --on local`: one answer from a model that runs on this machine for as long as that takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cogsmith.local import free_port
from cogsmith.output import data, seconds_table, step
from cogsmith.paths import Project
from cogsmith.plan import Plan
from cogsmith.predictions import Answer, stream
from cogsmith.session import running


def predict(project: Project, plan: Plan, inputs: Mapping[str, Any]) -> None:
    """Stream the answer to stdout as it comes; what else there is to say goes to stderr.

    Raises:
        UserError: the model could not be started.
        PredictionError: the prediction failed.
    """
    with running(project, plan, free_port()) as session:
        answer = stream(session.server.url, inputs, data)
        if not answer.text.endswith("\n"):
            data("\n")
        if answer.arrivals:
            session.phases["first token"] = answer.arrivals[0]
    seconds_table("", session.phases)
    step(_tokens(answer))


def _tokens(answer: Answer) -> str:
    """How the tokens arrived, in one line."""
    pieces = len(answer.arrivals)
    counted = answer.metrics.get("output_token_count")
    if pieces < 2:
        return f"{counted} tokens in {pieces} piece{'' if pieces == 1 else 's'}"
    gaps = sorted(
        later - earlier for earlier, later in zip(answer.arrivals, answer.arrivals[1:], strict=False)
    )
    took = answer.arrivals[-1] - answer.arrivals[0]
    return (
        f"{counted} tokens arrived in {pieces} pieces over {took:.2f} s, "
        f"{gaps[len(gaps) // 2] * 1000:.0f} ms apart (median; longest {gaps[-1] * 1000:.0f} ms)"
    )
