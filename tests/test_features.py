"""The table of what runs where: what is refused names something that works, and that does work."""

from __future__ import annotations

import re
from itertools import product

import pytest

from cogsmith.engines import ENGINES
from cogsmith.features import TABLE, engine_problem, feature_problems
from cogsmith.hardware import GPUS
from cogsmith.quantization import INLINE, SCHEMES

GPU = {"cpu": None, **{gpu.name: gpu for gpu in GPUS}}


def fields(engine: str, gpu: str, quantization: str | None, dtype: str | None) -> list[str]:
    return [field for field, _, _ in feature_problems(engine, GPU[gpu], quantization, dtype)]


@pytest.mark.parametrize(
    ("engine", "quantization", "runs_on", "not_on"),
    [
        ("vllm", None, "t4 a10g a100-40 l4 h100 b200 rtx-5090", ""),
        ("vllm", "awq-int4", "t4 a10g a100-40 l4 h100 b200 rtx-4090", ""),
        ("vllm", "gptq-int8", "t4 a100-80 b200", ""),
        ("vllm", "fp8", "t4 a10g a100-80 l4 h100 b200", ""),
        ("vllm", "compressed-tensors-fp8", "t4 a10g l40s h200", ""),
        ("vllm", "compressed-tensors-int8", "t4 a100-80 l4 h100", "b200 rtx-5090"),
        ("vllm", "compressed-tensors-w4a8-fp8", "h100 h200", "t4 l4 b200"),
        ("vllm", "modelopt-nvfp4", "t4 a100-80 h100 b200", ""),
        ("vllm", "modelopt-nvfp4-inline", "t4 a100-80 h100 b200", ""),
        ("vllm", "mxfp4", "a100-80 a10g h100 b200", "t4"),
        ("vllm", "compressed-tensors-fp8+compressed-tensors-int8", "t4 l4", "b200"),
        ("vllm", "bitsandbytes-nf4", "", "t4 l4 h100 b200"),
        ("vllm", "gguf", "", "t4 l4 h100 b200"),
        ("vllm", "unknown: hqq", "", "t4 l4 h100 b200"),
        ("tensorrt-llm", None, "a10g a100-40 l4 h100 b200 rtx-5090", "t4"),
        ("tensorrt-llm", "awq-int4", "", "t4 a100-80 l4 h100 b200"),
        ("tensorrt-llm", "compressed-tensors-fp8", "", "l4 h100"),
        ("tensorrt-llm", "fp8", "", "l4 h100"),
        ("tensorrt-llm", "fp8-block", "h100 h200 b200", "l40s rtx-5090"),
        ("tensorrt-llm", "modelopt-fp8", "l4 l40s rtx-4090 h100 b200", "a10g a100-80"),
        ("tensorrt-llm", "modelopt-fp8-inline", "", "h100"),
        ("tensorrt-llm", "modelopt-w4a16-awq", "a100-80 a10g l4 h100", "t4 b200 rtx-5090"),
        ("tensorrt-llm", "modelopt-w4a8-awq", "l4 h100", "a100-80 b200"),
        ("tensorrt-llm", "modelopt-nvfp4", "b200 rtx-5090", "h100"),
        ("tensorrt-llm", "mxfp4", "b200 rtx-5090", "h100"),
    ],
)
def test_where_a_quantization_runs(engine: str, quantization: str | None, runs_on: str, not_on: str) -> None:
    for gpu in runs_on.split():
        dtype = "float16" if gpu == "t4" else "bfloat16"
        assert fields(engine, gpu, quantization, dtype) == [], gpu
    for gpu in not_on.split():
        assert len(fields(engine, gpu, quantization, "bfloat16")) == 1, gpu


@pytest.mark.parametrize(
    ("quantization", "dtype", "found"),
    [
        (None, "float32", []),
        (None, "bfloat16", []),
        ("awq-int4", "float32", ["engine.dtype"]),
        ("awq-int4", "bfloat16", []),
        ("gptq-int4", "float32", ["engine.dtype"]),
        ("gptq-int8", "bfloat16", ["model"]),
        ("compressed-tensors-w4a16", "float32", ["engine.dtype"]),
        ("compressed-tensors-w4a16", "bfloat16", []),
        ("compressed-tensors-int8", "float32", []),
        ("fp8", "bfloat16", ["model"]),
        ("modelopt-fp8", "bfloat16", ["model"]),
    ],
)
def test_the_cpu_build(quantization: str | None, dtype: str, found: list[str]) -> None:
    assert fields("vllm-cpu", "cpu", quantization, dtype) == found


