"""Spec + Lock -> Plan: every default filled, nothing optional left to guess. What is rendered is made from this alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cogsmith.engines import Engine, engine_for
from cogsmith.errors import Mistake, MistakesError, UserError
from cogsmith.features import engine_problem, feature_problems
from cogsmith.hardware import Hardware, HardwareError, parse_hardware
from cogsmith.inputs import SAMPLING, Input
from cogsmith.lock import CheckpointFacts, Lock
from cogsmith.spec import Spec
from cogsmith.spec_engine import arguments_of, engine_mistakes
from cogsmith_runtime.settings import EngineSettings, OutputSettings, PromptSettings, Settings
from cogsmith_runtime.weights import Index

# Used where neither the spec nor the checkpoint names a value: the engine's own defaults, at which a parameter does nothing.
NEUTRAL: Mapping[str, float | int | None] = {
    "max_tokens": 512,
    "min_tokens": 0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
}
CONTEXT_LIMIT = 8192  # the context where the spec names none and the checkpoint could take more
CPU_CONCURRENCY = 4
GPU_CONCURRENCY = 32
# Memory for the KV cache on a CPU, where the spec sets none: enough for every slot at full context, up to this.
CPU_KV_LIMIT_GIB = 4


@dataclass(frozen=True)
class Plan:
    """One model for one engine build on one kind of machine.

    Attributes:
        folder: the folder under build/; NAME, NAME@BACKEND where the spec names several, NAME@cpu where another hardware than
            the spec's was asked for.
        other_hardware: it is for other hardware than the spec's.
        engine_config: the content of the engine's own file of settings, where it takes one.
        inputs: the predictor's signature, every default filled in.
        settings: what the container reads at boot.
        environment: cog.yaml's environment.
        bucket: where the weights are packed to, as the spec names it.
        index: weights.json, or None while nothing is packed.
    """

    name: str
    folder: str
    other_hardware: bool
    engine: Engine
    engine_config: Mapping[str, Any] | None
    hardware: Hardware
    cog: str
    concurrency: int
    inputs: tuple[Input, ...]
    settings: Settings
    packages: tuple[str, ...]
    system_packages: tuple[str, ...]
    run: tuple[str, ...]
    environment: Mapping[str, str]
    bucket: str
    index: Index | None


def engine_of(spec: Spec, hardware: str | None = None, backend: str | None = None) -> Engine:
    """The engine build of a spec for one of its backends, or of the same spec on other hardware.

    Raises:
        UserError: the spec does not have that backend, or leaves open which; or it needs other hardware.
    """
    chosen = _backend(spec, backend)
    machine = _machine(spec, hardware)
    engine = engine_for(chosen, cpu=machine.gpu is None)
    if engine is None:
        raise UserError(
            f"{chosen} does not run on {machine.name}", "name a GPU, or set backend: vllm in the spec"
        )
    problem = engine_problem(engine.name, machine.gpu)
    if problem:
        raise UserError(f"--hardware {problem[0]}", problem[1])
    return engine


def make_plan(spec: Spec, lock: Lock, hardware: str | None = None, backend: str | None = None) -> Plan:
    """Fill every default.

    Args:
        spec: what the user wrote.
        lock: what was resolved.
        hardware: other hardware than the spec's, for a second folder.
        backend: one of the spec's; None where it has one.

    Raises:
        UserError: there is no such hardware or backend.
        MistakesError: the spec asks for what this checkpoint or engine build does not have; every mistake at once.
    """
    machine = _machine(spec, hardware)
    engine = engine_of(spec, hardware, backend)
    facts = lock.checkpoint
    mistakes = [
        *_context_mistakes(spec, facts),
        *_prompt_mistakes(spec, facts),
        *engine_mistakes(spec, engine),
        *_feature_mistakes(spec, facts, engine, machine),
    ]
    if mistakes:
        raise MistakesError(mistakes)
    arguments = _arguments(spec, facts, engine, machine)
    settings, inputs = _settings(spec, lock, engine, machine, arguments)
    return Plan(
        name=spec.name,
        folder=_folder(spec, engine, machine),
        other_hardware=machine.name != spec.machine.name,
        engine=engine,
        engine_config=engine.configuration(arguments),
        hardware=machine,
        cog=spec.cog if "cog" in spec.model_fields_set else lock.cog,
        concurrency=settings.concurrency,
        inputs=inputs,
        settings=settings,
        packages=tuple(spec.image.python_packages),
        system_packages=(*engine.system_packages, *spec.image.system_packages),
        run=tuple(spec.image.run),
        environment=dict(spec.environment),
        bucket=spec.weights.bucket,
        index=lock.weights.parsed() if lock.weights else None,
    )


def plans(spec: Spec, lock: Lock, hardware: str | None = None) -> tuple[Plan, ...]:
    """The plan for each of a spec's backends; see `make_plan`."""
    return tuple(make_plan(spec, lock, hardware, backend) for backend in spec.backends)


