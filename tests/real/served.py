"""A running `cogsmith serve`, and what a test asks of it: streams, the engine's own metrics, what is left of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx_sse


@dataclass
class Served:
    """A server and the process of the command that runs it."""

    process: subprocess.Popen[bytes]
    url: str
    root: Path
    log: Path

    def predict(self, **inputs: Any) -> dict[str, Any]:
        """The whole answer."""
        answer: dict[str, Any] = httpx.post(
            f"{self.url}/predictions", json={"input": inputs}, timeout=120
        ).json()
        return answer

    def health(self) -> str:
        return str(httpx.get(f"{self.url}/health-check", timeout=10).json()["status"])

    def engine_url(self) -> str:
        """The engine's API, from the command line of its process."""
        for pid in processes(self.root):
            words = _words(pid)
            if "vllm.entrypoints.openai.api_server" in words and "cogsmith_runtime.lifeline" not in words:
                return f"http://127.0.0.1:{words[words.index('--port') + 1]}"
        raise AssertionError("no engine runs")

    def engine_core(self) -> int:
        """The process that computes: a child of the API server, under a name of its own."""
        [pid] = [pid for pid in processes(self.root) if "EngineCore" in " ".join(_words(pid))]
        return pid

    def engine_running(self) -> float:
        """How many requests the engine is working on, by its own count."""
        text = httpx.get(f"{self.engine_url()}/metrics", timeout=10).text
        found = re.search(r"^vllm:num_requests_running\{.*\} (\S+)$", text, re.MULTILINE)
        assert found, text
        return float(found.group(1))

    def tokens(self, **body: Any) -> list[int]:
        """What the engine's tokenizer makes of a prompt or of messages."""
        answer = httpx.post(f"{self.engine_url()}/tokenize", json=body, timeout=30).json()
        return list(answer["tokens"])


@dataclass
class Stream:
    """One prediction over server-sent events, read in a thread."""

    server: Served
    inputs: dict[str, Any]
    status: int = 0
    arrivals: list[float] = field(default_factory=list)
    text: str = ""
    end: dict[str, Any] = field(default_factory=dict)
    ended: float = 0.0

    def __post_init__(self) -> None:
        self._drop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        url = f"{self.server.url}/predictions"
        with (
            httpx.Client(timeout=httpx.Timeout(10, read=120)) as client,
            httpx_sse.connect_sse(client, "POST", url, json={"input": self.inputs}) as source,
        ):
            self.status = source.response.status_code
            if self.status != 200:
                self.end = json.loads(source.response.read())
                return
            for event in source.iter_sse():
                if event.event == "output":
                    self.arrivals.append(time.monotonic())
                    self.text += event.json()["chunk"]
                elif event.event in {"completed", "error"}:
                    self.end = event.json()
                    self.end = self.end.get("prediction", self.end)
                if self._drop.is_set():
                    break
        self.ended = time.monotonic()

    def first(self) -> float:
        """When the first piece came."""
        wait_for(lambda: bool(self.arrivals) or self.ended, 60, "a first token")
        return self.arrivals[0]

    def drop(self) -> None:
        """Close the connection in the middle."""
        self._drop.set()
        self._thread.join(30)

    def join(self, timeout: float = 120) -> Stream:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "the stream did not end"
        return self


def wait_for(condition: Any, seconds: float, what: str) -> float:
    """Wait until the condition holds; how long that took, in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def processes(root: Path) -> list[int]:
    """Every live process that was started for a project: its folder is in their environment, or they work below it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            # The engine's children write their names over their environment.
            below = Path(os.readlink(entry / "cwd")).is_relative_to(root / ".cogsmith")
            ours = below or f"COGSMITH_LOG_DIR={root}".encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if ours and state != "Z":
            found.append(int(entry.name))
    return found


def listening(root: Path) -> set[tuple[str, int]]:
    """(address, port) of every TCP socket that a project's processes listen on."""
    sockets: dict[str, tuple[str, int]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].partition(":")
            if fields[3] == "0A":
                shown = {"0100007F": "127.0.0.1"}.get(address, address)
                sockets[f"socket:[{fields[9]}]"] = (shown, int(port, 16))
    found = set()
    for pid in processes(root):
        for entry in Path("/proc", str(pid), "fd").glob("*"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry))
    return {sockets[name] for name in found & sockets.keys()}


def leftovers(root: Path, seconds: float = 15) -> list[str]:
    """What of a project still runs after a while, as command lines."""
    deadline = time.monotonic() + seconds
    while (left := processes(root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [" ".join(_words(pid)) for pid in left]


def _words(pid: int) -> list[str]:
    try:
        return (
            (Path("/proc") / str(pid) / "cmdline")
            .read_bytes()
            .decode(errors="replace")
            .rstrip("\0")
            .split("\0")
        )
    except OSError:
        return []
