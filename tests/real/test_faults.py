"""What becomes of a running model when its parts are killed, frozen, interrupted or cannot start. Each test starts a server of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import cogsmith, environment, start_server
from .served import Served, Stream, leftovers, processes, wait_for

LONG = {"prompt": "Tell me a long story about a lighthouse.", "max_tokens": 1500, "min_tokens": 1500}


@pytest.fixture
def server(project: Path, tmp_path: Path) -> Iterator[Served]:
    running = start_server(project, tmp_path / "serve.log")
    yield running
    running.process.kill()


@pytest.fixture(autouse=True)
def nothing_is_left(project: Path) -> Iterator[None]:
    yield
    assert leftovers(project) == []


def test_a_killed_engine_fails_its_predictions_and_the_health_check(server: Served) -> None:
    streams = [Stream(server, LONG) for _ in range(2)]
    for stream in streams:
        stream.first()
    killed = time.monotonic()
    os.kill(server.engine_core(), signal.SIGKILL)
    for stream in streams:
        stream.join(20)
        assert stream.ended - killed < 10
        assert stream.end["status"] == "failed"
        assert " E2" in stream.end["error"], stream.end["error"]
    assert wait_for(lambda: server.health() == "UNHEALTHY", 10, "the health check") < 10
    # The command that serves is killed outright: nobody tells its children, and still none stays.
    server.process.kill()
    server.process.wait()


def test_a_frozen_engine_is_noticed(server: Served) -> None:
    stream = Stream(server, LONG)
    stream.first()
    os.kill(server.engine_core(), signal.SIGSTOP)
    frozen = time.monotonic()
    stream.join(60)
    assert stream.ended - frozen < 45
    assert stream.end["status"] == "failed"
    assert " E2003 EngineHung: " in stream.end["error"], stream.end["error"]
    wait_for(lambda: server.health() == "UNHEALTHY", 10, "the health check")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 130


def test_predict_prints_the_answer_alone_on_stdout(project: Path) -> None:
    done = cogsmith(
        project, "predict", "smol", "--on", "local",
        "-i", "prompt=What is the capital of France?", "-i", "temperature=0", "-i", "max_tokens=40",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert "Starting" not in done.stdout
    for phase in ("environment", "fetch", "engine import", "load", "first token"):
        assert phase in done.stderr
    assert "tokens arrived in" in done.stderr


def test_ctrl_c_while_it_starts(project: Path) -> None:
    command = [sys.executable, "-m", "cogsmith", "predict", "smol", "--on", "local", "-i", "prompt=hi"]
    process = subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    wait_for(lambda: len(processes(project)) > 3, 60, "the engine's process")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert output == b""


def test_a_start_that_fails_says_what_to_change(project: Path) -> None:
    done = cogsmith(project, "predict", "cramped", "--on", "local", "-i", "prompt=hi")
    assert done.returncode == 1
    assert done.stdout == ""
    [error] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert error.startswith("Error: E21"), done.stderr
    assert "context" in error
    assert "Traceback" not in done.stderr
