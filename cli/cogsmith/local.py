"""Cog's own server on a rendered folder, without Docker: the same code that an image runs, as processes of this machine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from cogsmith.boot_report import MARK, parse
from cogsmith.errors import CODED, UserError
from cogsmith_runtime import lifeline

ANSI = re.compile(r"\x1b\[[0-9;]*m")
FIELDS = re.compile(r"( (source|logger|target)=\S+)+\s*$")
# The server ends its worker and the engine ends its own group within this; then everything left is killed.
GRACE_SECONDS = 10


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_port(port: int) -> None:
    """Refuse a port that is taken before anything slow is started."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(
                f"port {port} of 127.0.0.1 cannot be used: {error.strerror}", "choose another with --port"
            ) from error


class LocalServer:
    """A context manager: the server runs inside the block and nothing of it is left afterwards.

    The processes hang on a lifeline (a pipe from this process), so they end also when this process is killed.

    Args:
        folder: the rendered folder.
        python: python of the engine's environment.
        port: where it listens, on 127.0.0.1 alone.
        concurrency: predictions at once; Cog's server takes it from the environment only.
        environment: further variables, such as COG_WEIGHTS.
        logs: folder for server.log and the engine's log.
    """

    def __init__(
        self,
        folder: Path,
        python: Path,
        port: int,
        concurrency: int,
        environment: Mapping[str, str],
        logs: Path,
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.log = logs / "server.log"
        self._folder = folder
        self._python = python
        self._environment = {
            **os.environ,
            # The server starts its worker as a bare `python` from PATH.
            "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "COG_PREDICT_TYPE_STUB": "predict.py:Predictor",
            "COG_MAX_CONCURRENCY": str(concurrency),
            "PORT": str(port),
            "LOG_FORMAT": "console",
            "COGSMITH_LOG_DIR": str(logs),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalServer:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        server = [str(self._python), "-m", "cog.server.http", "--host", "127.0.0.1"]
        with self.log.open("wb") as sink:
            self._process = lifeline.start(
                server,
                GRACE_SECONDS,
                cwd=self._folder,
                env=self._environment,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything that was started, and wait until it is gone."""
        if self._process is not None:
            lifeline.stop(self._process)
        self._process = None

    def wait_ready(self, timeout: float, say: Callable[[str], None]) -> dict[str, float]:
        """Wait until the setup has ended well.

        Args:
            timeout: seconds.
            say: told what goes on, whenever it changes.

        Returns:
            The boot report: phase -> seconds.

        Raises:
            UserError: the setup failed, took too long, or the server ended.
        """
        deadline = time.monotonic() + timeout
        # One client: each would read the system's certificates anew, on a processor that the engine needs.
        with httpx.Client(timeout=5) as client:
            while time.monotonic() < deadline:
                self.check_alive()
                health = self._health(client)
                status = health.get("status")
                if status in {"READY", "BUSY"}:
                    return self._boot_report()
                if status in {"SETUP_FAILED", "DEFUNCT"}:
                    raise self._setup_failed(str((health.get("setup") or {}).get("logs", "")))
                progress = self._progress()
                if progress:
                    say(progress)
                time.sleep(0.2)
        raise UserError(
            f"the model was not ready after {timeout:.0f} s", f"the logs are in {self.log.parent}"
        )

    def check_alive(self) -> None:
        """Raise UserError when the server is gone."""
        if self._process is not None and self._process.poll() is not None:
            raise UserError(
                f"Cog's server ended with status {self._process.returncode}: {_last_line(self.log)}",
                f"its log is {self.log}",
            )

    def wait(self) -> None:
        """Wait until the server ends by itself.

        Raises:
            UserError: always, when it does; a KeyboardInterrupt passes through.
        """
        while True:
            self.check_alive()
            time.sleep(0.5)

    def _health(self, client: httpx.Client) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = client.get(f"{self.url}/health-check").json()
        except (httpx.TransportError, ValueError):
            return {}
        return answer

    def _boot_report(self) -> dict[str, float]:
        marked = [line.partition(MARK)[2] for line in self._lines() if MARK in line]
        report = parse(marked[-1]) if marked else None
        return {phase.name: phase.seconds for phase in report.phases} if report else {}

    def _progress(self) -> str:
        marked = [line.partition("cogsmith: ")[2] for line in self._lines() if "cogsmith: " in line]
        return marked[-1].capitalize() if marked else ""

    def _lines(self) -> list[str]:
        """The server's log, without what Cog's logger puts around a line of the model: colours, and fields behind it."""
        text = ANSI.sub("", self.log.read_text(errors="replace"))
        return [FIELDS.sub("", line) for line in text.splitlines()]

    def _setup_failed(self, logs: str) -> UserError:
        coded = CODED.findall(logs)
        if coded:
            return UserError(coded[-1], f"the logs are in {self.log.parent}")
        lines = [line for line in logs.splitlines() if line.strip()]
        return UserError(
            f"the setup failed: {lines[-1] if lines else _last_line(self.log)}",
            f"the logs are in {self.log.parent}",
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "no output"
