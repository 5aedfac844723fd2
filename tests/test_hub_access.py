"""The Hugging Face Hub where it refuses, breaks off or cannot be reached: what is said, and that nothing wrong is packed."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cogsmith import hub
from cogsmith.errors import UserError
from cogsmith.model_address import HubAddress
from cogsmith.paths import Project
from cogsmith.verbs.lock import lock
from cogsmith.verbs.pack import pack
from hub_models import SPEC, published, refused, remove_cache, use, write_model, write_spec
from hub_server import OTHER_TOKEN, REPO, TOKEN, HubServer
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
    remove_cache(project)
    capsys.readouterr()
    assert pack(project, "tiny").revision == packed.revision
    assert "taken from the cache at" in capsys.readouterr().err
    assert len(at_server.asked) == asked


def test_offline_and_not_in_the_cache(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    error = refused(project)
    assert error.message == f"hf://{REPO} is not in the cache, and HF_HUB_OFFLINE is set"


def test_a_header_that_is_cut_short(
    at_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.resolve(HubAddress(REPO, None))
    size = commit.files["model.safetensors"].size
    longer = hub.Commit(commit.address, commit.sha, {"model.safetensors": hub.RemoteFile(size + 9, None)})
    monkeypatch.setattr(hub, "_FIRST_READ", size + 9)
    with pytest.raises(UserError, match=r"the header of model\.safetensors was cut short"):
        hub.read_headers(longer, ["model.safetensors"], tmp_path / "cache")
