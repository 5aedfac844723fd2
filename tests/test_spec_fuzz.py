"""Mutated good specs: each is refused by lines with a place and a hint, or taken the whole way to a rendered folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import write_checkpoint
from cogsmith.checkpoint import read_checkpoint
from cogsmith.errors import MistakesError, UserError
from cogsmith.lock import resolve
from cogsmith.plan import plans
from cogsmith.render import render
from cogsmith.spec import load_spec

HERE = Path(__file__).parent
TEXTS = [
    path.read_text("utf-8")
    for folder in (HERE / "specs" / "good", HERE.parent / "models")
    for path in sorted(folder.glob("*.yaml"))
]
WORDS = [
    *(
        "yes",
        "~",
        "[",
        "]",
        "{",
        "}",
        ":",
        "- ",
        "\n",
        "  ",
        "\t",
        '"',
        "'",
        "&a",
        "*a",
        "!!int",
        "|",
        ">",
        "#",
    ),
    *(
        "0x1",
        "1e9",
        "-1",
        "null",
        "true",
        "{{",
        "{%",
        "\\",
        "\x00",
        "é",
        "😀",
        "---",
        "...",
        "?",
        "%",
        "1.5",
        "<<",
    ),
    *("9" * 50, "hf_" + "a" * 30, "\u2028", "vllm", "tensorrt-llm", "cpu", "t4", "h100:8", "json", "regex"),
    *("choices", "schema", "prompt", "messages"),
]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5000),
    st.floats(-3, 3),
    st.sampled_from(WORDS),
    st.text(max_size=8),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), inner, max_size=3),
    ),
    max_leaves=5,
)


@st.composite
def edited_text(draw: st.DrawFn) -> str:
    """A good file with one to four slips of a hand in it."""
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        key, colon, _ = line.partition(":")
        column = draw(st.integers(0, len(line)))
        word = draw(st.sampled_from(WORDS))
        lines[at : at + 1] = draw(
            st.sampled_from(
                [
                    [],
                    [line, draw(st.sampled_from(lines))],
                    [f"{key}{colon} {word}"],
                    [line[:column] + word + line[column:]],
                    [" " * draw(st.integers(0, 4)) + line.lstrip()],
                    [line[:column]],
                ]
            )
        )
        text = "\n".join(lines) or "x"
    return text


@st.composite
def edited_value(draw: st.DrawFn) -> str:
    """A good file with one value, somewhere in it, replaced by any other, or a key added."""
    data = yaml.safe_load(draw(st.sampled_from(TEXTS)))
    place: Any = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys)) if keys else None
        inner = place[key] if key is not None else None
        if key is not None and isinstance(inner, dict | list) and inner and draw(st.booleans()):
            place = inner
            continue
        if isinstance(place, dict) and (key is None or draw(st.integers(0, 4)) == 0):
            key = draw(st.sampled_from(WORDS))
        if key is not None:
            place[key] = draw(VALUES)
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory):
    """A function that takes a spec's text as far as it goes; and how often it was refused and rendered."""
    root = tmp_path_factory.mktemp("fuzz")
    (root / "models").mkdir()
    checkpoint = read_checkpoint(write_checkpoint(root / "weights", max_position_embeddings=131072))
    path = root / "models" / "x.yaml"
    counts = {"refused": 0, "rendered": 0}

    def take(text: str) -> None:
        path.write_bytes(text.encode("utf-8", "replace"))
        try:
            spec = load_spec(path)
            files = [render(plan) for plan in plans(spec, resolve(spec, checkpoint, None))]
            assert all("predict.py" in rendered for rendered in files)
            counts["rendered"] += 1
        except MistakesError as error:
            counts["refused"] += 1
            for line in error.lines():
                assert re.fullmatch(rf"{re.escape(str(path))}:\d+: [^\n]+\. Hint: [^\n]+", line), text
        except UserError as error:
            counts["refused"] += 1
            assert error.message
            assert error.hint

    yield take
    assert counts["refused"] > 100
    assert counts["rendered"] > 100


@pytest.mark.timeout(600)
@settings(
    max_examples=2000, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.one_of(edited_text(), edited_value()))
def test_mutated_specs_are_rendered_or_refused(models, text: str) -> None:
    models(text)