@pytest.mark.parametrize(
    ("engine", "gpu", "quantization", "dtype", "problem"),
    [
        (
            "vllm", "t4", None, "torch.bfloat16",
            ("engine.dtype", "comes to bfloat16, which needs compute capability 8.0 or newer (t4 has 7.5)",
             "set engine.dtype: float16, or use hardware: l4"),
        ),
        (
            "vllm", "l4", "awq-int4", "float",
            ("engine.dtype", "comes to float32, awq-int4 on vllm runs in bfloat16 or float16 alone",
             "set engine.dtype: bfloat16"),
        ),
        (
            "vllm-cpu", "cpu", "gptq-int4", "float32",
            ("engine.dtype", "comes to float32, gptq-int4 on vllm-cpu runs in bfloat16 alone",
             "set engine.dtype: bfloat16"),
        ),
        (
            "vllm", "b200", "compressed-tensors-int8", "bfloat16",
            ("hardware", "is b200, compressed-tensors-int8 on vllm needs compute capability 9.0 or older (b200 has 10.0)",
             "use hardware: h200, or a checkpoint in awq-int4, gptq-int4, compressed-tensors-fp8, or an unquantized one"),
        ),
        (
            "vllm", "t4", "mxfp4", "bfloat16",
            ("hardware", "is t4, mxfp4 on vllm needs compute capability 8.0 or newer (t4 has 7.5)",
             "use hardware: l4, or a checkpoint in awq-int4, gptq-int4, compressed-tensors-fp8, compressed-tensors-int8, "
             "or an unquantized one"),
        ),
        (
            "tensorrt-llm", "l40s", "modelopt-nvfp4", "bfloat16",
            ("hardware", "is l40s, modelopt-nvfp4 on tensorrt-llm needs compute capability 10.0 or newer (l40s has 8.9)",
             "use hardware: b200, or backend: vllm, or a ModelOpt checkpoint (FP8, W4A16_AWQ), or an unquantized one"),
        ),
        (
            "tensorrt-llm", "h100", "awq-int4", "float16",
            ("backend", "is tensorrt-llm, which cannot run the model's awq-int4: it reads ModelOpt's FP8, NVFP4, W4A16_AWQ "
             "and W4A8_AWQ, FP8 in blocks of 128x128, and MXFP4",
             "use backend: vllm, or a ModelOpt checkpoint (FP8, W4A16_AWQ), or an unquantized one"),
        ),
        (
            "tensorrt-llm", "b200", "bitsandbytes-nf4", "bfloat16",
            ("model", "is quantized as bitsandbytes-nf4, which tensorrt-llm cannot run: it reads ModelOpt's FP8, NVFP4, "
             "W4A16_AWQ and W4A8_AWQ, FP8 in blocks of 128x128, and MXFP4",
             "use a ModelOpt checkpoint (NVFP4, FP8), or an unquantized one"),
        ),
        (
            "vllm-cpu", "cpu", "fp8-block", "float32",
            ("model", "is quantized as fp8-block, which vllm-cpu cannot run: on a CPU it runs AWQ and GPTQ of 4 bits, and "
             "compressed-tensors INT8, W4A16 and FP8",
             "use a checkpoint in compressed-tensors-int8, awq-int4, gptq-int4, or an unquantized one, "
             "or a GPU such as hardware: l4"),
        ),
        (
            "vllm", "l4", "unknown: hqq", "bfloat16",
            ("model", "is quantized in a way that is not known here (hqq)",
             "use a checkpoint in awq-int4, gptq-int4, compressed-tensors-fp8, compressed-tensors-int8, "
             "or an unquantized one"),
        ),
    ],
)  # fmt: skip
def test_messages(
    engine: str, gpu: str, quantization: str | None, dtype: str, problem: tuple[str, ...]
) -> None:
    assert feature_problems(engine, GPU[gpu], quantization, dtype) == [problem]


def test_an_engine_that_does_not_run_on_a_gpu() -> None:
    assert engine_problem("tensorrt-llm", GPU["t4"]) == (
        "is t4, tensorrt-llm needs compute capability 8.0 or newer (t4 has 7.5)",
        "use backend: vllm, or hardware: l4 (the nearest GPU it runs on)",
    )
    assert fields("tensorrt-llm", "t4", "awq-int4", "bfloat16") == ["hardware"]
    # A rule of the spec asks by the backend's name, the CPU included.
    for engine, gpu in product(("vllm", "tensorrt-llm", "vllm-cpu"), GPUS):
        assert (engine_problem(engine, gpu) is None) == ((engine, gpu.name) != ("tensorrt-llm", "t4"))
        assert engine_problem(engine, None) is None


def test_the_table_covers_every_engine_build_and_every_name_once() -> None:
    assert set(TABLE) == set(ENGINES)
    for rows in TABLE.values():
        names = [name for row in rows for name in row.names]
        assert len(names) == len(set(names))
        assert set(names) <= set(SCHEMES)
        assert all(row.source for row in rows)
    assert {name for row in TABLE["vllm"] for name in row.names} == set(SCHEMES)


ALL = [None, "unknown: x", *SCHEMES, *(name + INLINE for name in SCHEMES if name.startswith("modelopt-"))]
MACHINES = [(engine, gpu) for engine in ("vllm", "tensorrt-llm") for gpu in GPUS]


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float16", "float32"])
def test_what_a_hint_names_works(dtype: str | None) -> None:
    for (engine, gpu), quantization in product([*MACHINES, ("vllm-cpu", None)], ALL):
        for field, message, hint in feature_problems(engine, gpu, quantization, dtype):
            told = (engine, gpu and gpu.name, quantization, field, message, hint)
            assert field in {"hardware", "model", "backend", "engine.dtype"}, told
            assert hint.startswith(("use ", "set ")), told
            assert not hint.endswith("."), told
            for other in re.findall(r"hardware: ([\w-]+)", hint):
                build = "vllm" if gpu is None else engine
                wanted = None if gpu is None else dtype
                checked = None if "the nearest GPU it runs on" in hint else quantization
                assert not feature_problems(build, GPU[other], checked, wanted if checked else None), told
            for other in re.findall(r"backend: ([\w-]+)", hint):
                checked = None if field == "hardware" and "nearest" in hint else quantization
                assert not feature_problems(other, gpu, checked, dtype if checked else None), told
            for other in re.findall(r"engine\.dtype: (\w+)", hint):
                assert not feature_problems(engine, gpu, quantization, other), told
            for other in re.findall(
                r"(?:awq|gptq|compressed-tensors)-[\w-]+", hint.partition("checkpoint in ")[2]
            ):
                assert not feature_problems(engine, gpu, other, None), told
