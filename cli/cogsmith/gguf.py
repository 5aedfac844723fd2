"""A GGUF file -> a folder of safetensors, made once, by a child in the engine's environment."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from cogsmith.errors import UserError

# Goes up when the same file would be converted to other bytes.
CONVERTER = 1
_CHILD = Path(__file__).with_name("gguf_child.py")
_VERSIONS = (2, 3)
# Four bits a weight become sixteen: the most that a common quantization grows.
_GROWTH = 5
_SECONDS_TO_END = 5
_USEFUL_CHARACTERS = 300


def convert(gguf: Path, python: Callable[[], Path], cache: Path, log: Path) -> Path:
    """The model of a GGUF file as safetensors in bfloat16, with its tokenizer, chat template and configuration.

    Args:
        python: gives that of an environment with torch, transformers and gguf; asked only when there is something to convert.
        cache: the folder is kept below it, by the file's sha256; the same file is converted once.
        log: what the child prints.

    Raises:
        UserError: the file is not a GGUF that can be converted, the disk is too full, the child failed.
    """
    check(gguf)
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache / "converted" / f"{digest}-{CONVERTER}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():
            _check_space(gguf, folder.parent)
            partial = folder.with_name(folder.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            try:
                _run([str(python()), "-I", str(_CHILD), str(gguf.resolve()), str(partial)], gguf, log)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return folder


def check(gguf: Path) -> None:
    """Refuse what is no GGUF by its first bytes. Raises UserError."""
    try:
        with gguf.open("rb") as file:
            head = file.read(8)
    except OSError as error:
        raise UserError(f"{gguf} cannot be read ({error.strerror})") from None
    if head[:4] != b"GGUF":
        hint = "give a .gguf file, or a folder with config.json and safetensors"
        if head.startswith(b"version "):
            hint = "it is a Git LFS pointer: fetch the file itself (git lfs pull)"
        raise UserError(f"{gguf} is not a GGUF file", hint)
    version = struct.unpack("<I", head[4:])[0] if len(head) == 8 else 0
    if version not in _VERSIONS:
        known = " and ".join(map(str, _VERSIONS))
        message = f"{gguf} is a GGUF file of a version that is not known ({version}, known are {known})"
        raise UserError(message, "convert it again with a current llama.cpp; big-endian files are not read")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _check_space(gguf: Path, folder: Path) -> None:
    needed, free = gguf.stat().st_size * _GROWTH, shutil.disk_usage(folder).free
    if free < needed:
        message = f"the disk of {folder} has {free / 1e9:.1f} GB free, converting {gguf} may take {needed / 1e9:.1f} GB"
        raise UserError(message, "make room, or set COGSMITH_CACHE to a folder on a larger disk")


def _run(command: list[str], gguf: Path, log: Path) -> None:
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
                env={**os.environ, **quiet},
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
        raise UserError(f"{gguf} cannot be converted: {_reason(status, log)}", f"the whole log is {log}")


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
