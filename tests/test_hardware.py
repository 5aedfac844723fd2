"""Names of hardware: one spelling out, several in, and no figure without a source."""

from __future__ import annotations

import pytest

from cogsmith.hardware import GPUS, HardwareError, parse_hardware


@pytest.mark.parametrize(
    ("text", "name", "sku"),
    [
        ("cpu", "cpu", "cpu"),
        ("T4", "t4", "gpu-t4"),
        ("l4", "l4", None),
        ("l40s:2", "l40s:2", "gpu-l40s-2x"),
        ("h100:1", "h100", "gpu-h100"),
        ("gpu-t4", "t4", "gpu-t4"),
        ("gpu-l40s-4x", "l40s:4", "gpu-l40s-4x"),
        ("gpu-2x-l40s", "l40s:2", "gpu-l40s-2x"),
        ("gpu-a100-large", "a100-80", "gpu-a100-large"),
        ("gpu-8x-a100-large", "a100-80:8", "gpu-a100-large-8x"),
        ("t4:2", "t4:2", None),
        ("h200", "h200", "gpu-h200"),
        ("b200:8", "b200:8", None),
        ("RTX-4090", "rtx-4090", None),
    ],
)
def test_names(text: str, name: str, sku: str | None) -> None:
    machine = parse_hardware(text)
    assert (machine.name, machine.sku) == (name, sku)
    assert parse_hardware(machine.name) == machine


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("l40ss", "did you mean l40s?"),
        ("a100", "did you mean a100-40 or a100-80?"),
        ("h100:3", "write h100, h100:2, h100:4 or h100:8"),
        ("h100:02", "write h100, h100:2, h100:4 or h100:8"),
        ("h100:", "write h100, h100:2, h100:4 or h100:8"),
        ("cpu:2", "write cpu"),
        ("gpu-t4-2x", "did you mean gpu-t4?"),
        ("gpu-9x-l40s", "did you mean"),
        ("abacus", "known: cpu, t4, l4, a10g, l40s, a100-40, a100-80, h100, h200, b200, rtx-4090, rtx-5090"),
        ("rtx", "did you mean rtx-4090 or rtx-5090?"),
        ("", "known: cpu"),
        ("h100\n:2", "did you mean h100?"),
    ],
)
def test_mistakes(text: str, hint: str) -> None:
    with pytest.raises(HardwareError) as caught:
        parse_hardware(text)
    assert hint in caught.value.hint
    assert "\n" not in caught.value.message


def test_every_figure_has_a_source() -> None:
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    for gpu in GPUS:
        assert (gpu.memory_gib is None) == (gpu.memory_source is None)
        assert gpu.capability_source
        assert (gpu.replicate is None) == (not gpu.replicate_counts)
