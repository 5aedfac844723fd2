"""Why the engine did not start: its log -> one coded sentence that says what to change in the spec.

The line that ends the log is seldom the cause (a worker's failure ends in "Engine core initialization failed"), so
each pattern is looked for in the whole log, the more telling ones first.
"""

import re
from dataclasses import dataclass

from .errors import EngineError


@dataclass(frozen=True, slots=True)
class _Cause:
    """Groups of `pattern` may be used by name in `what` and `do`."""

    code: str
    name: str
    pattern: re.Pattern[str]
    what: str
    do: str


def _cause(code: str, name: str, pattern: str, what: str, do: str) -> _Cause:
    return _Cause(code, name, re.compile(pattern), what, do)


_LESS = "Lower context or concurrency, or choose a larger hardware"

_CAUSES = (
    _cause(
        "E2102",
        "UnknownArgument",
        r"error: unrecognized arguments: (?P<it>[^\n]+)|\n(?P<key>[\w.]+)\n\s+Extra inputs are not permitted",
        "the engine does not know the argument {it}{key}.",
        "Correct or remove it under engine: in the spec.",
    ),
    _cause(
        "E2103",
        "BadArgument",
        r"error: argument (?:-\w/)?--(?P<flag>[\w.-]+)[^:\n]*: (?P<why>[^\n]+)",
        "the engine refuses the value of engine.{flag}: {why}.",
        "Correct it in the spec.",
    ),
    _cause(
        "E2104",
        "ContextTooLong",
        r"User-specified max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len"
        r"(?:[^\n]{0,40}?max_position_embeddings=(?P<most>\d+))?",
        "the model was not made for a context of {asked} tokens (its config allows {most}).",
        "Set context: {most} or lower.",
    ),
    _cause(
        "E2105",
        "KvCacheTooSmall",
        r"To serve at least one request[^\n]*?\((?P<need>[\d.]+ GiB) KV cache is needed[^\n]*?"
        r"available KV cache memory \((?P<have>[\d.]+ GiB)\)(?:[^\n]*?maximum model length is (?P<most>\d+))?",
        "one request of the full context needs {need} of KV cache, and {have} is free.",
        "Set context: {most} or lower, or give the KV cache more memory: a larger hardware, "
        "a higher engine.gpu_memory_utilization, or on a CPU VLLM_CPU_KVCACHE_SPACE under environment.",
    ),
    _cause(
        "E2106",
        "NoKvCache",
        r"No available memory for the cache blocks",
        "the weights leave no memory for the KV cache.",
        "Choose a larger hardware, a quantized model, a higher engine.gpu_memory_utilization, "
        "or a higher engine.kv_cache_memory_bytes where that is set.",
    ),
    _cause(
        "E2129",
        "SharedMemoryTooSmall",
        r"Insufficient space in /dev/shm",
        "the shared memory (/dev/shm) is too small for the engine's processes.",
        "Start the container with more of it: docker run --shm-size 1g.",
    ),
    _cause(
        "E2107",
        "KvCacheTooLarge",
        r"Available memory on node \d+ \((?P<have>[^)\n]*)\) on kv cache allocation is less than requested",
        "the KV cache asked for does not fit into the free memory ({have}).",
        "Lower VLLM_CPU_KVCACHE_SPACE under environment, or free memory.",
    ),
    _cause(
        "E2108",
        "MemoryInUse",
        r"(?P<it>Available memory on node \d+|Free memory on device[^(\n]*) \((?P<have>[^)\n]*)\) on startup is less "
        r"than desired",
        "other programs use the memory that the engine wants at its start (free: {have}).",
        "End them, lower engine.gpu_memory_utilization, or on a CPU set VLLM_CPU_KVCACHE_SPACE under environment.",
    ),
    _cause(
        "E2109",
        "OutOfGpuMemory",
        r"CUDA out of memory|OutOfMemoryError|Executor creation failed due to insufficient GPU memory",
        "the GPU's memory is full.",
        _LESS
        + ", or lower engine.gpu_memory_utilization (vLLM) or engine.kv_cache_config.free_gpu_memory_fraction "
        "(TensorRT-LLM).",
    ),
    _cause(
        "E2110",
        "DriverTooOld",
        r"NVIDIA driver on your system is too old(?: \(found version (?P<it>\d+)\))?|"
        r"CUDA driver version is insufficient|forward compatibility was attempted on non supported HW|"
        r"unsupported display driver / cuda driver combination",
        "the host's NVIDIA driver is too old for this engine's CUDA.",
        "Choose a hardware with a newer driver, or a backend version built for an older CUDA.",
    ),
    _cause(
        "E2111",
        "NoGpu",
        r"No CUDA GPUs are available|Found no NVIDIA driver|Failed to infer device type|no CUDA-capable device",
        "the engine sees no GPU.",
        "Start the container with GPUs, or set hardware: cpu.",
    ),
    _cause(
        "E2112",
        "NoCompiler",
        r"Could not find nvcc|[Cc]ould not find `?nvcc`?",
        "the engine wants to compile a kernel and the image has no nvcc.",
        "Add flashinfer-cubin and flashinfer-jit-cache of the engine's FlashInfer version under image.",
    ),
    _cause(
        "E2113",
        "GpuTooOld",
        r"(?:Bfloat16 is only supported on GPUs with compute capability of at least (?P<need>[\d.]+))|"
        r"quantization method (?P<it>\S+) is not supported for the current GPU",
        "the GPU is too old for the model's number format.",
        "Set engine.dtype: half, choose another quantization, or a newer hardware.",
    ),
    _cause(
        "E2114",
        "DtypeUnsupported",
        r"torch\.(?P<dtype>\w+) is not supported for quantization method (?P<it>\w+)",
        "quantization {it} does not work in {dtype}.",
        "Set engine.dtype: bfloat16.",
    ),
    _cause(
        "E2115",
        "UnknownQuantization",
        r"Unknown quantization method: (?P<it>[\w-]+)|unsupported quant mode",
        "the engine does not know the model's quantization {it}.",
        "Choose a model in a format of this engine, or correct engine.quantization.",
    ),
    _cause(
        "E2116",
        "RemoteCode",
        r"trust_remote_code=True|requires you to execute the (?:configuration|modeling|tokenizer) file",
        "the model brings its own Python code, which is not run unless the spec says so.",
        "Choose a model that the engine knows, or trust its code by name in the spec.",
    ),
    _cause(
        "E2117",
        "UnknownArchitecture",
        r"has model type `(?P<it>[^`\n]+)` but Transformers does not recognize|"
        r"Model architectures \[?'?(?P<arch>[\w', ]+?)'?\]? (?:are not supported|failed to be inspected)|"
        r"Unknown architecture for AutoModelForCausalLM: (?P<class>\w+)|"
        r"does not dispatch through the Transformers attention interface",
        "this engine version does not know the model's architecture {it}{arch}{class}.",
        "Choose another model, or a backend version that has it.",
    ),
    _cause(
        "E2118",
        "KernelMissing",
        r"object has no attribute '(?P<it>selective_scan_fwd|\w+_fwd)'|CPU GDN attention requires BF16|"
        r"Head dimension \d+ is not supported by MLA|Unexpected head dim size|"
        r"_C::(?P<op>\w+)\(\) expected at most",
        "this engine build has no kernel that the model needs {it}{op}.",
        "Try engine.dtype: bfloat16, or choose another model, backend or hardware.",
    ),
    _cause(
        "E2119",
        "NoGatedAccess",
        r"GatedRepoError|Cannot access gated repo|401 Client Error",
        "the engine tried to fetch a gated model from the Hub.",
        "Pack the weights again with a token that has access: a container fetches nothing from the Hub.",
    ),
    _cause(
        "E2120",
        "ModelFolder",
        r"Invalid repository ID or local directory specified|Repo id must be in the form|"
        r"Cannot find an appropriate cached snapshot folder|LocalEntryNotFoundError|OfflineModeIsEnabled",
        "the model's folder is missing or holds no config.json, and a container fetches nothing from the Hub.",
        "Pack the weights again, and look whether engine: names another model, tokenizer or adapter.",
    ),
    _cause(
        "E2121",
        "NoTokenizer",
        r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for",
        "the model's folder holds no usable tokenizer.",
        "Add tokenizer.json to the checkpoint and pack it again.",
    ),
    _cause(
        "E2122",
        "WeightsDamaged",
        r"OverflowError: byte string is too large|SafetensorError: (?P<it>[^\n]+)|HeaderTooLarge|MetadataIncompleteBuffer",
        "a weights file is damaged or cut short.",
        "Check the source, then pack the weights again.",
    ),
    _cause(
        "E2123",
        "NoWeights",
        r"Cannot find any model weights with",
        "the model's folder holds no weights.",
        "Pack the weights again.",
    ),
    _cause(
        "E2124",
        "CannotSplit",
        r"Not enough allowed NUMA nodes to bind threads of|must be divisible by tensor parallel size \((?P<it>\d+)\)",
        "the model cannot be split over that many workers here.",
        "Lower engine.tensor_parallel_size, or on a CPU set VLLM_CPU_OMP_THREADS_BIND under environment.",
    ),
    _cause(
        "E2125",
        "BadKvCacheSpace",
        r"(?s)VLLM_CPU_KVCACHE_SPACE.*invalid literal for int\(\)[^\n]*?: '(?P<it>[^'\n]*)'",
        "VLLM_CPU_KVCACHE_SPACE is {it}, and the engine takes whole GiB.",
        "Set a whole number under environment, or remove it and set engine.kv_cache_memory_bytes.",
    ),
    _cause(
        "E2126",
        "PortInUse",
        r"Address already in use",
        "another program took the engine's port.",
        "Start the container again.",
    ),
    _cause(
        "E2127",
        "EngineMissing",
        r"No module named '?(?P<it>vllm|tensorrt_llm)\b|lifeline: cannot start (?P<program>[^\n]+)",
        "the engine is not installed {it}{program}.",
        "Install backend's requirements again, or build the image again.",
    ),
    _cause(
        "E2130",
        "LibraryMissing",
        r"(?P<it>lib[\w.+-]+\.so[\d.]*): cannot open shared object file",
        "the image lacks the library {it}.",
        "Add the package that has it under image.system_packages.",
    ),
    _cause(
        "E2128", "DiskFull", r"No space left on device", "the disk is full.", "Free space and start again."
    ),
)

