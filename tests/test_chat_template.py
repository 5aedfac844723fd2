"""Chat templates as programs of a stranger: real ones work, hostile ones only fail."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from checkpoints import CHATML
from cogsmith.chat_template import try_template


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(10**9) %}{% for b in range(10**9) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10**11 }}",
        "{{ 9**9**9**9 }}",
        "{% set x = [1] %}{% for i in range(99999) %}{% set x = x + x %}{{ x|join }}{% endfor %}" * 3,
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.system('touch /tmp/cogsmith-was-here') }}",
        "{% include '/etc/passwd' %}",
        "(" * 100_000,
        "{{ " + "(" * 50_000 + " }}",
        "\x00",
        "x" * (2 << 20),
    ],
    ids=range(12),
)
def test_hostile_template_only_fails(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cogsmith.chat_template.SECONDS", 2)
    start = time.perf_counter()
    trial = try_template(text)
    assert time.perf_counter() - start < 6
    assert trial.error is not None
    assert trial.system_role is None
    assert "\n" not in trial.error
    assert not Path("/tmp/cogsmith-was-here").exists()


def test_template_runs_without_the_users_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    real = subprocess.run

    def watch(*args: Any, **options: Any) -> Any:
        seen.append(options)
        return real(*args, **options)

    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(subprocess, "run", watch)
    assert try_template(CHATML).error is None
    assert "HF_TOKEN" not in seen[0]["env"]


@pytest.mark.parametrize(
    ("text", "system_role"),
    [
        (CHATML, True),
        (
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}",
            False,
        ),
        (
            "{% for m in messages %}{% if m.role == 'x' %}{% break %}{% endif %}{{ m.content | tojson }}{% endfor %}",
            True,
        ),
        ("{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}", True),
        ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", True),
        (
            "{%- if tools is not none %}x{% endif %}{{ messages[-1].content.strip() }}{{ messages[0].content }}",
            True,
        ),
    ],
)
def test_templates_as_real_models_write_them(text: str, system_role: bool) -> None:
    trial = try_template(text, "<s>", "</s>")
    assert (trial.error, trial.system_role) == (None, system_role)
