"""Weights of another format -> a folder of safetensors, made once and kept, by a child in the engine's environment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cogsmith.disk import check_room
from cogsmith.errors import UserError

_SECONDS_TO_END = 5
_USEFUL_CHARACTERS = 300


def convert_once(
    folder: Path,
    source: Path,
    size: int,
    child: Path,
    inputs: Sequence[Path],
    python: Callable[[], Path],
    log: Path,
) -> Path:
    """Have a child make a folder, whole or not at all, unless it is there. Gives the folder.

    Args:
        folder: what is made.
        source: what is converted, for messages.
        size: most bytes that it comes to.
        child: the program, run as `child *inputs folder`.
        python: gives that of an environment with what the child imports; asked only when there is something to convert.
        log: what the child prints.

    Raises:
        UserError: the disk is too full, or the child failed.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if not folder.is_dir():
            hint = "set COGSMITH_CACHE to a folder on a larger disk"
            check_room(folder.parent, size, f"convert {source}", hint)
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            try:
                paths = [str(path.absolute()) for path in (child, *inputs, partial)]
                _run([str(python()), "-I", *paths], source, log)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """While it lasts, nobody else makes this file or folder."""
    with path.with_name(path.name + ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: list[str], source: Path, log: Path) -> None:
    """Run the child to its end, in a process group of its own, which ends with us."""
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "CUDA_VISIBLE_DEVICES": ""}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**_without_tokens(), **quiet},
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{command[0]} cannot be started ({error.strerror})") from None
        try:
            status = child.wait()
        except BaseException:
            _end(child)
            raise
    if status:
        raise UserError(f"{source} cannot be converted: {_reason(status, log)}", f"the whole log is {log}")


def _without_tokens() -> dict[str, str]:
    """What comes out of a model's file has no business with credentials."""
    secret = ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "ACCESS_KEY", "CREDENTIALS")
    return {
        name: value for name, value in os.environ.items() if not any(word in name.upper() for word in secret)
    }


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_SECONDS_TO_END)
            return


def _reason(status: int, log: Path) -> str:
    if status == -signal.SIGKILL:
        return "the converter was killed, probably because the memory ran out"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if status < 0:
        return f"the converter died of {signal.Signals(-status).name}"
    last = lines[-1] if lines else f"the converter ended with status {status}"
    return last.removeprefix("error: ")[:_USEFUL_CHARACTERS]
