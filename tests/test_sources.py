"""Models behind https://, in buckets and in pickles: brought whole into the cache, resumed, and refused where they are not what they should be."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import ssl
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checkpoints import write_checkpoint, write_safetensors
from cogsmith import environment, remote_folder
from cogsmith.checkpoint import CheckpointError
from cogsmith.errors import UserError
from cogsmith.lock import Lock
from cogsmith.model_files import ALL, Globs, chosen
from cogsmith.paths import Project, cache_dir
from cogsmith.pickles import convert
from cogsmith.remote_tar import fetch_tar
from cogsmith.verbs.lock import lock
from cogsmith.verbs.pack import pack
from object_server import BUCKET, ObjectServer
from projects import make_project

SPEC = "model: {}\nbackend: vllm\nhardware: cpu\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "published")
    write_safetensors(folder / "model.safetensors", {"model.embed_tokens.weight": (8192, 64)})
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path / "project", monkeypatch)


def of(project: Project, model: str, verb: Callable[[Project, str], Lock] = pack) -> Lock:
    (project.root / "models" / "tiny.yaml").write_text(SPEC.format(model))
    return verb(project, "tiny")


def tar_of(folder: Path, name: str = ".", **more: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(folder, arcname=name)
        for path, data in more.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def digest(locked: Lock) -> tuple[str | None, str | None, list[str]]:
    assert locked.weights is not None
    index = locked.weights.parsed()
    return index.source, index.revision, [member.path for member in index.files]


# A tar behind https


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
    source, revision, paths = digest(first)
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


# A folder of a bucket


@pytest.fixture(params=["s3", "gs"])
def bucket(
    request: pytest.FixtureRequest, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ObjectServer, str]]:
    """A bucket with a model below `llms/tiny`, and its address."""
    objects = {f"llms/tiny/{path.name}": path.read_bytes() for path in model.iterdir()}
    objects |= {
        "llms/tiny/README.md": b"x",
        "llms/tiny/original/x.json": b"{}",
        "llms/tiny-2/config.json": b"{}",
    }
    with ObjectServer(objects) as server:
        key = tmp_path / "key.json"
        key.write_text(
            json.dumps(
                {"gcs_base_url": server.url, "disable_oauth": True}
                | dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            )
        )
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "GOOGLE_SERVICE_ACCOUNT": str(key),
            "GOOGLE_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(name, value)
        yield server, f"{request.param}://{BUCKET}/llms/tiny"


def test_a_bucket(project: Project, bucket: tuple[ObjectServer, str]) -> None:
    server, url = bucket
    first = of(project, url + "/")
    source, revision, paths = digest(first)
    assert (source, revision) == (url, None)
    assert {"config.json", "model.safetensors"} <= set(paths)
    assert not server.gets("README.md") and not server.gets("x.json")
    server.asked.clear()
    assert of(project, url + "/") == first
    assert not server.gets("config.json")


def test_a_bucket_that_changes(project: Project, bucket: tuple[ObjectServer, str]) -> None:
    server, url = bucket
    first = of(project, url)
    server.objects["llms/tiny/chat_template.jinja"] = b"{{ messages[0].content }}"
    del server.objects["llms/tiny/generation_config.json"]
    server.asked.clear()
    second = of(project, url)
    assert first.checkpoint.chat_template_sha256 != second.checkpoint.chat_template_sha256
    assert second.checkpoint.sampling == {}
    assert not server.gets("model.safetensors")


def test_a_bucket_is_gone_on_with(
    project: Project, bucket: tuple[ObjectServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = bucket
    size = len(server.objects["llms/tiny/model.safetensors"])
    monkeypatch.setattr(remote_folder, "_BLOCK", 64 << 10)
    server.cuts, server.broken_after = 1, 403
    with pytest.raises(UserError):
        of(project, url)
    [partial] = cache_dir().rglob(".model.safetensors.partial")
    have = partial.stat().st_size
    assert 0 < have < size
    server.status = None
    server.asked.clear()
    assert of(project, url).checkpoint.tensors == 1
    assert [line.split()[-1] for line in server.gets("model.safetensors")] == [f"bytes={have}-"]


def test_an_object_that_changes_after_it_was_listed(
    project: Project, bucket: tuple[ObjectServer, str]
) -> None:
    server, url = bucket
    server.changes["llms/tiny/config.json"] = b"{}"
    with pytest.raises(UserError, match=r"config\.json changed meanwhile"):
        of(project, url)


@pytest.mark.parametrize(
    ("status", "message"), [(403, "may not be read with these"), (404, "is not there"), (400, "answered 400")]
)
def test_a_bucket_that_cannot_be_read(
    project: Project, bucket: tuple[ObjectServer, str], status: int, message: str
) -> None:
    server, url = bucket
    server.status = status
    with pytest.raises(UserError, match=message) as caught:
        of(project, url)
    assert "secret" not in str(caught.value.lines())


def test_an_empty_prefix(project: Project, bucket: tuple[ObjectServer, str]) -> None:
    with pytest.raises(UserError, match="holds nothing"):
        of(project, bucket[1] + "-3")


def test_no_credentials() -> None:
    """Where there are none, the machine's own are asked for; outside of a cloud that fails like this."""
    from obstore.exceptions import GenericError

    with pytest.raises(UserError, match="there are no credentials for s3://a/b") as caught:  # noqa: SIM117
        with remote_folder._errors("s3://a/b", "s3"):
            raise GenericError("Error performing PUT http://169.254.169.254/latest/api/token: denied")
    assert "AWS_SKIP_SIGNATURE" in (caught.value.hint or "")