def _backend(spec: Spec, backend: str | None) -> str:
    choices = " or ".join(spec.backends)
    if backend is None and len(spec.backends) > 1:
        raise UserError(f"{spec.name} has several backends", f"say which with --backend: {choices}")
    if backend is not None and backend not in spec.backends:
        raise UserError(
            f"--backend {backend}: the spec of {spec.name} does not name it", f"it names {choices}"
        )
    return backend or spec.backends[0]


def _folder(spec: Spec, engine: Engine, machine: Hardware) -> str:
    parts = [spec.name]
    if len(spec.backends) > 1:
        parts.append(engine.backend)
    if machine.name != spec.machine.name:
        parts.append(machine.name.replace(":", "-"))
    return "@".join(parts)


def _context(spec: Spec, facts: CheckpointFacts) -> int:
    return spec.context or min(facts.context or CONTEXT_LIMIT, CONTEXT_LIMIT)


def _concurrency(spec: Spec, machine: Hardware) -> int:
    return spec.concurrency or (CPU_CONCURRENCY if machine.gpu is None else GPU_CONCURRENCY)


def _settings(
    spec: Spec, lock: Lock, engine: Engine, machine: Hardware, arguments: Mapping[str, Any]
) -> tuple[Settings, tuple[Input, ...]]:
    """What the container reads, and the signature that goes with it."""
    facts = lock.checkpoint
    context = _context(spec, facts)
    concurrency = _concurrency(spec, machine)
    sampling = _sampling(spec, facts, context)
    inputs = tuple(_filled(entry, spec, sampling, context) for entry in spec.signature)
    settings = Settings(
        name=spec.name,
        engine=_engine_settings(spec, facts, engine, machine, arguments),
        context=context,
        concurrency=concurrency,
        prompt=PromptSettings(
            template=spec.prompt.template,
            chat_template_kwargs=dict(spec.prompt.chat_template_kwargs),
            system=spec.prompt.system,
            special_tokens=tuple(facts.special_tokens),
        ),
        output=OutputSettings(
            kind=spec.output.type,
            schema=spec.output.json_schema,
            regex=spec.output.regex,
            choices=tuple(spec.output.choices),
            stream=spec.stream,
            reasoning="show" if spec.reasoning is not None and spec.reasoning.show else "hide",
        ),
        inputs=tuple(entry.name for entry in inputs),
        sampling=sampling,
        stop=tuple(spec.stop),
        stop_token_ids=_stop_token_ids(spec, facts, engine),
        weights_url=weights_url(spec, lock),
    )
    return settings, inputs


def _machine(spec: Spec, hardware: str | None) -> Hardware:
    if hardware is None:
        return spec.machine
    try:
        return parse_hardware(hardware)
    except HardwareError as error:
        raise UserError(f"--hardware {hardware}: {error.message}", error.hint) from error


def _context_mistakes(spec: Spec, facts: CheckpointFacts) -> list[Mistake]:
    # How far position scaling stretches a context depends on its kind: the engine knows, and says so at start.
    if facts.rope_scaling is None and spec.context and facts.context and spec.context > facts.context:
        return [
            spec.mistake(
                "context",
                f"is {spec.context}, must be <= {facts.context}, the most that this checkpoint was made for",
                f"set context: {facts.context} or lower",
            )
        ]
    return []


def _prompt_mistakes(spec: Spec, facts: CheckpointFacts) -> list[Mistake]:
    if spec.prompt.template is not None:
        return []
    if facts.chat_template_sha256 is None:
        return [
            spec.mistake(
                "prompt.template",
                "is missing, and the checkpoint has no chat template",
                'give one, such as template: "{{ prompt }}" for a base model',
            )
        ]
    if spec.prompt.system is not None and facts.system_role is False:
        return [
            spec.mistake(
                "prompt.system",
                "is set, but the checkpoint's chat template refuses a system message",
                "remove it, or write the instructions into prompt.template",
            )
        ]
    return []


