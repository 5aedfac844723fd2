"""Environment variables of a spec: names that Cog refuses, names that belong to the server, and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cogsmith.errors import Mistake
from cogsmith.yamlfile import dotted

if TYPE_CHECKING:
    from cogsmith.spec import Spec

# Cog's own list (pkg/config/env.go): a build with one of these fails.
DENIED = frozenset(
    [
        "PATH",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "PYTHONUNBUFFERED",
        "LIBRARY_PATH",
        "HF_ENDPOINT",
        "HF_HUB_ENABLE_HF_TRANSFER",
    ]
)
DENIED_PREFIXES = ("R8_", "REPLICATE_", "CUDA_", "NVIDIA_", "NV_", "PGET_", "KUBERNETES_")
OWNED: dict[str, str] = {
    "COG_MAX_CONCURRENCY": "use `concurrency`",
    "COG_WEIGHTS": "use `weights.url`, or set it where the container is started",
    "COG_PREDICT_TYPE_STUB": "remove it: the image sets it",
    "COG_TRAIN_TYPE_STUB": "remove it: the image sets it",
    "PORT": "remove it: the host of the container sets it",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|API_?KEY|ACCESS_?KEY|KEY|KEY_ID|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.I
)


def environment_mistakes(spec: Spec) -> Iterator[Mistake]:
    for name, value in spec.environment.items():
        problem = _problem(name, value)
        if problem:
            yield spec.mistake(dotted(("environment", name)), *problem)


def _problem(name: str, value: str) -> tuple[str, str] | None:
    if not _NAME.fullmatch(name):
        return "is no name of a variable", "use letters, digits and _, and no digit first"
    if name in DENIED or name.startswith(DENIED_PREFIXES):
        return "is refused by Cog", "remove it; set it where the container is started, if at all"
    if name in OWNED:
        return "cannot be set here", OWNED[name]
    if _SECRET_NAME.search(name):
        return (
            "looks like a secret, which would be readable in the image",
            "set it where the container is started",
        )
    if "\n" in value:
        return "holds a line break", "write it on one line"
    return None