# Pickles


@pytest.fixture
def pickled(model: Path) -> Path:
    """As makers published before safetensors."""
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(b"PK\3\4 tensors")
    (model / "training_args.bin").write_bytes(b"PK\3\4 a trainer")
    return model


def python_that(tmp_path: Path, script: str) -> Path:
    """An interpreter that runs this instead of the converter: $1 is -I, $2 the program, then shards and the folder."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$@" >>{tmp_path}/calls\n{script}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def converter(tmp_path: Path) -> Path:
    whole = write_checkpoint(tmp_path / "whole") / "model.safetensors"
    return python_that(tmp_path, f'mkdir "$last"; env >{tmp_path}/environment; cp {whole} "$last/"')


def convert_here(folder: Path, python: Path, tmp_path: Path) -> Path:
    return convert(folder, ALL, False, lambda: python, tmp_path / "cache", tmp_path / "log")


def test_a_folder_with_pickles_alone_is_converted(
    project: Project, pickled: Path, converter: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environment, "ensure", lambda *_: converter)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 30)
    first = of(project, str(pickled))
    assert digest(first)[2][-1] == "model.safetensors"
    assert not [path for path in digest(first)[2] if path.endswith(".bin")]
    assert "hf_aaa" not in (tmp_path / "environment").read_text()
    assert of(project, str(pickled)) == first
    # A change of a small file does not have the tensors converted again.
    (pickled / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert of(project, str(pickled)).weights != first.weights
    [call] = (tmp_path / "calls").read_text().splitlines()
    assert "pytorch_model.bin" in call and "training_args" not in call


def test_shards_of_pickles(pickled: Path, converter: Path, tmp_path: Path) -> None:
    (pickled / "pytorch_model.bin").rename(pickled / "pytorch_model-00001-of-00002.bin")
    with pytest.raises(
        CheckpointError, match=r"1 of 2 shards are not there: pytorch_model-00002-of-00002\.bin"
    ):
        convert_here(pickled, converter, tmp_path)
    places = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    (pickled / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(CheckpointError, match="names 1 of 2 files that are not there: pytorch_model-00002"):
        convert_here(pickled, converter, tmp_path)
    (pickled / places["b"]).write_bytes(b"version https://git-lfs")
    with pytest.raises(CheckpointError, match="is a Git LFS pointer"):
        convert_here(pickled, converter, tmp_path)
    (pickled / places["b"]).write_bytes(b"")
    with pytest.raises(CheckpointError, match="is empty"):
        convert_here(pickled, converter, tmp_path)
    (pickled / places["b"]).write_bytes(b"PK\3\4")
    made = convert_here(pickled, converter, tmp_path)
    assert sorted(path.name for path in made.iterdir())[0] == "chat_template.jinja"
    assert not (made / "pytorch_model.bin.index.json").exists()


def test_a_pickle_that_leads_out_of_the_folder(pickled: Path, converter: Path, tmp_path: Path) -> None:
    (pickled / "pytorch_model.bin").rename(tmp_path / "elsewhere.bin")
    (pickled / "pytorch_model.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(CheckpointError, match="is a link that leads out of the folder"):
        convert_here(pickled, converter, tmp_path)


def test_a_pickle_that_is_refused(pickled: Path, tmp_path: Path) -> None:
    python = python_that(tmp_path, 'mkdir "$last"; echo "error: it holds more than tensors" >&2; exit 1')
    with pytest.raises(UserError, match="cannot be converted: it holds more than tensors"):
        convert_here(pickled, python, tmp_path)
    assert [path for path in (tmp_path / "cache" / "converted").iterdir() if path.suffix != ".lock"] == []


# Names


def test_one_format_is_chosen() -> None:
    small = ["config.json", "tokenizer.json", "chat_template.jinja", "LICENSE"]
    drop = [
        "x.gguf",
        "model.onnx",
        "tf_model.h5",
        "a.msgpack",
        "original/x.safetensors",
        "m.pth",
        ".gitattributes",
        "README.md",
    ]
    bins = ["pytorch_model.bin", "pytorch_model.bin.index.json", "training_args.bin"]
    tensors = ["model.safetensors", "consolidated.safetensors"]
    assert chosen([*small, *drop, *bins, *tensors], ALL) == sorted([*small, "model.safetensors"])
    assert chosen([*small, *drop, *bins], ALL) == sorted([*small, *bins[:2]])
    assert chosen([*small, "consolidated.safetensors"], ALL) == sorted([*small, "consolidated.safetensors"])
    assert chosen([*small, *tensors, "m.py"], Globs(("consolidated*",)), True) == sorted(
        [*small, "consolidated.safetensors", "m.py"]
    )
    assert re.fullmatch(
        "adapter_config.json", chosen(["adapter_config.json", "adapter_model.safetensors"], ALL)[0]
    )