def _sampling(spec: Spec, facts: CheckpointFacts, context: int) -> dict[str, float | int | None]:
    """The spec's value, else the checkpoint's, else one that does nothing."""
    chosen = spec.sampling.model_dump(exclude_none=True)
    advised = {name: value for name, value in facts.sampling.items() if name in SAMPLING}
    values = {**NEUTRAL, **advised, **chosen}
    if "max_tokens" not in chosen:
        values["max_tokens"] = min(int(values["max_tokens"] or 0), max(1, context // 2))
    return values


def _filled(entry: Input, spec: Spec, sampling: Mapping[str, float | int | None], context: int) -> Input:
    """An input with its default, and with the limit that this model's context sets."""
    if not entry.builtin:
        return entry
    if entry.name in {"max_tokens", "min_tokens"}:
        entry = replace(entry, le=min(int(entry.le or context), context))
    if entry.required or entry.default is not None:
        return entry
    if entry.name in sampling:
        value = sampling[entry.name]
        return replace(entry, default=float(value) if entry.type == "number" and value is not None else value)
    return replace(entry, default=(spec.prompt.system or "") if entry.name == "system_prompt" else "")


def _stop_token_ids(spec: Spec, facts: CheckpointFacts, engine: Engine) -> tuple[int, ...]:
    # vLLM takes those of generation_config.json by itself; TensorRT-LLM does not read that file.
    own = () if engine.api == "vllm" else tuple(facts.eos_token_ids)
    return tuple(dict.fromkeys((*own, *spec.stop_token_ids)))


def _arguments(spec: Spec, facts: CheckpointFacts, engine: Engine, machine: Hardware) -> dict[str, Any]:
    """What the engine is told: the figures that other fields decide, and the spec's own arguments."""
    arguments: dict[str, Any] = {
        engine.names.context: _context(spec, facts),
        # One more than the predictions: the probe that tells a hung engine from a busy one needs a seat.
        engine.names.sequences: _concurrency(spec, machine) + 1,
        **arguments_of(spec, engine.backend),
    }
    if machine.count > 1:
        arguments[engine.names.parallel] = machine.count
    if spec.reasoning is not None:
        arguments["reasoning_parser"] = spec.reasoning.parser
    if spec.trust_remote_code is not None:
        arguments["trust_remote_code"] = True
    return arguments


def _engine_settings(
    spec: Spec, facts: CheckpointFacts, engine: Engine, machine: Hardware, arguments: Mapping[str, Any]
) -> EngineSettings:
    environment = {**engine.environment, **spec.environment}
    if machine.gpu is None and "kv_cache_memory_bytes" not in arguments:
        kv = _cpu_kv_gib(facts, _context(spec, facts), _concurrency(spec, machine))
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", str(kv))
    return EngineSettings(
        name=engine.name,
        version=engine.version,
        api=engine.api,
        command=engine.command(arguments),
        environment=environment,
        # A slow disk gives 100 MiB/s: a second for each.
        start_timeout=engine.start_timeout + facts.tensor_bytes // (100 * 2**20),
        load_mark=engine.load_mark,
    )


def _feature_mistakes(spec: Spec, facts: CheckpointFacts, engine: Engine, machine: Hardware) -> list[Mistake]:
    chosen = arguments_of(spec, engine.backend).get("dtype") or engine.arguments.get("dtype")
    dtype = facts.dtype if chosen in {None, "auto"} else str(chosen)
    found = feature_problems(engine.name, machine.gpu, facts.quantization, dtype)
    return [spec.mistake(*problem) for problem in found]


def _cpu_kv_gib(facts: CheckpointFacts, context: int, concurrency: int) -> int:
    """Whole GiB (the engine takes no less) of float32 keys and values: 2 per layer, head and dimension of a token."""
    if not (facts.layers and facts.kv_heads and facts.head_dim):
        return 1
    token = 2 * facts.layers * facts.kv_heads * facts.head_dim * 4
    one = math.ceil(token * context / 2**30)
    every = math.ceil(token * context * (concurrency + 1) / 2**30)
    return min(every, max(one, CPU_KV_LIMIT_GIB))


def weights_url(spec: Spec, lock: Lock) -> str | None:
    """Where the container reads the packed object; None without weights.url, or before it is packed."""
    if spec.weights.url is None or lock.weights is None:
        return None
    return f"{spec.weights.url.rstrip('/')}/{lock.weights.digest}.tar"
