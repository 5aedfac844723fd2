"""The commands that are compared: each leaves the files of the model in a folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
OURS = "ours"
UNCHECKED = "ours, without checksums"
FLOOR = "floor: parallel curls"
PGET = "pget -x"
PGET_TUNED = "pget -x, tuned"
STAND_IN = "stand-in for pget -x"
PROGRAMS = {
    "nginx": ["nginx", "-v"],
    "curl": ["curl", "--version"],
    "aria2c": ["aria2c", "--version"],
    "pget": ["pget", "version"],
    "tar": ["tar", "--version"],
}
"""Name -> command that says its version."""


@dataclass(frozen=True)
class Object:
    """What is fetched.

    Attributes:
        tar, files: its URL, and the URL of the folder with the files one by one.
        index, unchecked: its weights.json, and one in which every crc32c is 0.
        certificate: of the server.
        capped: whether each connection is.
    """

    tar: str
    files: str
    index: Path
    unchecked: Path
    certificate: Path
    capped: bool


Command = Callable[[Object, Path], list[str]]


def _shell(text: str) -> list[str]:
    return ["sh", "-euc", text]


def _curl_tar(what: Object, to: Path) -> list[str]:
    return _shell(f"mkdir {to}; curl -sSf --cacert {what.certificate} {what.tar} | tar x -C {to}")


def _aria2(what: Object, to: Path) -> list[str]:
    options = f"-q -x16 -s16 -k4M --file-allocation=none --ca-certificate={what.certificate}"
    tar = f"{to}.tar"
    return _shell(
        f"mkdir {to}; aria2c {options} -d {to.parent} -o {to.name}.tar {what.tar}; tar xf {tar} -C {to}; rm {tar}"
    )


def _pget(what: Object, to: Path) -> list[str]:
    return ["pget", "-x", what.tar, str(to)]


def _pget_tuned(what: Object, to: Path) -> list[str]:
    return ["pget", "-x", "-m", "32M", "-c", "32" if what.capped else "8", what.tar, str(to)]


def _stand_in(what: Object, to: Path) -> list[str]:
    return [sys.executable, str(HERE / "standin.py"), what.tar, str(to)]


def _sequential(what: Object, to: Path) -> list[str]:
    return [sys.executable, str(HERE / "sequential.py"), what.files, str(what.index), str(to)]


def _floor(what: Object, to: Path) -> list[str]:
    count = "64" if what.capped else "8"
    return [sys.executable, str(HERE / "floor.py"), what.tar, str(what.index), str(to), count]


def _ours(what: Object, to: Path) -> list[str]:
    return _reader("cogsmith_runtime.weights", what.index, what, to)


def _unchecked(what: Object, to: Path) -> list[str]:
    return [
        sys.executable,
        str(HERE / "unchecked.py"),
        *("--index", str(what.unchecked), "--url", what.tar, "--to", str(to)),
    ]


def _reader(module: str, index: Path, what: Object, to: Path) -> list[str]:
    return [sys.executable, "-m", module, "--index", str(index), "--url", what.tar, "--to", str(to)]


def commands() -> dict[str, Command]:
    """Name -> command, in the order of the table; those that are not installed are left out."""
    found: dict[str, Command] = {"curl | tar x": _curl_tar}
    if shutil.which("aria2c"):
        found["aria2c -x16, then tar x"] = _aria2
    if shutil.which("pget"):
        found |= {PGET: _pget, PGET_TUNED: _pget_tuned}
    else:
        found[STAND_IN] = _stand_in
    return found | {
        "sequential (httpx)": _sequential,
        FLOOR: _floor,
        UNCHECKED: _unchecked,
        OURS: _ours,
    }


def absent() -> list[str]:
    """The peers that this machine lacks."""
    rows = {"aria2c": ["aria2c -x16, then tar x"], "pget": [PGET, PGET_TUNED]}
    return [row for program, names in rows.items() if not shutil.which(program) for row in names]
