"""Models of the Hugging Face Hub: resolved, read by their headers, downloaded, packed.

hub_server.py stands for the Hub, which cannot be reached from where tests run: a real web server on this machine, named by
HF_ENDPOINT, that answers as much of its API as the client asks for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import edit, shard, write_checkpoint, write_safetensors
from cogsmith import hub
from cogsmith.errors import MistakesError, UserError
from cogsmith.model_address import HubAddress, hub_address
from cogsmith.paths import Project, cache_dir
from cogsmith.verbs.lock import lock, lock_json
from cogsmith.verbs.pack import pack
from hub_server import OTHER_TOKEN, REPO, TOKEN, HubServer
from projects import make_project

SPEC = f"model: hf://{REPO}\nbackend: vllm\nhardware: cpu\n"
LARGE = 6 << 20


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint as makers publish it: one shard of 6 MiB, and a second copy of everything in other formats."""
    folder = write_checkpoint(tmp_path / "published")
    write_safetensors(
        folder / "model.safetensors",
        {"model.embed_tokens.weight": (LARGE // 128, 64), "model.norm.weight": (64,)},
    )
    for name in (
        "README.md",
        "pytorch_model.bin",
        "model.onnx",
        "tf_model.h5",
        "flax_model.msgpack",
        "model.Q4.gguf",
        "consolidated.safetensors",
        "modeling_x.py",
        "original/params.json",
        "original/consolidated.00.pth",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"{}" * 5000)
    return folder


@pytest.fixture
def server(model: Path) -> Iterator[HubServer]:
    with HubServer() as server:
        server.commit(model)
        yield server


@pytest.fixture
def at_server(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """The client reads its environment when it is imported, so its constants are set too."""
    use(server.url, tmp_path, monkeypatch)
    return server


def use(url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session

    monkeypatch.setenv("HF_ENDPOINT", url)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hf" / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "hf" / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    from huggingface_hub.utils import close_session

    yield
    close_session()


@pytest.fixture
def project(at_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path / "project", monkeypatch, SPEC)


def write_spec(project: Project, text: str) -> None:
    (project.root / "models" / "tiny.yaml").write_text(text)


def refused(project: Project, verb: object = lock) -> UserError:
    with pytest.raises(UserError) as caught:
        verb(project, "tiny")  # type: ignore[operator]
    text = "\n".join(caught.value.lines())
    assert TOKEN not in text and OTHER_TOKEN not in text
    assert len(caught.value.lines()) <= 2
    return caught.value


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
    shutil.rmtree(cache_dir())
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


def test_a_damaged_download_is_never_packed(project: Project, at_server: HubServer) -> None:
    at_server.flip = "model.safetensors"
    error = refused(project, pack)
    assert f"its sha256 is not that of hf://{REPO}" in error.message
    bucket = project.root / ".bucket"
    assert [path for path in bucket.iterdir() if path.is_file()] == []


def test_no_room(project: Project, at_server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    lock(project, "tiny")
    at_server.served.clear()
    usage = shutil.disk_usage(project.root)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1 << 20))
    error = refused(project, pack)
    assert re.search(r"has 0\.00 GB free, to download hf://maker/tiny takes 0\.01 GB", error.message)
    assert "model.safetensors" not in at_server.served


@pytest.mark.parametrize(
    ("token", "hint"),
    [(None, "then run `hf auth login` or set HF_TOKEN"), (OTHER_TOKEN, "the account of your token")],
)
def test_a_gated_model(
    project: Project, at_server: HubServer, monkeypatch: pytest.MonkeyPatch, token: str | None, hint: str
) -> None:
    at_server.needs_token = True
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    error = refused(project)
    assert error.message == f"hf://{REPO} is gated, and you have no access to it"
    assert f"https://huggingface.co/{REPO}" in (error.hint or "") and hint in (error.hint or "")


def test_a_token_opens_a_gated_model_and_stays_with_the_hub(
    project: Project, at_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_server.needs_token = at_server.private = True
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert pack(project, "tiny").weights is not None
    assert at_server.to_cdn
    assert not [headers for headers in at_server.to_cdn if TOKEN in str(headers)]


def test_a_bad_token(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "z" * 20)
    error = refused(project)
    assert "does not take your token (401)" in error.message
    assert "HF_TOKEN" in (error.hint or "")


@pytest.mark.parametrize(
    ("token", "hint"),
    [(None, "if it is private, run `hf auth login`"), (OTHER_TOKEN, "your token must be of an account")],
)
def test_no_such_model(
    project: Project, at_server: HubServer, monkeypatch: pytest.MonkeyPatch, token: str | None, hint: str
) -> None:
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
        at_server.private = True
    else:
        write_spec(project, SPEC.replace(REPO, "maker/tyni"))
    error = refused(project)
    assert re.match(r"there is no model maker/\w+ on http://127", error.message)
    assert hint in (error.hint or "")


def test_no_such_revision(project: Project) -> None:
    write_spec(project, SPEC.replace(REPO, f"{REPO}@v9"))
    assert refused(project).message == f"hf://{REPO} has no revision 'v9'"


@pytest.mark.parametrize(
    ("status", "message"), [(403, "may not read"), (429, "too many requests"), (500, "answered 500")]
)
def test_other_answers(project: Project, at_server: HubServer, status: int, message: str) -> None:
    at_server.status = status
    assert message in refused(project).message


def test_nothing_answers(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    use(f"http://someone:secret@127.0.0.1:{port}", tmp_path, monkeypatch)
    error = refused(project)
    assert error.message == f"http://127.0.0.1:{port} cannot be reached, and hf://{REPO} is not in the cache"
    assert "secret" not in str(error.lines())


def test_without_a_network_the_caches_do(
    project: Project,
    at_server: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from huggingface_hub import constants

    packed = pack(project, "tiny")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(at_server.asked)
    assert pack(project, "tiny") == packed
    shutil.rmtree(project.root / ".bucket")
    assert pack(project, "tiny") == packed
    # As on a machine where `hf download` ran and cogsmith did not.
    shutil.rmtree(cache_dir())
    capsys.readouterr()
    assert pack(project, "tiny").revision == packed.revision
    assert "taken from the cache at" in capsys.readouterr().err
    assert len(at_server.asked) == asked


def test_offline_and_not_in_the_cache(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = refused(project)
    assert error.message == f"hf://{REPO} is not in the cache, and HF_HUB_OFFLINE is set"


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


def test_a_header_that_is_cut_short(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(server.url, tmp_path, monkeypatch)
    commit = hub.resolve(HubAddress(REPO, None))
    size = commit.files["model.safetensors"].size
    longer = hub.Commit(commit.address, commit.sha, {"model.safetensors": hub.RemoteFile(size + 9, None)})
    monkeypatch.setattr(hub, "_FIRST_READ", size + 9)
    with pytest.raises(UserError, match=r"the header of model\.safetensors was cut short"):
        hub.read_headers(longer, ["model.safetensors"], tmp_path / "cache")
