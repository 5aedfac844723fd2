"""The engine process: started, waited for, watched and ended. Any exit of it is a failure.

vLLM's server exits with status 0 when its engine is killed, so the status says nothing; and a frozen one goes on to
answer 200 on /health, which watch.py is for.
"""

import asyncio
import contextlib
import os
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from . import lifeline, startup
from .client import Client
from .errors import CodedError, engine_died
from .report import say
from .settings import EngineSettings, Settings

_POLL = 0.1
_LOG_TAIL = 2**20


class Engine:
    """A running engine process. `Engine.start` makes one.

    root: URL of its API. log: the file that has its output. engine_start, load: seconds the phases took.
    failure: why it is of no use any more, or None.
    """

    def __init__(self, process: asyncio.subprocess.Process, root: str, log: Path) -> None:
        self.root = root
        self.log = log
        self.engine_start = 0.0
        self.load = 0.0
        self.failure: CodedError | None = None
        self._process = process
        self._stopping = False
        self._on_failure: list[Callable[[], None]] = []
        self._exit = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, settings: Settings, model: Path, root: Path) -> "Engine":
        """Start the engine on a model folder and wait until it says that it is ready.

        root: the folder of settings.json, where an engine's own file of settings lies too.

        The log is engine.log in $COGSMITH_LOG_DIR, or in a new temporary folder; it replaces one of an earlier start.
        Raises EngineError E21xx, and leaves nothing running.
        """
        folder = Path(os.environ.get("COGSMITH_LOG_DIR") or tempfile.mkdtemp(prefix="cogsmith-")).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "engine.log"
        port = _free_port()
        say(f"cogsmith: starting {settings.engine.name} {settings.engine.version}; log: {log}")
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *lifeline.command(_argv(settings.engine, model, port, root)),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment(settings.engine, os.environ),
                # Not the container's /src: its modules would be importable in the engine's processes.
                cwd=folder,
                # The session's id is the process id, by which activity() finds the engine's processes.
                start_new_session=True,
            )
        engine = cls(process, f"http://127.0.0.1:{port}", log)
        try:
            await engine._until_ready(settings)
        except BaseException:
            await engine.stop()
            raise
        engine._exit.add_done_callback(engine._exited)
        return engine

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Have `callback` called once, in the event loop, when the engine fails."""
        self._on_failure.append(callback)

    def fail(self, error: CodedError) -> None:
        """Give the engine up: `failure` is set, callbacks are called, and all its processes are ended."""
        if self.failure is not None or self._stopping:
            return
        self.failure = error
        say(str(error))
        for callback in self._on_failure:
            callback()
        self._let_go()

    async def failed_within(self, seconds: float) -> CodedError | None:
        """`failure`, for which this waits a moment: a stream often breaks just before the process exits."""
        if self.failure is None:
            await asyncio.wait([self._exit], timeout=seconds)
            await asyncio.sleep(0)
        return self.failure

    async def stop(self) -> None:
        """End all of it and wait until it is gone."""
        self._stopping = True
        self._let_go()
        await asyncio.wait([self._exit])

    def log_text(self) -> str:
        """The last MiB of the log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _LOG_TAIL))
            return file.read().decode(errors="replace")

    def activity(self) -> tuple[float, bool]:
        """Processor time used so far by the engine's living processes, in seconds; whether one of them is stopped.

        (0, False) where there is no /proc.
        """
        ticks, stopped = 0, False
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = entry.read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid:
                    ticks += int(fields[11]) + int(fields[12])
                    stopped = stopped or fields[0] in "Tt"
        return ticks / float(os.sysconf("SC_CLK_TCK")), stopped

    def _let_go(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _exited(self, exit_: "asyncio.Task[int]") -> None:
        unexpected = not self._stopping and self.failure is None
        self.fail(engine_died(_status(exit_.result()), str(self.log)))
        if unexpected:
            for line in startup.last_lines(self.log_text()):
                say(f"engine: {line}")

    async def _until_ready(self, settings: Settings) -> None:
        began = time.monotonic()
        limit = settings.engine.start_timeout
        loading: float | None = None
        client = Client(self.root, settings.context)
        try:
            while not await client.healthy():
                if self._exit.done():
                    raise startup.explain(self.log_text(), _status(self._exit.result()))
                if time.monotonic() - began > limit:
                    raise startup.not_ready(limit, self.log_text())
                if loading is None and settings.engine.load_mark in self.log_text():
                    loading = time.monotonic()
                    say("cogsmith: loading the weights")
                await asyncio.wait([self._exit], timeout=_POLL)
        finally:
            await client.close()
        ready = time.monotonic()
        # Without the mark all of it counts as start.
        self.engine_start = (loading or ready) - began
        self.load = ready - (loading or ready)


def _argv(engine: EngineSettings, model: Path, port: int, root: Path) -> list[str]:
    values = {
        "{python}": sys.executable,
        "{model}": str(model.resolve()),
        "{port}": str(port),
        "{root}": str(root.resolve()),
    }
    argv = []
    for word in engine.command:
        for mark, value in values.items():
            word = word.replace(mark, value)
        argv.append(word)
    return argv


def _environment(engine: EngineSettings, container: Mapping[str, str]) -> dict[str, str]:
    # Only the machine that it runs on knows its processors.
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    wanted = {name: value.replace("{cpus}", cpus) for name, value in engine.environment.items()}
    # Whatever the container says wins over the spec, and nothing is fetched from the Hub at boot in any case.
    environment = {**wanted, **container, "HF_HUB_OFFLINE": "1"}
    # Programs of the engine's packages (ninja, a compiler driver) lie beside this Python, which need not be on PATH.
    environment["PATH"] = os.pathsep.join((sysconfig.get_path("scripts"), container.get("PATH", os.defpath)))
    return environment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _status(code: int) -> str:
    return f"signal {code - 128}" if code > 128 else f"exit status {code}"
