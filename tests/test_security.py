"""What a model, a spec or a request must never bring about, as far as it is decided before anything is served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from checkpoints import edit, write_checkpoint
from cogsmith.checkpoint import read_checkpoint
from cogsmith.errors import MistakesError, UserError
from cogsmith.render import render, write
from cogsmith.verbs.lock import lock
from cogsmith.verbs.pack import pack
from cogsmith.verbs.render import planned
from projects import SPEC, make_project

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TRUSTING = f"{SPEC}trust_remote_code: {{revision: {COMMIT}}}\n"


def add_code(folder: Path, commit: str | None) -> None:
    """modeling_x.py, and what `hf download --local-dir` notes of the commit that it was fetched at."""
    (folder / "modeling_x.py").write_text("raise SystemExit('it ran')\n")
    edit(folder / "config.json", auto_map={"AutoModelForCausalLM": "modeling_x.X"})
    if commit is not None:
        notes = folder / ".cache/huggingface/download"
        notes.mkdir(parents=True)
        (notes / "modeling_x.py.metadata").write_text(f"{commit}\netag\n1700000000.0\n")


def test_code_of_a_checkpoint_is_neither_packed_nor_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path, monkeypatch)
    add_code(tmp_path / "weights/tiny", COMMIT)
    index = pack(project, "tiny").weights
    assert index is not None
    assert not [member for member in index.index["files"] if member["path"].endswith(".py")]
    assert "--trust-remote-code" not in planned(project, "tiny").settings.engine.command


def test_code_of_the_named_commit_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, monkeypatch, TRUSTING)
    add_code(tmp_path / "weights/tiny", COMMIT)
    index = pack(project, "tiny").weights
    assert index is not None
    [code] = [member for member in index.index["files"] if member["path"].endswith(".py")]
    # What runs is checked by sha256 at boot, so the image and the spec vouch for it together.
    assert len(code["sha256"]) == 64
    assert "--trust-remote-code" in planned(project, "tiny").settings.engine.command


def test_code_of_another_commit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, monkeypatch, TRUSTING)
    add_code(tmp_path / "weights/tiny", "f" * 40)
    with pytest.raises(
        MistakesError, match=r"tiny\.yaml:4: trust_remote_code\.revision: .* downloaded at fff"
    ):
        lock(project, "tiny")


def test_code_of_no_known_commit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = make_project(tmp_path, monkeypatch, TRUSTING)
    add_code(tmp_path / "weights/tiny", None)
    lock(project, "tiny")
    assert "modeling_x.py: nothing says of which commit it is" in capsys.readouterr().err


def test_trust_without_code_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(tmp_path, monkeypatch, TRUSTING)
    with pytest.raises(MistakesError, match="holds no Python file"):
        lock(project, "tiny")


def test_a_pickle_is_refused_with_its_reason(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(UserError, match=r"only pytorch_model\.bin: loading a pickle runs code"):
        read_checkpoint(folder)


@pytest.mark.parametrize("link", ["cogsmith_runtime", ".cog", "predict.py"])
def test_nothing_is_written_through_a_link_out_of_the_build_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    project = make_project(tmp_path, monkeypatch)
    pack(project, "tiny")
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = project.build_dir("tiny")
    folder.mkdir(parents=True)
    (folder / link).symlink_to(outside if link != "predict.py" else outside / "predict.py")
    files = render(planned(project, "tiny"))
    if link == "predict.py":
        write(files, folder)
    else:
        with pytest.raises(UserError, match="leads out of"):
            write(files, folder)
    assert list(outside.iterdir()) == []


def test_a_manifest_cannot_have_foreign_files_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(tmp_path, monkeypatch)
    pack(project, "tiny")
    folder = project.build_dir("tiny")
    folder.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / ".cogsmith.json").write_text(json.dumps(["../../victim", str(victim)]))
    write(render(planned(project, "tiny")), folder)
    assert victim.read_text() == "mine"


def test_the_engine_listens_on_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = make_project(
        tmp_path, monkeypatch, "model: weights/tiny\nbackend: [vllm, tensorrt-llm]\nhardware: l40s\n"
    )
    lock(project, "tiny")
    for backend in ("vllm", "tensorrt-llm"):
        plan = planned(project, "tiny", backend=backend)
        command = plan.settings.engine.command
        assert command[command.index("--host") + 1] == "127.0.0.1"


def test_no_secret_of_the_environment_reaches_a_rendered_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_" + "s" * 34
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "REPLICATE_API_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, secret)
    project = make_project(tmp_path, monkeypatch)
    pack(project, "tiny")
    files = render(planned(project, "tiny"))
    assert not [path for path, text in files.items() if secret in text]
    assert secret not in project.lock_path("tiny").read_text()
    assert yaml.safe_load(files["cog.yaml"])
