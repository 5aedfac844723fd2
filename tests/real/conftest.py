"""The real path once per session: a real model packed, served by `cogsmith serve` on Cog's own server and the real vLLM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cogsmith.paths import cache_dir

from .served import Served, leftovers

REPOSITORY = Path(__file__).parent.parent.parent
MODEL = REPOSITORY / "weights" / "SmolLM2-135M-Instruct.Q4_1.gguf"
SPEC = """\
model: weights/SmolLM2-135M-Instruct.Q4_1.gguf
backend: vllm
hardware: cpu
context: 2048
concurrency: 4
# All of them, with those that constrain an answer.
inputs: {prompt: , system_prompt: , messages: , max_tokens: , min_tokens: , temperature: , top_p: , top_k: , stop: , seed: , json_schema: , regex: , choices: }
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(item.path).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.real)
            # The first also waits for the engine's environment, the conversion and a start.
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the demo model packed, and a second spec that cannot start."""
    assert MODEL.is_file(), "the demo model is missing: `make test` fetches it"
    root = tmp_path_factory.mktemp("project")
    (root / "models").mkdir()
    (root / "weights").symlink_to(MODEL.parent)
    (root / "models/smol.yaml").write_text(SPEC)
    (root / "models/cramped.yaml").write_text(SPEC + "engine: {kv_cache_memory_bytes: 20000000}\n")
    for name in ("smol", "cramped"):
        done = cogsmith(root, "pack", name)
        assert done.returncode == 0, done.stderr
    return root


def cogsmith(root: Path, *arguments: str, timeout: float = 1500) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end."""
    command = [sys.executable, "-m", "cogsmith", *arguments]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=timeout, check=False, env=environment()
    )


def environment() -> dict[str, str]:
    return {**os.environ, "COGSMITH_CACHE": str(cache_dir()), "COGSMITH_STALL_SECONDS": "5"}


def start_server(root: Path, log: Path) -> Served:
    """`cogsmith serve smol`, ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "cogsmith", "serve", "smol", "--on", "local", "--port", str(port)]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=root, stdout=sink, stderr=subprocess.STDOUT, env=environment()
        )
    served = Served(process, f"http://127.0.0.1:{port}", root, log)
    deadline = time.monotonic() + 600
    while "Ready." not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return served


@pytest.fixture(scope="module")
def served(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The one server that all tests share which leave it whole. It is gone before the next file starts its own."""
    server = start_server(project, tmp_path_factory.mktemp("served") / "serve.log")
    yield server
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(60) == 130
    assert leftovers(project) == []
