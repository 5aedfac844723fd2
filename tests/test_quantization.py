"""What a checkpoint says of its quantization, in the shapes that real ones have: recognised whole, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cogsmith.quantization import INLINE, SCHEMES, UNKNOWN, read_quantization

Json = dict[str, Any]

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
AUTO_ROUND = {
    "quant_method": "auto-round",
    "packing_format": "auto_round:auto_gptq",
    "bits": 4,
    "group_size": 128,
}
QUARK_FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}


def weights(bits: int, kind: str, strategy: str, **more: Any) -> Json:
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


def tensors(packed: str, weights: Json, inputs: Json | None = None, **more: Any) -> Json:
    """compressed-tensors with one group of layers."""
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": inputs,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": packed,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        **more,
    }


TOKEN = {"dynamic": True, "strategy": "token", "symmetric": True}
FLOAT8 = {"num_bits": 8, "type": "float", **TOKEN}
INT8 = {"num_bits": 8, "type": "int", **TOKEN}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
DENSE = {"format": "dense", "ignore": [], "sparsity_structure": "unstructured", "targets": []}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (AWQ, "awq-int4"),
        ({"quant_method": "AWQ", "w_bit": 4, "q_group_size": 64, "zero_point": True, "version": "GEMM"}, "awq-int4"),
        (GPTQ, "gptq-int4"),
        ({**GPTQ, "bits": 8, "checkpoint_format": "gptq_v2"}, "gptq-int8"),
        ({**GPTQ, "bits": 3}, "gptq-int3"),
        ({**GPTQ, "sym": False}, "gptq-int4-asymmetric"),
        ({**GPTQ, "desc_act": True}, "gptq-int4-desc-act"),
        ({**GPTQ, "desc_act": True, "group_size": -1}, "gptq-int4"),
        ({**GPTQ, "dynamic": {"-:.*mtp.*": {}, "+:.*down_proj": {"bits": 8}}}, "gptq-int4+gptq-int8"),
        (FP8, "fp8"),
        ({**FP8, "activation_scheme": "static"}, "fp8"),
        ({**FP8, "weight_block_size": [128, 128], "scale_fmt": "ue8m0"}, "fp8-block"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fbgemm-fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]}, "mxfp4"),
        ({"quant_method": "gguf"}, "gguf"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bitsandbytes-nf4"),
        ({"load_in_8bit": True, "load_in_4bit": False, "bnb_4bit_quant_type": "fp4"}, "bitsandbytes-int8"),
        (AUTO_ROUND, "auto-round-int4"),
        ({**AUTO_ROUND, "extra_config": {"lm_head": {"bits": 16}, "a": {"bits": 8}}}, "auto-round-int4+auto-round-int8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": QUARK_FP8, "input_tensors": QUARK_FP8}}, "quark-fp8"),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint4", "qscheme": "per_group"}}},
            "quark-w4a16",
        ),
        (tensors("float-quantized", weights(8, "float", "channel"), FLOAT8), "compressed-tensors-fp8"),
        (tensors("float-quantized", weights(8, "float", "tensor"), FLOAT8, sparsity_config=DENSE), "compressed-tensors-fp8"),
        (tensors("naive-quantized", weights(8, "float", "tensor")), "compressed-tensors-fp8-w8a16"),
        (
            tensors("float-quantized", weights(8, "float", "block", block_structure=[128, 128]), FLOAT8),
            "compressed-tensors-fp8-block",
        ),
        (tensors("int-quantized", weights(8, "int", "channel"), INT8), "compressed-tensors-int8"),
        (tensors("pack-quantized", weights(4, "int", "group", group_size=128)), "compressed-tensors-w4a16"),
        (tensors("pack-quantized", {"num_bits": 8, "type": "int", "group_size": -1}), "compressed-tensors-w8a16"),
        (tensors("pack-quantized", weights(4, "int", "group", group_size=128), FLOAT8), "compressed-tensors-w4a8-fp8"),
        (tensors("pack-quantized", weights(4, "int", "group", actorder="group")), "compressed-tensors-actorder"),
        (tensors("pack-quantized", weights(4, "int", "group", actorder="static")), "compressed-tensors-w4a16"),
        (tensors("nvfp4-pack-quantized", NVFP4, {**NVFP4, "dynamic": "local"}), "compressed-tensors-nvfp4"),
        (tensors("nvfp4-pack-quantized", NVFP4), "compressed-tensors-nvfp4-w4a16"),
        (tensors("mxfp4-pack-quantized", weights(4, "float", "group", group_size=32)), "compressed-tensors-mxfp4"),
        (tensors("marlin-24", weights(4, "int", "group", group_size=128)), "compressed-tensors-sparse"),
        (
            tensors("float-quantized", weights(8, "float", "channel"), FLOAT8, sparsity_config={"targets": ["Linear"]}),
            "compressed-tensors-sparse",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "mixed-precision",
                "config_groups": {
                    "group_0": {"format": "nvfp4-pack-quantized", "weights": NVFP4, "input_activations": NVFP4},
                    "group_1": {"format": "float-quantized", "weights": weights(8, "float", "channel"), "input_activations": FLOAT8},
                    "group_2": {"targets": ["LlamaAttention"], "weights": None},
                },
            },
            "compressed-tensors-fp8+compressed-tensors-nvfp4",
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "modelopt-fp8-inline"),
        ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, "modelopt-nvfp4-inline"),
    ],
)  # fmt: skip
def test_recognised(said: Json, name: str) -> None:
    assert read_quantization({"quantization_config": said}, None) == name
    assert {part.removesuffix(INLINE) for part in name.split("+")} <= set(SCHEMES)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"quant_method": "hqq"}, "hqq"),
        ({"quant_method": "torchao\n\x1b[31m" + "x" * 99}, "torchao"),
        ({"bits": 4}, "config.json does not name a quant_method"),
        ({"quant_method": "awq"}, "awq without bits, group_size, zero_point"),
        ({**AWQ, "version": "gemv"}, "awq packed for gemv"),
        ({**AWQ, "bits": 4.0}, "awq with 4.0 bits"),
        ({**GPTQ, "sym": None}, "gptq without sym"),
        ({**GPTQ, "bits": 5}, "gptq with 5 bits"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "gptq packed for marlin"),
        ({"quant_method": "fp8"}, "fp8 without activation_scheme"),
        ({**FP8, "weight_block_size": [32, 32]}, "fp8 in blocks of 32 32"),
        ({**FP8, "store_dtype": "mxfp4"}, "fp8 with store_dtype mxfp4"),
        ({**FP8, "fmt": "e5m2"}, "fp8 with fmt e5m2"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes that does not say how many bits"),
        ({**AUTO_ROUND, "data_type": "mx_fp"}, "auto-round packed for auto_round:auto_gptq, as mx_fp"),
        ({**AUTO_ROUND, "bits": 2}, "auto-round with 2 bits"),
        ({"quant_method": "quark"}, "quark without one kind of weights"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "without config_groups"),
        (tensors("pack-quantized", {"num_bits": 4}), "compressed-tensors without type"),
        (
            tensors("pack-quantized", weights(3, "int", "group", group_size=128)),
            "compressed-tensors pack-quantized, 3-bit int weights by group, 16-bit inputs",
        ),
        (
            tensors("int-quantized", weights(8, "int", "channel"), {"num_bits": 4, "type": "int"}),
            "compressed-tensors int-quantized, 8-bit int weights by channel, 4-bit int inputs",
        ),
        ({"quant_method": "modelopt", "quant_algo": None}, "modelopt without quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "INT4_AWQ"}, "modelopt INT4_AWQ"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "without quantized_layers"),
    ],
)  # fmt: skip
def test_not_known_or_not_whole(said: Json, text: str) -> None:
    found = read_quantization({"quantization_config": said}, None)
    assert found is not None
    assert found.startswith(UNKNOWN)
    assert text in found
    assert found.isprintable()
    assert len(found) < 160


def test_where_it_is_said() -> None:
    assert read_quantization({}, None) is None
    assert read_quantization({"quantization_config": None}, None) is None
    assert read_quantization({"text_config": {"quantization_config": AWQ}}, None) == "awq-int4"
    assert read_quantization({"compression_config": AWQ}, None) == "awq-int4"
    mlx = {"quantization": {"bits": 4, "group_size": 64}}
    assert read_quantization(mlx, None) == "unknown: config.json does not name a quant_method"
    assert read_quantization({"quantization_config": "awq"}, None) == (
        "unknown: config.json's quantization_config is no mapping"
    )


MIXED = {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4", "group_size": 16}}


@pytest.mark.parametrize(
    ("beside", "inside", "name"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, None, "modelopt-fp8"),
        ({"quant_algo": "fp8_pb_wo"}, None, "modelopt-fp8-block"),
        ({"quant_algo": "W4A16_AWQ", "group_size": 128, "has_zero_point": False}, None, "modelopt-w4a16-awq"),
        ({"quant_algo": "W4A8_AWQ"}, None, "modelopt-w4a8-awq"),
        ({"quant_algo": "NVFP4"}, {"quant_method": "modelopt", "quant_algo": "nvfp4"}, "modelopt-nvfp4"),
        ({"quant_algo": "MIXED_PRECISION", "quantized_layers": MIXED}, None, "modelopt-fp8+modelopt-nvfp4"),
        (
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": MIXED},
            {"quant_method": "modelopt_mixed", "quant_algo": "MIXED_PRECISION"},
            "modelopt-fp8+modelopt-nvfp4",
        ),
        ({"quant_algo": "FP8"}, FP8, "unknown: fp8 by config.json but modelopt-fp8 by hf_quant_config.json"),
        (
            {"quant_algo": "FP8"},
            {"quant_method": "modelopt", "quant_algo": "NVFP4"},
            "unknown: modelopt-nvfp4 by config.json but modelopt-fp8 by hf_quant_config.json",
        ),
        ({"kv_cache_quant_algo": "FP8"}, None, "unknown: modelopt without quant_algo"),
        (
            {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "W6A6"}}},
            None,
            "unknown: modelopt MIXED_PRECISION with W6A6",
        ),
        ({}, None, "unknown: hf_quant_config.json without quantization"),
    ],
)
def test_the_file_of_modelopt(beside: Json, inside: Json | None, name: str) -> None:
    config = {"quantization_config": inside}
    assert read_quantization(config, {"producer": {"name": "modelopt"}, "quantization": beside}) == name


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 16)
    | st.floats()
    | st.sampled_from(["int", "float", "group", "", "x"]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "bits", "num_bits"]), inner),
    max_leaves=4,
)


@given(st.data())
def test_any_value_of_any_key_is_answered(data: st.DataObject) -> None:
    """One value of a good description becomes something else, at any depth."""
    good = [AWQ, GPTQ, FP8, AUTO_ROUND, tensors("pack-quantized", weights(4, "int", "group"), FLOAT8)]
    said = data.draw(st.sampled_from(good))
    config = {"quantization_config": _changed(data, said)}
    found = read_quantization(config, data.draw(st.none() | st.just({"quantization": said})))
    assert found is None or found.startswith(UNKNOWN) or set(found.split("+")) <= set(SCHEMES)


def _changed(data: st.DataObject, value: Any) -> Any:
    if not isinstance(value, dict) or not value or data.draw(st.integers(0, 3)) == 0:
        return data.draw(VALUES)
    key = data.draw(st.sampled_from(sorted(value)))
    return {**value, key: _changed(data, value[key])}
