"""A model in a tar behind https://: brought whole into the cache, gone on with, and refused where it is not what it should be."""

from __future__ import annotations

import hashlib
import io
import shutil
import ssl
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import write_checkpoint, write_safetensors
from cogsmith.errors import UserError
from cogsmith.paths import Project, cache_dir
from cogsmith.remote_tar import fetch_tar
from cogsmith.verbs.lock import lock
from object_server import ObjectServer
from projects import make_project, of, packed_facts


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "published")
    write_safetensors(folder / "model.safetensors", {"model.embed_tokens.weight": (8192, 64)})
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path / "project", monkeypatch)


def tar_of(folder: Path, name: str = ".", **more: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(folder, arcname=name)
        for path, data in more.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run([*command, "-keyout", path, "-out", f"{path}.crt"], capture_output=True, check=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def web(certificate: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}.crt")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with ObjectServer({"model.tar": tar_of(model)}, tls) as server:
        yield server


def test_a_tar(project: Project, web: ObjectServer) -> None:
    url = f"{web.url}/model.tar"
    first = of(project, url)
    source, revision, paths = packed_facts(first)
    assert (source, revision) == (url, hashlib.sha256(web.objects["model.tar"]).hexdigest())
    assert first.revision == revision
    assert {"config.json", "model.safetensors"} <= set(paths)
    web.served = 0
    assert of(project, url) == first
    assert web.served == 0
    # Only what was unpacked is kept.
    assert not list(cache_dir().rglob("*.partial"))


def test_a_tar_that_holds_the_models_folder(project: Project, web: ObjectServer, model: Path) -> None:
    web.objects["model.tar"] = tar_of(model, "some/model".partition("/")[0])
    assert of(project, f"{web.url}/model.tar", lock).checkpoint.tensors == 1


def test_a_tar_that_changes_is_fetched_again(project: Project, web: ObjectServer, model: Path) -> None:
    first = of(project, f"{web.url}/model.tar")
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    web.objects["model.tar"] = tar_of(model)
    second = of(project, f"{web.url}/model.tar")
    assert first.revision != second.revision
    assert first.checkpoint.chat_template_sha256 != second.checkpoint.chat_template_sha256


def test_a_tar_that_is_cut_off_is_gone_on_with(project: Project, web: ObjectServer) -> None:
    web.cuts = 3
    size = len(web.objects["model.tar"])
    assert of(project, f"{web.url}/model.tar", lock).checkpoint.tensors == 1
    assert web.served == size
    assert [line.split()[-1] for line in web.gets(".tar")][1] == f"bytes={size // 2}-"


def test_a_tar_is_gone_on_with_by_the_next_run(tmp_path: Path, web: ObjectServer) -> None:
    url = f"{web.url}/model.tar"
    web.cuts, web.broken_after = 1, 403
    with pytest.raises(UserError, match="403"):
        fetch_tar(url, tmp_path / "cache")
    web.status, web.served = None, 0
    fetch_tar(url, tmp_path / "cache")
    assert web.served == len(web.objects["model.tar"]) // 2


def test_a_tar_that_changes_halfway_is_begun_again(tmp_path: Path, web: ObjectServer, model: Path) -> None:
    url = f"{web.url}/model.tar"
    web.cuts, web.broken_after = 1, 403
    with pytest.raises(UserError, match="403"):
        fetch_tar(url, tmp_path / "cache")
    (model / "chat_template.jinja").write_text("{{ messages[0].content }}")
    web.status, web.objects["model.tar"] = None, tar_of(model)
    found = fetch_tar(url, tmp_path / "cache")
    assert found.sha256 == hashlib.sha256(web.objects["model.tar"]).hexdigest()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../evil", "leads out of its folder"),
        ("/evil", "is absolute"),
        ("a\nb", "has a control character"),
        ("CONFIG.JSON", "are one and the same on some disks"),
    ],
)
def test_odd_names_in_a_tar(tmp_path: Path, web: ObjectServer, model: Path, name: str, message: str) -> None:
    web.objects["model.tar"] = tar_of(model, **{name: b"x"})
    with pytest.raises(UserError, match=message):
        fetch_tar(f"{web.url}/model.tar", tmp_path / "cache" / "deep")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_odd_entries_in_a_tar(tmp_path: Path, web: ObjectServer, kind: bytes) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        member = tarfile.TarInfo("config.json")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    web.objects["model.tar"] = out.getvalue()
    with pytest.raises(UserError, match=r"'config\.json' is a link or a device"):
        fetch_tar(f"{web.url}/model.tar", tmp_path / "cache")


@pytest.mark.parametrize("body", [b"", b"PK\3\4" * 400, b"\x1f\x8b" + bytes(2000)])
def test_no_tar(tmp_path: Path, web: ObjectServer, body: bytes) -> None:
    web.objects["model.tar"] = body
    with pytest.raises(UserError, match="is no whole uncompressed tar"):
        fetch_tar(f"{web.url}/model.tar", tmp_path / "cache")


def test_a_tar_that_was_cut_before_it_was_published(tmp_path: Path, web: ObjectServer) -> None:
    web.objects["model.tar"] = web.objects["model.tar"][:200_000]
    with pytest.raises(UserError, match="is no whole uncompressed tar"):
        fetch_tar(f"{web.url}/model.tar", tmp_path / "cache")


@pytest.mark.parametrize(
    ("status", "message"), [(404, r"cannot be read \(404\)"), (403, r"\(403\)"), (500, r"\(500\)")]
)
def test_a_tar_that_cannot_be_read(project: Project, web: ObjectServer, status: int, message: str) -> None:
    web.status = status
    with pytest.raises(UserError, match=message):
        of(project, f"{web.url}/model.tar")


def test_a_redirect_to_plain_http(tmp_path: Path, web: ObjectServer) -> None:
    web.redirect = "http://127.0.0.1:9/model.tar"
    with pytest.raises(UserError, match=r"a redirect leads to http://127\.0\.0\.1"):
        fetch_tar(f"{web.url}/redirect", tmp_path / "cache")
    web.redirect = "/redirect"
    with pytest.raises(UserError, match="leads in circles"):
        fetch_tar(f"{web.url}/redirect", tmp_path / "cache")


def test_a_certificate_that_is_not_trusted(
    tmp_path: Path, web: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(UserError, match="cannot be reached"):
        fetch_tar(f"{web.url}/model.tar", tmp_path / "cache")


def test_no_room_for_a_tar(tmp_path: Path, web: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(UserError, match=r"to download and unpack https://.* takes 0\.00 GB"):
        fetch_tar(f"{web.url}/model.tar", tmp_path / "cache")
    assert web.served == 0
