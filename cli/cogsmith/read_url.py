"""Whether a container will be able to read its weights, tried before an image is built."""

from __future__ import annotations

import time

from cogsmith.errors import UserError, of_weights
from cogsmith_runtime.weights import Index, Limits, WeightsError, source_of
from cogsmith_runtime.weights.sources import InterruptedRead

_TRIES = 3
_PAUSE = 1.0


def check_read_url(url: str, index: Index) -> None:
    """Ask for one byte of the packed object, as the container does at boot.

    Raises UserError: it may not be read, is not there, is another one, cannot be read by ranges, or nobody answers.
    """
    try:
        ranges = _probe(url, index.size)
    except WeightsError as error:
        raise of_weights(error, "weights.url") from None
    if not ranges:
        message = f"weights.url: the server of {url} does not answer byte ranges"
        raise UserError(
            message, "use a server that does: without them the container reads over one connection"
        )


def _probe(url: str, size: int) -> bool:
    source = source_of(url, Limits(timeout=15.0))
    for left in reversed(range(_TRIES)):
        try:
            return source.probe(size)
        except InterruptedRead as error:
            if not left:
                message = f"weights.url: {source.name} cannot be read ({error})"
                raise UserError(message, "check the address and the network") from None
            time.sleep(_PAUSE)
    raise AssertionError
