"""Models of the Hugging Face Hub: resolved, read by their headers, downloaded, packed.

hub_server.py stands for the Hub, which cannot be reached from where tests run: a real web server on this machine, named by
HF_ENDPOINT, that answers as much of its API as the client asks for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import edit, shard, write_safetensors
from cogsmith.errors import MistakesError
from cogsmith.model_address import HubAddress, hub_address
from cogsmith.paths import Project, cache_dir
from cogsmith.verbs.lock import lock, lock_json
from cogsmith.verbs.pack import pack
from hub_models import LARGE, SPEC, published, refused, remove_cache, write_model, write_spec
from hub_server import REPO, HubServer
from projects import make_project


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "published")


@pytest.fixture
def at_server(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with published(model, tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def project(at_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path / "project", monkeypatch, SPEC)


def test_parts_of_an_address() -> None:
    assert hub_address("hf://a/b") == HubAddress("a/b", None)
    assert hub_address("hf://a/b@refs/pr/1") == HubAddress("a/b", "refs/pr/1")
    assert hub_address("hf://a/b").branch == "main"
    assert hub_address(f"hf://a/b@{'0' * 40}").is_commit


def test_lock_reads_headers_alone(project: Project, at_server: HubServer) -> None:
    locked = lock(project, "tiny")
    assert locked.revision == at_server.branches["main"]
    assert locked.checkpoint.tensor_bytes > LARGE - 4096
    assert at_server.bytes_of(".safetensors") <= 16 << 10
    assert at_server.served.keys() & {"pytorch_model.bin", "README.md", "modeling_x.py"} == set()
    assert f"revision: {locked.revision}" in project.lock_path("tiny").read_text()
    # What stands for the shard is as long as the shard, and takes no room.
    found = next((cache_dir() / "headers").rglob("model.safetensors")).stat()
    assert found.st_size > LARGE and found.st_blocks * 512 < LARGE / 8


def test_a_second_lock_asks_for_the_commit_alone(project: Project, at_server: HubServer) -> None:
    lock(project, "tiny")
    at_server.served.clear()
    lock(project, "tiny")
    assert set(at_server.served) == {""}


def test_a_long_header_takes_two_reads(project: Project, at_server: HubServer, model: Path) -> None:
    tensors = {f"model.layers.{number}.mlp.down_proj.weight": (64, 64) for number in range(500)}
    write_safetensors(model / "model.safetensors", tensors)
    at_server.commit(model)
    header = int.from_bytes((model / "model.safetensors").read_bytes()[:8], "little")
    assert header > 16 << 10
    assert lock(project, "tiny").checkpoint.tensors == 500
    assert at_server.bytes_of(".safetensors") == 8 + header


def test_a_server_that_ignores_ranges_is_left_early(project: Project, at_server: HubServer) -> None:
    at_server.no_ranges = True
    assert lock(project, "tiny").checkpoint.tensor_bytes > LARGE - 4096


def test_pack_downloads_what_is_packed_and_nothing_else(project: Project, at_server: HubServer) -> None:
    packed = pack(project, "tiny")
    assert packed.weights is not None
    index = packed.weights.parsed()
    assert (index.source, index.revision) == (f"hf://{REPO}", at_server.branches["main"])
    assert {member.path for member in index.files} == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {name for name in at_server.served if name} == {member.path for member in index.files}


def test_a_second_pack_downloads_nothing(project: Project, at_server: HubServer) -> None:
    first = pack(project, "tiny")
    at_server.served.clear()
    assert pack(project, "tiny") == first
    assert set(at_server.served) == {""}
    assert lock(project, "tiny") == first


def test_json_says_what_was_packed(project: Project, at_server: HubServer) -> None:
    found = json.loads(lock_json(project, "tiny", lock(project, "tiny")))
    assert (found["source"], found["revision"]) == (f"hf://{REPO}", at_server.branches["main"])
    assert found["digest"] is found["size"] is found["url"] is found["files"] is None
    packed = pack(project, "tiny")
    assert packed.weights is not None
    found = json.loads(lock_json(project, "tiny", packed))
    assert (found["digest"], found["size"]) == (packed.weights.digest, packed.weights.size)
    assert found["url"].endswith(f"/{packed.weights.digest}.tar")
    assert {file["path"] for file in found["files"]} >= {"config.json", "model.safetensors"}


def test_the_locked_commit_is_kept_when_the_branch_moves(
    project: Project, at_server: HubServer, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = lock(project, "tiny").revision
    edit(model / "generation_config.json", temperature=0.1)
    new = at_server.commit(model)
    capsys.readouterr()
    packed = pack(project, "tiny")
    told = capsys.readouterr().err
    assert f"has moved on to {new[:12]}; the locked {str(old)[:12]} is kept" in told
    assert packed.revision == old
    assert packed.weights is not None and packed.weights.parsed().revision == old
    again = lock(project, "tiny")
    assert (again.revision, again.weights) == (new, None)
    assert pack(project, "tiny").revision == new


def test_a_locked_commit_that_is_gone(project: Project, at_server: HubServer, model: Path) -> None:
    old = str(lock(project, "tiny").revision)
    edit(model / "generation_config.json", temperature=0.1)
    at_server.commit(model)
    del at_server.commits[old]
    remove_cache(project)
    error = refused(project, pack)
    assert f"has no commit {old[:12]} any more: its history was rewritten" in error.message
    assert "cogsmith lock" in (error.hint or "")


def test_a_revision_of_the_spec(project: Project, at_server: HubServer, model: Path) -> None:
    old = at_server.branches["main"]
    at_server.branches["refs/pr/1"] = at_server.branches["v1"] = old
    edit(model / "generation_config.json", temperature=0.1)
    at_server.commit(model)
    for revision in ("v1", "refs/pr/1", old):
        write_spec(project, SPEC.replace(REPO, f"{REPO}@{revision}"))
        assert lock(project, "tiny").revision == old
        assert pack(project, "tiny").revision == old


def test_shards_and_their_index(project: Project, at_server: HubServer, model: Path) -> None:
    shard(model)
    at_server.commit(model)
    packed = pack(project, "tiny")
    assert packed.checkpoint.tensors == 3
    assert packed.weights is not None
    paths = [member.path for member in packed.weights.parsed().files]
    assert paths[-2:] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def test_a_missing_shard_is_told_before_anything_is_downloaded(
    project: Project, at_server: HubServer, model: Path
) -> None:
    shard(model)
    (model / "model-00002-of-00002.safetensors").unlink()
    at_server.commit(model)
    assert "names 1 of 2 files that are not there: model-00002" in refused(project, pack).message


def test_patterns_choose_among_weights(project: Project, at_server: HubServer, model: Path) -> None:
    (model / "model.safetensors").rename(model / "model.bf16.safetensors")
    write_safetensors(model / "model.fp16.safetensors", {"model.embed_tokens.weight": (8, 8)}, "F16")
    at_server.commit(model)
    assert "hold 1 tensors of the same name" in refused(project).message
    for patterns in ('include: ["*.fp16.*"]', 'exclude: ["*.bf16.safetensors"]'):
        write_spec(project, f"{SPEC}weights: {{{patterns}}}\n")
        assert lock(project, "tiny").checkpoint.parameters == 64
    packed = pack(project, "tiny").weights
    assert packed is not None
    assert "model.bf16.safetensors" not in {member.path for member in packed.parsed().files}
    write_spec(project, f"{SPEC}weights: {{include: [nothing-*]}}\n")
    assert "weights.include and weights.exclude leave" in refused(project).message


def test_only_gguf(project: Project, at_server: HubServer, model: Path) -> None:
    for name in ("model.safetensors", "consolidated.safetensors", "pytorch_model.bin"):
        (model / name).unlink()
    at_server.commit(model)
    error = refused(project)
    assert "holds no safetensors, only GGUF" in error.message
    assert f"hf download {REPO} model.Q4.gguf" in (error.hint or "")


def test_code_is_taken_of_the_named_commit_alone(project: Project, at_server: HubServer) -> None:
    write_spec(project, f"{SPEC}trust_remote_code: {{revision: {'f' * 40}}}\n")
    with pytest.raises(
        MistakesError, match=r"tiny\.yaml:4: trust_remote_code\.revision: is f+, but hf://maker/tiny is at"
    ):
        lock(project, "tiny")
    write_spec(project, f"{SPEC}trust_remote_code: {{revision: {at_server.branches['main']}}}\n")
    packed = pack(project, "tiny").weights
    assert packed is not None
    assert "modeling_x.py" in {member.path for member in packed.parsed().files}


def test_the_command(at_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way in a process of its own, by the variables that a user sets."""
    make_project(tmp_path / "project", monkeypatch, SPEC)
    environment = {**os.environ, "HF_ENDPOINT": at_server.url, "HF_HOME": str(tmp_path / "hf-home")}
    for verb in ("lock", "pack"):
        command = [sys.executable, "-m", "cogsmith", verb, "tiny", "--format", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["revision"] == at_server.branches["main"]
        assert done.stderr == ""
    assert (tmp_path / "hf-home" / "hub" / "models--maker--tiny" / "snapshots").is_dir()
    command = [sys.executable, "-m", "cogsmith", "pack", "tiny", "--quiet"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
