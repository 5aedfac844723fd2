"""How a checkpoint's weights are quantized, by what it says of itself: one name of a closed list, never a guess.

A name begins with what wrote the checkpoint, because engines read one writer's FP8 and not another's. Where groups of layers
differ, the names of all of them are joined by `+`. What is not fully described, or not known here, is `unknown: WHAT IT SAYS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cogsmith.model_config import NESTED

Json = Mapping[str, Any]

UNKNOWN = "unknown: "
# Ends the names of ModelOpt checkpoints that describe themselves in config.json alone, where not every engine looks.
INLINE = "-inline"

_MODELOPT = {
    "FP8": "modelopt-fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "modelopt-fp8-rowwise",
    "FP8_PB_WO": "modelopt-fp8-block",
    "NVFP4": "modelopt-nvfp4",
    "W4A16_NVFP4": "modelopt-nvfp4-w4a16",
    "MXFP8": "modelopt-mxfp8",
    "W4A16_AWQ": "modelopt-w4a16-awq",
    "W4A8_AWQ": "modelopt-w4a8-awq",
}
_GPTQ_BITS = (2, 3, 4, 8)

# Every name that there is, besides those of ModelOpt with INLINE.
SCHEMES: tuple[str, ...] = (
    "auto-round-int4",
    "auto-round-int8",
    "awq-int4",
    "bitsandbytes-fp4",
    "bitsandbytes-int8",
    "bitsandbytes-nf4",
    "compressed-tensors-actorder",  # columns in another order than they are stored
    "compressed-tensors-fp8",
    "compressed-tensors-fp8-block",
    "compressed-tensors-fp8-w8a16",
    "compressed-tensors-int8",
    "compressed-tensors-mxfp4",
    "compressed-tensors-mxfp8",
    "compressed-tensors-nvfp4",
    "compressed-tensors-nvfp4-w4a16",
    "compressed-tensors-sparse",  # 2:4 sparsity
    "compressed-tensors-w4a16",
    "compressed-tensors-w4a8-fp8",
    "compressed-tensors-w8a16",
    "fbgemm-fp8",
    "fp8",
    "fp8-block",  # blocks of 128x128
    "gguf",
    *(f"gptq-int{bits}{kind}" for bits in _GPTQ_BITS for kind in ("", "-asymmetric", "-desc-act")),
    *_MODELOPT.values(),
    "mxfp4",
    "quark-fp8",
    "quark-int8",
    "quark-w4a16",
)


class _UnknownError(Exception):
    """What is said is not known here, or not all of it is said."""


def read_quantization(config: Json, hf_quant_config: Json | None) -> str | None:
    """The name of a checkpoint's quantization.

    Args:
        config: config.json.
        hf_quant_config: hf_quant_config.json, which ModelOpt writes beside it; None where there is none.

    Returns:
        Names of SCHEMES (one of ModelOpt's may end in INLINE) joined by `+`; a text that begins with UNKNOWN; or None where the
        weights are not quantized.
    """
    try:
        return _read(config, hf_quant_config)
    except _UnknownError as error:
        return f"{UNKNOWN}{error}"


def _read(config: Json, hf_quant_config: Json | None) -> str | None:
    inside = _description(config)
    if hf_quant_config is None:
        if inside is None:
            return None
        found = _scheme(inside)
        return "+".join(name + INLINE for name in found.split("+")) if _is_modelopt(inside) else found
    beside = _mapping(hf_quant_config, "quantization", "hf_quant_config.json")
    found = _modelopt(beside)
    # Where both describe a mixture, only the file beside it may list the layers.
    if inside is not None and not (_is_modelopt(inside) and _algorithm(inside) == _algorithm(beside)):
        raise _UnknownError(f"{_scheme(inside)} by config.json but {found} by hf_quant_config.json")
    return found


def _description(config: Json) -> Json | None:
    """The part of config.json that describes the quantization: a vision model keeps it in its language model's part."""
    parts = [config, *(config[key] for key in NESTED if isinstance(config.get(key), Mapping))]
    for part in parts:
        # compressed-tensors once wrote the second; mlx writes the third.
        for key in ("quantization_config", "compression_config", "quantization"):
            found = part.get(key)
            if isinstance(found, Mapping) and found:
                return found
            if found:
                raise _UnknownError(f"config.json's {key} is no mapping")
    return None


def _scheme(said: Json) -> str:
    method = said.get("quant_method")
    if not isinstance(method, str) or not method:
        if True in (said.get("load_in_4bit"), said.get("load_in_8bit")):
            return _bitsandbytes(said)
        raise _UnknownError("config.json does not name a quant_method")
    if _is_modelopt(said):
        return _modelopt(said)
    read = _READERS.get(method.lower().replace("_", "-"))
    if read is None:
        raise _UnknownError(_word(method))
    return read(said)


def _is_modelopt(said: Json) -> bool:
    method = said.get("quant_method")
    return isinstance(method, str) and method.lower().startswith("modelopt")


def _awq(said: Json) -> str:
    bits = said.get("bits", said.get("w_bit"))
    group = said.get("group_size", said.get("q_group_size"))
    _complete("awq", {"bits": bits, "group_size": group, "zero_point": said.get("zero_point")})
    version = said.get("version") or "gemm"
    if str(version).lower() != "gemm":
        raise _UnknownError(f"awq packed for {_word(version)}")
    if _figure(bits) != 4:
        raise _UnknownError(f"awq with {_word(bits)} bits")
    return "awq-int4"


def _gptq(said: Json) -> str:
    """`dynamic` may give groups of layers other values; a pattern that begins with `-:` leaves layers as they were."""
    dynamic = said.get("dynamic") or {}
    if not isinstance(dynamic, Mapping):
        raise _UnknownError("gptq with a `dynamic` that is no mapping")
    changed = [
        {**said, **other}
        for pattern, other in dynamic.items()
        if isinstance(other, Mapping) and not pattern.startswith("-:")
    ]
    return _joined(_gptq_layers(values) for values in [said, *changed])


def _gptq_layers(said: Json) -> str:
    _complete("gptq", {key: said.get(key) for key in ("bits", "group_size", "desc_act", "sym")})
    packed = said.get("checkpoint_format") or "gptq"
    if packed not in ("gptq", "gptq_v2"):
        raise _UnknownError(f"gptq packed for {_word(packed)}")
    bits = _figure(said["bits"])
    if bits not in _GPTQ_BITS:
        raise _UnknownError(f"gptq with {_word(said['bits'])} bits")
    name = f"gptq-int{bits}"
    if said["sym"] is not True:
        return f"{name}-asymmetric"
    # With one group for each column their order says nothing.
    return f"{name}-desc-act" if said["desc_act"] and said["group_size"] != -1 else name


def _auto_round(said: Json) -> str:
    _complete("auto-round", {key: said.get(key) for key in ("bits", "group_size")})
    packed = said.get("packing_format") or "auto_round:auto_gptq"
    whole = said.get("data_type", "int") == "int" and said.get("sym", True) is True
    if not whole or packed not in ("auto_round:auto_gptq", "auto_round:auto_awq"):
        raise _UnknownError(
            f"auto-round packed for {_word(packed)}, as {_word(said.get('data_type', 'int'))}"
        )
    layers = said.get("extra_config") or {}
    layers = layers.values() if isinstance(layers, Mapping) else ()
    others = [_figure(layer.get("bits", said["bits"])) for layer in layers if isinstance(layer, Mapping)]
    kinds = {_figure(said["bits"]), *others} - {16}  # 16: left as it was
    if not kinds or not kinds <= {4, 8}:
        raise _UnknownError(f"auto-round with {', '.join(sorted(map(_word, kinds)))} bits")
    return _joined(f"auto-round-int{bits}" for bits in kinds)


def _fp8(said: Json) -> str:
    scheme = said.get("activation_scheme")
    _complete("fp8", {"activation_scheme": scheme})
    if scheme not in ("static", "dynamic"):
        raise _UnknownError(f"fp8 with {_word(scheme)} activations")
    for key, usual in (("fmt", "e4m3"), ("store_dtype", None)):
        if said.get(key) not in (None, usual):
            raise _UnknownError(f"fp8 with {key} {_word(said[key])}")
    block = said.get("weight_block_size")
    if block is None:
        return "fp8"
    if block != [128, 128] or scheme != "dynamic":
        raise _UnknownError(f"fp8 in blocks of {_word(block)}, with {scheme} activations")
    return "fp8-block"


def _bitsandbytes(said: Json) -> str:
    if said.get("load_in_8bit") is True:
        return "bitsandbytes-int8"
    kind = said.get("bnb_4bit_quant_type")
    if said.get("load_in_4bit") is not True or kind not in ("nf4", "fp4"):
        raise _UnknownError("bitsandbytes that does not say how many bits, or which kind of 4")
    return f"bitsandbytes-{kind}"


def _quark(said: Json) -> str:
    layers = said.get("global_quant_config")
    weight = layers.get("weight") if isinstance(layers, Mapping) else None
    if not isinstance(layers, Mapping) or not isinstance(weight, Mapping):
        raise _UnknownError("quark without one kind of weights in global_quant_config")
    if said.get("layer_quant_config") or said.get("layer_type_quant_config"):
        raise _UnknownError("quark with a layer_quant_config")
    inputs = layers.get("input_tensors")
    kinds = (
        _figure(weight.get("dtype")),
        _figure(inputs.get("dtype")) if isinstance(inputs, Mapping) else None,
    )
    names = {
        ("fp8_e4m3", "fp8_e4m3"): "quark-fp8",
        ("int8", "int8"): "quark-int8",
        ("int4", None): "quark-w4a16",
        ("uint4", None): "quark-w4a16",
    }
    plain = weight.get("qscheme") in ("per_tensor", "per_channel") or inputs is None
    if kinds not in names or not plain:
        raise _UnknownError(f"quark with weights in {_word(kinds[0])}, inputs in {_word(kinds[1])}")
    return names[kinds]


def _algorithm(said: Json) -> str:
    return str(said.get("quant_algo")).upper()


def _modelopt(said: Json) -> str:
    _complete("modelopt", {"quant_algo": said.get("quant_algo")})
    name = _algorithm(said)
    if name == "MIXED_PRECISION":
        layers = said.get("quantized_layers")
        if not isinstance(layers, Mapping) or not layers:
            raise _UnknownError("modelopt MIXED_PRECISION without quantized_layers")
        return _joined(_modelopt_layer(layer) for layer in layers.values())
    if name not in _MODELOPT:
        raise _UnknownError(f"modelopt {_word(name)}")
    return _MODELOPT[name]


def _modelopt_layer(layer: Any) -> str:
    algorithm = _algorithm(layer) if isinstance(layer, Mapping) else "nothing"
    if algorithm not in _MODELOPT:
        raise _UnknownError(f"modelopt MIXED_PRECISION with {_word(algorithm)}")
    return _MODELOPT[algorithm]


def _compressed_tensors(said: Json) -> str:
    packed = said.get("format")
    sparsity = said.get("sparsity_config")
    if packed in ("marlin-24", "sparse-24-bitmask") or (
        isinstance(sparsity, Mapping) and sparsity.get("targets")
    ):
        return "compressed-tensors-sparse"
    groups = _mapping(said, "config_groups", "compressed-tensors")
    names = []
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise _UnknownError("compressed-tensors with a group that is no mapping")
        if not _is_attention(group):
            names.append(_group(group, group.get("format") or packed))
    if not names:
        raise _UnknownError("compressed-tensors without a group of weights")
    return _joined(names)


def _is_attention(group: Json) -> bool:
    """A group that quantizes an attention's cache, not weights."""
    targets = group.get("targets")
    return isinstance(targets, list) and len(targets) == 1 and str(targets[0]).endswith("Attention")


def _group(group: Json, packed: Any) -> str:
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping) or not (inputs is None or isinstance(inputs, Mapping)):
        raise _UnknownError("compressed-tensors with a group without weights")
    _complete("compressed-tensors", {key: weights.get(key) for key in ("num_bits", "type")})
    if weights.get("actorder") in (True, "group", "dynamic"):
        return "compressed-tensors-actorder"
    kind = (_figure(weights["type"]), _figure(weights["num_bits"]), _strategy(weights))
    entered = None if inputs is None else (_figure(inputs.get("type")), _figure(inputs.get("num_bits")))
    packed = _figure(packed)
    name = None
    if group.get("output_activations") is None and not weights.get("dynamic"):
        size = _figure(weights.get("group_size"))
        name = _floats(kind, entered, size, packed) if kind[0] == "float" else _ints(kind, entered, packed)
    if name is None:
        shown = f"{_word(weights['num_bits'])}-bit {_word(weights['type'])}"
        used = "16-bit" if entered is None else f"{_word(entered[1])}-bit {_word(entered[0])}"
        raise _UnknownError(
            f"compressed-tensors {_word(packed)}, {shown} weights by {_word(kind[2])}, {used} inputs"
        )
    return f"compressed-tensors-{name}"


