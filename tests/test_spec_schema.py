"""The JSON Schema of the spec and the README's table: current, complete, and of one mind with the reader of specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cogsmith.spec_schema import fields, schema_text, table

ROOT = Path(__file__).parent.parent
MODELS = sorted((ROOT / "models").glob("*.yaml"))
SCHEMA = json.loads(schema_text())


def test_what_is_generated_is_current() -> None:
    """Otherwise: make schema."""
    assert (ROOT / "models/spec.schema.json").read_text() == schema_text()
    assert table() in (ROOT / "README.md").read_text()


def test_every_field_has_a_description_an_example_and_a_default() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    parts = {"": SCHEMA, **SCHEMA["$defs"]}
    for part, content in parts.items():
        for name, field in content["properties"].items():
            where = f"{part}.{name}"
            assert field.get("description"), where
            assert field.get("examples"), where
            known = name in content.get("required", ()) or "default" in field
            assert known or "(default: " in field["description"], where


def test_every_row_of_the_table_is_whole() -> None:
    for name, default, text in fields():
        assert name and default and text, name


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_examples_follow_it_and_name_it(path: Path) -> None:
    assert path.read_text().splitlines()[0] == "# yaml-language-server: $schema=spec.schema.json"
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


GOOD: dict[str, Any] = {"model": "a", "backend": "vllm", "hardware": "cpu"}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"backend": ["vllm", "tensorrt-llm"]},
        {"prompt": None, "context": None, "inputs": {"prompt": None}},
        {"tests": [{"input": {"prompt": "a"}, "contains": "b"}, {"input": {}, "contains": ["b"]}]},
        {"output": {"type": "json", "schema": {"type": "object"}}},
    ],
    ids=str,
)
def test_what_a_spec_may_hold(more: dict[str, Any]) -> None:
    jsonschema.validate({**GOOD, **more}, SCHEMA)


@pytest.mark.parametrize(
    "more",
    [
        {"engin": {}},
        {"backend": "tgi"},
        {"backend": []},
        {"context": "4096"},
        {"concurrency": 0},
        {"stream": "no"},
        {"output": {"type": "yaml"}},
        {"prompt": {"templat": "a"}},
        {"tests": [{"contains": "b"}]},
        {"inputs": {"a": {"type": "text"}}},
        {"reasoning": {"show": True}},
    ],
    ids=str,
)
def test_what_an_editor_marks(more: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**GOOD, **more}, SCHEMA)
