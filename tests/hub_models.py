"""A model of the Hub in tests: published on the server of hub_server.py, where the client is led, and in a project."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import write_checkpoint, write_safetensors
from cogsmith.errors import UserError
from cogsmith.paths import Project, cache_dir
from cogsmith.verbs.lock import lock
from hub_server import OTHER_TOKEN, REPO, TOKEN, HubServer

SPEC = f"model: hf://{REPO}\nbackend: vllm\nhardware: cpu\n"
LARGE = 6 << 20


def write_model(folder: Path) -> Path:
    """A checkpoint as makers publish it: one shard of 6 MiB, and a second copy of everything in other formats."""
    write_checkpoint(folder)
    write_safetensors(
        folder / "model.safetensors",
        {"model.embed_tokens.weight": (LARGE // 128, 64), "model.norm.weight": (64,)},
    )
    for name in (
        "README.md",
        "pytorch_model.bin",
        "model.onnx",
        "tf_model.h5",
        "flax_model.msgpack",
        "model.Q4.gguf",
        "consolidated.safetensors",
        "modeling_x.py",
        "original/params.json",
        "original/consolidated.00.pth",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"{}" * 5000)
    return folder


@contextlib.contextmanager
def published(model: Path, home: Path, patch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A server with the model, and the client led there."""
    from huggingface_hub.utils import close_session

    with HubServer() as server:
        server.commit(model)
        use(server.url, home, patch)
        yield server
        close_session()


def use(url: str, home: Path, patch: pytest.MonkeyPatch) -> None:
    """The client reads its environment when it is imported, so its constants are set too."""
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    patch.setenv("HF_ENDPOINT", url)
    patch.setattr(constants, "ENDPOINT", url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(constants, "HF_HUB_CACHE", str(home / "hf" / "hub"))
    patch.setattr(constants, "HF_TOKEN_PATH", str(home / "hf" / "token"))
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()


def write_spec(project: Project, text: str) -> None:
    (project.root / "models" / "tiny.yaml").write_text(text)


def remove_cache(project: Project) -> None:
    """As on a machine where cogsmith never ran; never the cache of a user."""
    assert cache_dir().is_relative_to(project.root.parents[1]), cache_dir()
    shutil.rmtree(cache_dir())


def refused(project: Project, verb: object = lock) -> UserError:
    with pytest.raises(UserError) as caught:
        verb(project, "tiny")  # type: ignore[operator]
    text = "\n".join(caught.value.lines())
    assert TOKEN not in text and OTHER_TOKEN not in text
    assert len(caught.value.lines()) <= 2
    return caught.value
