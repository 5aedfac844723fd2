"""Which quantization runs on which engine build and GPU, and in which dtype: one table, and what to use instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cogsmith.hardware import GPUS, Gpu
from cogsmith.quantization import INLINE, UNKNOWN

Capability = tuple[int, int]

# The oldest GPUs that a build has code for: docker/versions.json of vLLM 0.33; TensorRT-LLM's support matrix (Ampere).
_OLDEST: dict[str, Capability] = {"vllm": (7, 5), "tensorrt-llm": (8, 0)}
_OTHER = {"vllm": "tensorrt-llm", "tensorrt-llm": "vllm"}
# NVIDIA's CUDA C++ programming guide: arithmetic in bfloat16 begins with this capability.
_BFLOAT16: Capability = (8, 0)
_DTYPES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}
_HALF = ("bfloat16", "float16")


@dataclass(frozen=True)
class Support:
    """What one engine build makes of some quantizations.

    Attributes:
        names: those it is about.
        source: where the row comes from.
        least: the oldest compute capability that runs them.
        most: the newest that does, or None for any.
        dtypes: what they run in, or None for any.
        refusal: why they do not run at all, or None.
    """

    names: tuple[str, ...]
    source: str
    least: Capability = (0, 0)
    most: Capability | None = None
    dtypes: tuple[str, ...] | None = None
    refusal: str | None = None


# Files of vllm/model_executor/layers/quantization in vLLM 0.33.0: get_min_capability, get_supported_act_dtypes, lists of kernels.
_GPTQ, _MODELOPT = "auto_gptq.py of vLLM 0.33", "modelopt.py of vLLM 0.33"
_SCHEMES = "compressed_tensors/schemes/ of vLLM 0.33"
_QUARK = "quark/schemes/ of vLLM 0.33"
_GUIDE = "docs/features/quantization/README.md of vLLM 0.33"
_RUN = "vLLM 0.32's CPU build, started and asked by us"
_MATRIX = "hardware matrix in docs/source/features/quantization.md of TensorRT-LLM, between 1.2 and 1.3"
_LOADER = "tensorrt_llm/_torch/model_config.py around 1.2"
_PLUGIN = "it takes a plugin that the image does not have"
_KERNELS = "it has kernels for symmetric GPTQ of 4 and 8 bits"
_ALL_BITS = (2, 3, 4, 8)

TABLE: dict[str, tuple[Support, ...]] = {
    "vllm": (
        Support(("awq-int4",), "auto_awq.py of vLLM 0.33", (7, 5), None, _HALF),
        Support(("gptq-int4", "gptq-int8"), f"Marlin kernels, {_GUIDE}; {_GPTQ}", (7, 5), None, _HALF),
        Support(
            ("auto-round-int4", "auto-round-int8"), "inc/ of vLLM 0.33, the same kernels", (7, 5), None, _HALF
        ),
        # Without FP8 in hardware (below 8.9) the weights alone stay in FP8.
        Support(("fp8", "fp8-block"), "fp8.py of vLLM 0.33", (7, 5), None, _HALF),
        Support(
            ("compressed-tensors-fp8", "compressed-tensors-fp8-block", "compressed-tensors-fp8-w8a16"),
            _SCHEMES,
            (7, 5),
        ),
        Support(
            ("compressed-tensors-w4a16", "compressed-tensors-w8a16", "compressed-tensors-mxfp8"),
            _SCHEMES,
            (7, 5),
        ),
        Support(("compressed-tensors-int8",), f"{_SCHEMES}; {_GUIDE}", (7, 5), (9, 0)),
        Support(("compressed-tensors-w4a8-fp8",), _SCHEMES, (9, 0), (9, 0)),
        # Below 10.0 by weights alone.
        Support(("compressed-tensors-nvfp4", "compressed-tensors-nvfp4-w4a16"), _SCHEMES, (7, 5)),
        Support(("compressed-tensors-mxfp4",), _SCHEMES, (8, 0)),
        Support(("mxfp4",), "mxfp4.py of vLLM 0.33", (8, 0), None, ("bfloat16",)),
        Support(("modelopt-mxfp8",), _MODELOPT, (8, 0), None, ("bfloat16",)),
        Support(
            ("modelopt-fp8", "modelopt-fp8-rowwise", "modelopt-fp8-block"), _MODELOPT, (8, 0), None, _HALF
        ),
        Support(("modelopt-nvfp4", "modelopt-nvfp4-w4a16"), _MODELOPT, (7, 5), None, _HALF),
        Support(
            ("modelopt-w4a16-awq", "modelopt-w4a8-awq"),
            _MODELOPT,
            refusal="of ModelOpt it reads FP8, NVFP4 and MXFP8",
        ),
        Support(("quark-fp8",), _QUARK, (8, 9), None, _HALF),
        Support(("quark-int8",), f"{_QUARK}; INT8 as in compressed-tensors", (7, 5), (9, 0), _HALF),
        Support(("quark-w4a16",), _QUARK, (7, 5), None, _HALF),
        Support(
            ("bitsandbytes-fp4", "bitsandbytes-int8", "bitsandbytes-nf4", "gguf"), _GUIDE, refusal=_PLUGIN
        ),
        Support(("gptq-int2", "gptq-int3"), _GPTQ, refusal=_KERNELS),
        Support(tuple(f"gptq-int{bits}-asymmetric" for bits in _ALL_BITS), _GPTQ, refusal=_KERNELS),
        Support(
            ("compressed-tensors-actorder", *(f"gptq-int{bits}-desc-act" for bits in _ALL_BITS)),
            "utils/gptq_utils.py and compressed_tensors/compressed_tensors.py of vLLM 0.33",
            refusal="it no longer takes groups in activation order (desc_act, actorder)",
        ),
        Support(
            ("compressed-tensors-sparse",),
            "compressed_tensors/compressed_tensors.py of vLLM 0.33",
            refusal="it no longer takes 2:4 sparsity",
        ),
        Support(
            ("fbgemm-fp8",),
            "__init__.py of vLLM 0.33",
            refusal="that format is deprecated, and refused by default",
        ),
    ),
    "vllm-cpu": (
        Support(("awq-int4", "gptq-int4", "compressed-tensors-w4a16"), _RUN, dtypes=("bfloat16",)),
        Support(("compressed-tensors-int8",), _RUN),
        # Right, but a dozen times slower than the unquantized model.
        Support(("compressed-tensors-fp8",), _RUN, dtypes=("bfloat16",)),
    ),
    "tensorrt-llm": (
        Support(("modelopt-fp8",), _MATRIX, (8, 9)),
        Support(("modelopt-fp8-rowwise",), _MATRIX, (9, 0), (9, 0)),
        Support(("modelopt-fp8-block", "fp8-block"), _MATRIX, (9, 0), (10, 3)),
        Support(("modelopt-nvfp4", "mxfp4"), _MATRIX, (10, 0)),
        Support(("modelopt-w4a16-awq",), _MATRIX, (8, 0), (9, 0)),
        Support(("modelopt-w4a8-awq",), _MATRIX, (8, 9), (9, 0)),
    ),
}
# What is in no row of an engine build.
_OTHERS = {
    "vllm": Support((), "__init__.py of vLLM 0.33", refusal="it does not know that format"),
    "vllm-cpu": Support(
        (),
        _RUN,
        refusal="on a CPU it runs AWQ and GPTQ of 4 bits, and compressed-tensors INT8, W4A16 and FP8",
    ),
    "tensorrt-llm": Support(
        (),
        _LOADER,
        refusal="it reads ModelOpt's FP8, NVFP4, W4A16_AWQ and W4A8_AWQ, FP8 in blocks of 128x128, and MXFP4",
    ),
}
_NO_FILE = "it reads ModelOpt's formats from hf_quant_config.json, which is missing"
# What a hint offers instead of a quantization: what many checkpoints come in.
_COMMON = {
    "vllm": ("awq-int4", "gptq-int4", "compressed-tensors-fp8", "compressed-tensors-int8"),
    "vllm-cpu": ("compressed-tensors-int8", "awq-int4", "gptq-int4"),
    "tensorrt-llm": ("modelopt-nvfp4", "modelopt-fp8", "modelopt-w4a16-awq"),
}


def engine_problem(engine_name: str, gpu: Gpu | None) -> tuple[str, str] | None:
    """Why an engine build does not run on a GPU, whatever the model: (message, hint), or None where it does."""
    problem = _too_old(engine_name, gpu)
    if gpu is None or problem is None:
        return None
    ways = []
    other = _OTHER[engine_name]
    if gpu.capability >= _OLDEST[other]:
        ways.append(f"use backend: {other}")
    near = _nearest(engine_name, gpu, None, None)
    if near:
        ways.append(f"{'' if ways else 'use '}hardware: {near} (the nearest GPU it runs on)")
    return problem, ", or ".join(ways)


def feature_problems(
    engine_name: str, gpu: Gpu | None, quantization: str | None, dtype: str | None
) -> list[tuple[str, str, str]]:
    """What of a model an engine build cannot run on a machine.

    Args:
        engine_name: the engine build's.
        gpu: None for the CPU.
        quantization: what `read_quantization` found.
        dtype: what the model will run in; None where neither spec nor checkpoint says.

    Returns:
        (field of the spec, message, hint); the field is hardware, model, backend or engine.dtype. Empty where it runs.
    """
    problem = engine_problem(engine_name, gpu)
    if problem:
        return [("hardware", *problem)]
    dtype = _plain(dtype)
    faults: dict[str, str] = {}
    for field, message in _faults(engine_name, gpu, quantization, dtype):
        faults.setdefault(field, message)
    if "model" in faults:
        return [_refused(engine_name, gpu, quantization, dtype, faults["model"])]
    if "hardware" in faults and gpu is not None:
        hint = _machine_hint(engine_name, gpu, quantization, dtype)
        return [("hardware", faults["hardware"], hint)]
    return [
        (field, message, _dtype_hint(engine_name, gpu, quantization, dtype))
        for field, message in faults.items()
    ]


def _too_old(engine: str, gpu: Gpu | None) -> str | None:
    least = _OLDEST.get(engine)
    if gpu is None or least is None or gpu.capability >= least:
        return None
    return f"is {gpu.name}, {engine} needs {_lacking(gpu, least, None)}"


def _faults(
    engine: str, gpu: Gpu | None, quantization: str | None, dtype: str | None
) -> Iterator[tuple[str, str]]:
    """(field, message), the cause first."""
    problem = _too_old(engine, gpu)
    if problem:
        yield "hardware", problem
    for name in _names(quantization):
        yield from _faults_of(engine, gpu, name, dtype)
    if gpu is not None and dtype == "bfloat16" and gpu.capability < _BFLOAT16:
        yield "engine.dtype", f"comes to bfloat16, which needs {_lacking(gpu, _BFLOAT16, None)}"


def _faults_of(engine: str, gpu: Gpu | None, name: str, dtype: str | None) -> Iterator[tuple[str, str]]:
    if name.startswith(UNKNOWN):
        yield "model", f"is quantized in a way that is not known here ({name.removeprefix(UNKNOWN)})"
        return
    support = _support(engine, name)
    if support.refusal:
        yield "model", f"is quantized as {name}, which {engine} cannot run: {support.refusal}"
        return
    if gpu is not None and not support.least <= gpu.capability <= (support.most or gpu.capability):
        needed = _lacking(gpu, support.least, support.most)
        yield "hardware", f"is {gpu.name}, {name} on {engine} needs {needed}"
    if dtype is not None and support.dtypes is not None and dtype not in support.dtypes:
        runs = " or ".join(support.dtypes)
        yield "engine.dtype", f"comes to {dtype}, {name} on {engine} runs in {runs} alone"


def _support(engine: str, name: str) -> Support:
    if engine == "tensorrt-llm" and name.endswith(INLINE):
        return Support((name,), _LOADER, refusal=_NO_FILE)
    name = name.removesuffix(INLINE)
    for support in TABLE[engine]:
        if name in support.names:
            return support
    return _OTHERS[engine]


def _refused(
    engine: str, gpu: Gpu | None, quantization: str | None, dtype: str | None, message: str
) -> tuple[str, str, str]:
    """The mistake for a model that no GPU of this engine build runs: another backend may."""
    model = _model_hint(engine, gpu)
    other = _OTHER.get(engine)
    if other and _runs(other, gpu, quantization, dtype):
        reason = message.partition(": ")[2]
        return (
            "backend",
            f"is {engine}, which cannot run the model's {quantization}: {reason}",
            f"use backend: {other}, or {model}",
        )
    # In bfloat16, as most checkpoints are: float32 is this build's own choice.
    near = _nearest("vllm", GPUS[0], quantization, "bfloat16") if gpu is None else None
    return "model", message, f"use {model}" + (f", or a GPU such as hardware: {near}" if near else "")


def _machine_hint(engine: str, gpu: Gpu, quantization: str | None, dtype: str | None) -> str:
    ways = []
    near = _nearest(engine, gpu, quantization, dtype)
    if near:
        ways.append(f"hardware: {near}")
    other = _OTHER.get(engine)
    if other and _runs(other, gpu, quantization, dtype):
        ways.append(f"backend: {other}")
    ways.append(_model_hint(engine, gpu))
    return f"use {', or '.join(ways)}"


def _dtype_hint(engine: str, gpu: Gpu | None, quantization: str | None, dtype: str | None) -> str:
    ways = [f"set engine.dtype: {name}" for name in _HALF if _runs(engine, gpu, quantization, name)][:1]
    near = _nearest(engine, gpu, quantization, dtype) if gpu else None
    if near:
        ways.append(f"use hardware: {near}")
    return ", or ".join(ways) or f"use {_model_hint(engine, gpu)}"


def _model_hint(engine: str, gpu: Gpu | None) -> str:
    names = [name for name in _COMMON[engine] if _runs(engine, gpu, name, None)]
    if engine == "tensorrt-llm":
        names = [name.removeprefix("modelopt-").upper().replace("-", "_") for name in names]
        return f"a ModelOpt checkpoint ({', '.join(names)}), or an unquantized one"
    return f"a checkpoint in {', '.join(names)}, or an unquantized one"


def _runs(engine: str, gpu: Gpu | None, quantization: str | None, dtype: str | None) -> bool:
    if gpu is None and engine != "vllm-cpu":
        return False
    return not any(_faults(engine, gpu, quantization, dtype))


def _nearest(engine: str, gpu: Gpu, quantization: str | None, dtype: str | None) -> str | None:
    """The next larger GPU of the table that runs it, else the next smaller; never a desktop's card."""
    rented = [other for other in GPUS if not other.desktop]
    place = rented.index(gpu) if gpu in rented else 0
    for other in [*rented[place:], *reversed(rented[:place])]:
        if _runs(engine, other, quantization, dtype):
            return other.name
    return None


def _names(quantization: str | None) -> list[str]:
    if quantization is None:
        return []
    return [quantization] if quantization.startswith(UNKNOWN) else quantization.split("+")


def _plain(dtype: str | None) -> str | None:
    name = dtype.removeprefix("torch.").lower() if dtype else None
    return _DTYPES.get(name, name) if name else None


def _lacking(gpu: Gpu, least: Capability, most: Capability | None) -> str:
    """The compute capability that is needed, and the one that is there."""
    needed = f"{_dotted(least)} or newer"
    if most == least:
        needed = f"{_dotted(least)} exactly"
    elif most is not None and gpu.capability > most:
        needed = f"{_dotted(most)} or older"
    return f"compute capability {needed} ({gpu.name} has {_dotted(gpu.capability)})"


def _dotted(capability: Capability) -> str:
    return f"{capability[0]}.{capability[1]}"
