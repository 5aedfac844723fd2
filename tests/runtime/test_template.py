"""A model with a prompt template of its own, under Cog's real server."""

from typing import Any

from .conftest import Start


async def test_a_template_is_filled_once_and_the_answer_may_fill_the_context(start: Start) -> None:
    prompt: dict[str, Any] = {"template": "{{ prompt }} more", "system": None, "special_tokens": []}
    server = await start("--delay", "0.01", prompt=prompt, sampling={})
    echoed = await server.predict(prompt="echo {{ prompt }}")
    assert "".join(echoed["output"]) == "{{ prompt }} more"
    full = await server.predict(prompt="go")
    assert full["metrics"]["input_token_count"] == 2
    assert full["metrics"]["output_token_count"] == 62
    too_long = await server.predict(prompt="word " * 64)
    assert "E1004 PromptTooLong: the prompt has 65 tokens" in too_long["error"]
