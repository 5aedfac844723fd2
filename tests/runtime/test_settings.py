"""settings.json: what is read is what was written, and a wrong file names its mistake."""

import json
from pathlib import Path
from typing import Any

import pytest

from cogsmith_runtime.settings import Settings

from .cogserver import settings


def test_written_and_read_again_is_the_same(tmp_path: Path) -> None:
    content = settings(sampling={"max_tokens": 5, "temperature": 0.5, "seed": None}, stop=["\n", "é"])
    first = Settings.parse(json.dumps(content))
    text = first.to_json()
    (tmp_path / "settings.json").write_text(text, encoding="utf-8")
    assert Settings.load(tmp_path / "settings.json") == first
    assert json.loads(text) == content
    assert text.endswith("}\n")
    assert list(json.loads(text)) == sorted(content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contxt": 1}, "contxt: unknown key"),
        ({"context": None}, "context: must be of type int, is None"),
        ({"concurrency": True}, "concurrency: must be of type int, is True"),
        ({"inputs": ["a", 1]}, r"inputs\[1\]: must be of type str, is 1"),
        ({"sampling": {"top_p": "1"}}, "sampling.top_p: must be a number or null, is '1'"),
        ({"prompt": {"sytem": None}}, "prompt.sytem: unknown key"),
        ({"output": {"kind": "yaml"}}, "output.kind: must be one of text, json, regex, choice, is 'yaml'"),
        ({"output": {"stream": 1}}, "output.stream: must be true or false, is 1"),
        ({"stop_token_ids": ["a"]}, r"stop_token_ids\[0\]: must be of type int, is 'a'"),
        ({"engine": {"api": "openai"}}, "engine.api: must be one of vllm, tensorrt-llm, is 'openai'"),
        ({"engine": {"environment": {"A": 1}}}, "engine.environment.A: must be of type str, is 1"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(settings(**change)))
    with pytest.raises(ValueError, match=f"settings.json: {message}"):
        Settings.load(path)
