"""A checkpoint's chat template: whether it compiles, and whether it takes a system message.

A template comes with a download, so it is a stranger's program. It runs sandboxed, in a child process of its own with
limits on time and memory: this file run as a program, with JSON on stdin and on stdout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

SECONDS = 10
MEMORY = 1 << 30
MAX_TEXT = 1 << 20

_SYSTEM_MARK = "Answer as the ship's parrot."


@dataclass(frozen=True)
class Trial:
    """What came of trying a template.

    Attributes:
        error: why it cannot be used for a plain conversation; None where it can.
        system_role: whether a system message reaches the prompt; None where the template cannot be used.
        refusal: what the template says where it refuses a system message.
    """

    error: str | None
    system_role: bool | None
    refusal: str | None = None


def try_template(text: str, bos_token: str = "", eos_token: str = "") -> Trial:
    """Try a template on two sample conversations, in a child process that may take `SECONDS` and `MEMORY` bytes."""
    if len(text) > MAX_TEXT:
        return Trial(f"is longer than {MAX_TEXT >> 10} KiB", None)
    request = json.dumps({"template": text, "bos_token": bos_token, "eos_token": eos_token})
    try:
        child = subprocess.run(
            [sys.executable, "-I", __file__],
            input=request.encode("utf-8", "surrogatepass"),
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ},
        )
    except subprocess.TimeoutExpired:
        return Trial(f"is not done after {SECONDS} seconds", None)
    if child.returncode < 0:  # a signal: the child reached a limit, and could not say so itself
        return Trial("takes more time or memory than a template may", None)
    if child.returncode > 0:
        raise RuntimeError(child.stderr.decode(errors="replace"))
    return Trial(**json.loads(child.stdout))


def _limit() -> None:
    import contextlib
    import resource

    for kind, most in (
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):  # macOS knows no limit on memory
            resource.setrlimit(kind, (most, most))


def _environment() -> Any:
    """Jinja as transformers sets it up for chat templates."""
    import datetime

    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the answer for training; its body is plain text here."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as a set

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().astimezone().strftime(form)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment


def _try(request: dict[str, str]) -> dict[str, Any]:
    from jinja2 import TemplateSyntaxError

    try:
        template = _environment().from_string(request["template"])
    except TemplateSyntaxError as error:
        return {
            "error": f"does not compile: line {error.lineno}: {_short(error.message)}",
            "system_role": None,
        }
    except Exception as error:  # a stranger's program may fail in any way
        return {"error": f"does not compile: {_short(error)}", "system_role": None}

    def render(*messages: dict[str, str]) -> str:
        tokens = {"bos_token": request["bos_token"], "eos_token": request["eos_token"]}
        return str(
            template.render(
                messages=list(messages), add_generation_prompt=True, tools=None, documents=None, **tokens
            )
        )

    user = {"role": "user", "content": "Which way is north?"}
    try:
        plain = render(user)
    except Exception as error:
        return {"error": f"fails on a plain user message: {_short(error)}", "system_role": None}
    if user["content"] not in plain:
        return {"error": "leaves the user's message out of the prompt", "system_role": None}
    try:
        prompt = render({"role": "system", "content": _SYSTEM_MARK}, user)
    except Exception as error:
        return {"error": None, "system_role": False, "refusal": _short(error)}
    return {"error": None, "system_role": _SYSTEM_MARK in prompt}


def _short(error: object) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return words.rstrip(".")[:200]


if __name__ == "__main__":
    _limit()
    json.dump(_try(json.loads(sys.stdin.buffer.read())), sys.stdout)
