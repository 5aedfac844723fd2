"""One prediction on a running Cog server, over HTTP with server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
import httpx_sse

from cogsmith.errors import CODED, PredictionError, UserError


@dataclass
class Answer:
    """What came back.

    Attributes:
        text: the whole output.
        arrivals: seconds from the request to each chunk of text.
        metrics: what the predictor recorded, by name.
    """

    text: str = ""
    arrivals: list[float] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)


def stream(url: str, inputs: Mapping[str, Any], on_text: Callable[[str], None]) -> Answer:
    """Run a prediction and hand over each piece of text as it arrives.

    Args:
        url: the server, without a path.
        inputs: the prediction's input.
        on_text: called with each piece.

    Raises:
        PredictionError: the prediction failed or was canceled; the message is the model's own.
        UserError: the server refused it (an input against the schema, no free slot) or the connection broke.
    """
    started = time.monotonic()
    answer = Answer()
    timeout = httpx.Timeout(10, read=None)
    try:
        with (
            httpx.Client(timeout=timeout) as client,
            httpx_sse.connect_sse(
                client, "POST", f"{url}/predictions", json={"input": dict(inputs)}
            ) as source,
        ):
            if source.response.status_code != 200:
                source.response.read()
                raise _refused(source.response)
            for event in source.iter_sse():
                if event.event == "output":
                    piece = str(event.json()["chunk"])
                    answer.arrivals.append(time.monotonic() - started)
                    answer.text += piece
                    on_text(piece)
                elif event.event in {"completed", "error"}:
                    return _end(answer, event.json())
    except httpx.TransportError as error:
        raise UserError(f"the connection to {url} broke: {error}", "see the server's log") from error
    raise UserError("the stream ended before the prediction did", "see the server's log")


def _refused(response: httpx.Response) -> UserError:
    try:
        body = response.json()
    except json.JSONDecodeError:
        body = {"error": response.text}
    details = body.get("detail")
    if isinstance(details, list):
        said = "; ".join(f"{'.'.join(map(str, item['loc'][2:]))}: {item['msg']}" for item in details)
        return UserError(
            f"the input was refused: {said}", "the README in the rendered folder lists the inputs"
        )
    return UserError(f"the server answered {response.status_code}: {body.get('error') or details or body}")


def _end(answer: Answer, event: Mapping[str, Any]) -> Answer:
    prediction = event.get("prediction", event)
    status = prediction.get("status")
    if status == "canceled":
        raise PredictionError("the prediction was canceled")
    if status != "succeeded":
        said = str(prediction.get("error") or "the prediction failed")
        coded = CODED.search(said)
        raise PredictionError(coded.group() if coded else said)
    answer.metrics = dict(prediction.get("metrics") or {})
    return answer