def _strategy(weights: Json) -> Any:
    """What one scale is shared by; where it is not said, the group's size says it, as in compressed-tensors."""
    size = weights.get("group_size")
    said = _figure(weights.get("strategy"))
    if said is None and isinstance(size, int):
        return "group" if size > 0 else "channel"
    return said or "tensor"


_Kind = tuple[Any, Any, Any]
_Entered = Any  # (type, bits), or None


def _floats(kind: _Kind, entered: _Entered, size: Any, packed: Any) -> str | None:
    _, bits, strategy = kind
    if (bits, strategy, size) == (4, "tensor_group", 16):
        return {None: "nvfp4-w4a16", ("float", 4): "nvfp4"}.get(entered)
    if (bits, strategy, size) == (4, "group", 32):
        return {None: "mxfp4", ("float", 4): "mxfp4"}.get(entered)
    if (bits, strategy, size, packed) == (8, "group", 32, "mxfp8-quantized"):
        return {("float", 8): "mxfp8"}.get(entered)
    if bits == 8 and strategy in {"tensor", "channel", "block"} and packed in _UNPACKED:
        by = "fp8-block" if strategy == "block" else "fp8"
        return {None: "fp8-w8a16", ("float", 8): by}.get(entered)
    return None


def _ints(kind: _Kind, entered: _Entered, packed: Any) -> str | None:
    type_, bits, strategy = kind
    if type_ != "int":
        return None
    if packed == "pack-quantized" and entered is None and strategy in {"group", "channel"}:
        return {4: "w4a16", 8: "w8a16"}.get(bits)
    if entered == ("float", 8) and (bits, strategy) == (4, "group"):
        return "w4a8-fp8"
    if entered == ("int", 8) and bits == 8 and strategy in {"tensor", "channel"} and packed in _UNPACKED:
        return "int8"
    return None


_UNPACKED = frozenset(["naive-quantized", "int-quantized", "float-quantized"])
_READERS: Mapping[str, Callable[[Json], str]] = {
    "auto-round": _auto_round,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm-fp8": lambda _: "fbgemm-fp8",
    "fp8": _fp8,
    "gguf": lambda _: "gguf",
    "gptq": _gptq,
    "mxfp4": lambda _: "mxfp4",
    "quark": _quark,
}


def _joined(names: Iterable[str]) -> str:
    return "+".join(sorted(set(names)))


def _mapping(said: Json, key: str, where: str) -> Json:
    found = said.get(key)
    if not isinstance(found, Mapping) or not found:
        raise _UnknownError(f"{where} without {key}")
    return found


def _complete(what: str, values: Json) -> None:
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise _UnknownError(f"{what} without {', '.join(missing)}")


def _figure(value: Any) -> Any:
    """A whole number or text as it is; anything else as text, so that it can be looked up."""
    return value if value is None or type(value) in (int, str) else _word(value)


def _word(value: Any) -> str:
    """Something that a checkpoint says, as a message may show it: short, on one line, of plain characters."""
    return re.sub(r"[^A-Za-z0-9_.:+-]+", " ", str(value)).strip()[:40] or "nothing"
