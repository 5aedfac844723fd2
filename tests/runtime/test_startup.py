"""The log of an engine that did not start -> a coded sentence that says what to change.

The lines are those of vLLM 0.32 and 0.33, with what stands around them in a real log, and those that the documents and reports of
TensorRT-LLM 1.2 quote.
"""

import pytest

from cogsmith_runtime import startup

WORKER_END = (
    "\nRuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)

LOGS = [
    # TensorRT-LLM: the last line says only that a worker returned an error.
    (
        "RuntimeError: Executor creation failed due to insufficient GPU memory.\nRuntimeError: Executor worker returned error",
        "E2109",
        "engine.kv_cache_config.free_gpu_memory_fraction",
    ),
    (
        "ValueError: Unknown architecture for AutoModelForCausalLM: FooForCausalLM\nRuntimeError: Executor worker returned error",
        "E2117",
        "architecture FooForCausalLM.",
    ),
    (
        "ValueError: unsupported quant mode: 7\nRuntimeError: Executor worker returned error",
        "E2115",
        "quantization",
    ),
    (
        "1 validation error for TorchLlmArgs\nmax_batch_sise\n  Extra inputs are not permitted [type=extra_forbidden]",
        "E2102",
        "the argument max_batch_sise.",
    ),
    (
        "ImportError: libmpi.so.40: cannot open shared object file: No such file or directory",
        "E2130",
        "the library libmpi.so.40.",
    ),
    ("api_server.py: error: unrecognized arguments: --x 5", "E2102", "--x 5"),
    (
        "RuntimeError: Insufficient space in /dev/shm (64 MiB free, 160 MiB required)",
        "E2129",
        "--shm-size 1g",
    ),
    (
        "error: argument --max-num-seqs: invalid int value: 'many'",
        "E2103",
        "engine.max_num_seqs: invalid int",
    ),
    (
        "Value error, User-specified max_model_len (100000) is greater than the derived max_model_len "
        "(max_position_embeddings=8192 or model_max_length=None in model's config.json).",
        "E2104",
        "Set context: 8192 or lower.",
    ),
    (
        "User-specified max_model_len (9) is greater than the derived max_model_len",
        "E2104",
        "a smaller number",
    ),
    (
        "(EngineCore pid=7) ERROR 12-01 10:00:00 [core.py:1] ValueError: To serve at least one request with the "
        "model's max seq len (8192), (0.35 GiB KV cache is needed, which is larger than the available KV cache "
        "memory (0.04 GiB). Based on the available memory, the estimated maximum model length is 896."
        + WORKER_END,
        "E2105",
        "Set context: 896 or lower",
    ),
    (
        "ValueError: No available memory for the cache blocks. Try increasing",
        "E2106",
        "gpu_memory_utilization",
    ),
    (
        "Available memory on node 0 (2.1/18.59 GiB) on kv cache allocation is less than requested memory for kv",
        "E2107",
        "VLLM_CPU_KVCACHE_SPACE",
    ),
    (
        "Available memory on node 0 (16.67/18.59 GiB) on startup is less than desired CPU memory utilization "
        "(0.92, 17.1 GiB).",
        "E2108",
        "(free: 16.67/18.59 GiB)",
    ),
    (
        "Free memory on device cuda:0 (10.1/44.39 GiB) on startup is less than desired GPU memory utilization",
        "E2108",
        "engine.gpu_memory_utilization",
    ),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "E2109", "Lower context"),
    ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "E2110", "driver"),
    ("RuntimeError: No CUDA GPUs are available", "E2111", "GPU"),
    (
        "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda'",
        "E2112",
        "flashinfer-jit-cache",
    ),
    (
        "Bfloat16 is only supported on GPUs with compute capability of at least 8.0",
        "E2113",
        "engine.dtype: half",
    ),
    (
        "Value error, torch.float32 is not supported for quantization method awq. Supported dtypes:",
        "E2114",
        "quantization awq does not work in float32. Set engine.dtype: bfloat16.",
    ),
    ("ValueError: Unknown quantization method: nope. Must be one of", "E2115", "nope"),
    (
        "Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
        "E2116",
        "Python code",
    ),
    (
        "The checkpoint you are trying to load has model type `nope` but Transformers does not recognize this",
        "E2117",
        "architecture nope.",
    ),
    ("Model architectures ['FooForCausalLM'] are not supported for now.", "E2117", "FooForCausalLM."),
    (
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'selective_scan_fwd'",
        "E2118",
        "selective_scan",
    ),
    ("ValueError: CPU GDN attention requires BF16.", "E2118", "engine.dtype: bfloat16"),
    (
        "RuntimeError: _C::static_scaled_fp8_quant() expected at most 0 argument(s)",
        "E2118",
        "static_scaled_fp8",
    ),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error.", "E2119", "token that has access"),
    ("Value error, Invalid repository ID or local directory specified: '/m'", "E2120", "config.json"),
    (
        "LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder",
        "E2120",
        "Pack the weights",
    ),
    ("ValueError: Couldn't instantiate the backend tokenizer from one of:", "E2121", "tokenizer.json"),
    ("OverflowError: byte string is too large", "E2122", "damaged"),
    (
        "(Worker pid=9) ERROR SafetensorError: Error while deserializing header: incomplete metadata, file not fully "
        "covered" + WORKER_END,
        "E2122",
        "damaged",
    ),
    ("RuntimeError: Cannot find any model weights with `/m`", "E2123", "no weights"),
    (
        "AssertionError: Not enough allowed NUMA nodes to bind threads of 2 local CPUWorkers.",
        "E2124",
        "tensor_par",
    ),
    (
        "envs.VLLM_CPU_KVCACHE_SPACE\nValueError: invalid literal for int() with base 10: '0.05'",
        "E2125",
        "VLLM_CPU_KVCACHE_SPACE is 0.05",
    ),
    ("OSError: [Errno 98] Address already in use", "E2126", "Start the container again"),
    ("python: No module named vllm.entrypoints", "E2127", "not installed vllm"),
    ("lifeline: cannot start vllm: No such file or directory", "E2127", "vllm: No such file"),
    ("OSError: [Errno 28] No space left on device", "E2128", "disk"),
]


