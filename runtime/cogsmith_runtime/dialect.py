"""How each engine spells what is not common to all OpenAI servers. Both ignore fields that they do not know, with 200."""

import re
from typing import Any

from .constraint import Constraint


def constrained(api: str, constraint: Constraint) -> dict[str, Any]:
    """The fields of a request's body that enforce a constraint.

    api: `vllm` or `tensorrt-llm`.
    """
    kind, value = constraint.kind, constraint.value
    if api == "vllm":
        if kind == "json" and value is None:
            return {"structured_outputs": {"json_object": True}}
        return {"structured_outputs": {kind: value}}
    # TensorRT-LLM takes the bare schema: with OpenAI's {name, schema} around it nothing is enforced. It has no choice.
    if kind == "json":
        return {
            "response_format": {"type": "json_object"} if value is None else {"type": "json", "schema": value}
        }
    return {"response_format": {"type": "regex", "regex": value if kind == "regex" else _either(value)}}


def _either(texts: list[str]) -> str:
    """A regular expression that matches exactly these texts."""
    return "(" + "|".join(_escaped(text) for text in texts) + ")"


def _escaped(text: str) -> str:
    # Not re.escape, which also escapes spaces and more, that some grammar compilers do not take.
    return re.sub(r"([\\^$.|?*+()\[\]{}/-])", r"\\\1", text).replace("\n", "\\n").replace("\t", "\\t")