_PREFIX = re.compile(
    r"^(?:\([\w ]+pid=\d+\)\s*)?(?:(?:ERROR|WARNING|INFO|DEBUG) [\d-]+ [\d:.]+ (?:\[[^\]]*\] ?)?)?"
)
_ERROR = re.compile(r"^\w*(?:\.\w+)*(?:Error|Exception): ")
_USELESS = re.compile(r"Engine core initialization failed|^During handling|^Traceback|^\s*(?:File |\^|~)")
_QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")


def explain(log: str, status: str) -> EngineError:
    """The most telling cause that `log` shows, as an E21xx error; E2100 with its last useful lines otherwise.

    status: how the process ended, in words.
    """
    for cause in _CAUSES:
        if found := cause.pattern.search(log):
            values = {key: (value or "").strip().rstrip(".") for key, value in found.groupdict().items()}
            if "flag" in values:
                values["flag"] = values["flag"].replace("-", "_")
            if not values.get("most", "x"):
                values["most"] = "a smaller number"
            what = _plain(cause.what.format(**values))
            return EngineError(cause.code, cause.name, what, cause.do.format(**values))
    lines = last_lines(log)
    return EngineError(
        "E2100",
        "EngineStartFailed",
        f"the engine did not start ({status}).",
        f"Its last words: {' | '.join(lines)}"
        if lines
        else "It wrote nothing; see how it is started under engine:.",
    )


def not_ready(seconds: float, log: str) -> EngineError:
    """The engine runs but was not ready in time."""
    lines = last_lines(log, count=1)
    return EngineError(
        "E2101",
        "EngineStartTimeout",
        f"the engine was not ready after {seconds:.0f} s.",
        f"Give it more time, or a smaller model. It was at: {lines[0] if lines else 'nothing written yet'}",
    )


def last_lines(log: str, count: int = 3) -> list[str]:
    """The last lines that tell something: errors if there are any; without prefixes and without URL queries."""
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines()[-400:]]
    telling = [line for line in lines if line and not _USELESS.search(line)]
    found = [line for line in telling if _ERROR.search(line)] or telling
    return [_QUERY.sub(r"\1", line)[:300] for line in list(dict.fromkeys(found))[-count:]]


def _plain(sentence: str) -> str:
    return sentence.replace(" .", ".").replace("  ", " ")