@pytest.mark.parametrize(
    ("log", "code", "part"), LOGS, ids=[f"{code}-{i}" for i, (_, code, _) in enumerate(LOGS)]
)
def test_causes(log: str, code: str, part: str) -> None:
    noise = "INFO 12-01 10:00:00 [api_server.py:1] vLLM API server version 0.32.0\nTraceback (most recent call last):\n"
    error = startup.explain(noise + log + "\n", "exit status 1")
    text = str(error)
    assert error.code == code, text
    assert part in text
    assert "{" not in text
    assert " ." not in text
    assert "\n" not in text


def test_an_unknown_cause_gives_the_last_useful_lines() -> None:
    log = (
        "INFO 12-01 10:00:00 [x.py:1] Starting\n"
        "(Worker pid=12) ERROR 12-01 10:00:01 [y.py:2] Traceback (most recent call last):\n"
        '(Worker pid=12) ERROR 12-01 10:00:01 [y.py:2]   File "a.py", line 1\n'
        "(Worker pid=12) ERROR 12-01 10:00:01 [y.py:2] KeyError: 'odd' https://host/a?X-Amz-Signature=secret\n"
        "INFO 12-01 10:00:02 [x.py:1] Goodbye\n"
    ) + WORKER_END
    text = str(startup.explain(log, "exit status 1"))
    assert text == (
        "E2100 EngineStartFailed: the engine did not start (exit status 1). "
        "Its last words: KeyError: 'odd' https://host/a"
    )


def test_an_empty_log() -> None:
    assert "It wrote nothing" in str(startup.explain("", "signal 9"))
