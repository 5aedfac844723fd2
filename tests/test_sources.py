"""Models in buckets and in pickles: brought whole into the cache, resumed, and refused where they are not what they should be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints import write_checkpoint, write_safetensors
from cogsmith import environment, remote_folder
from cogsmith.checkpoint import CheckpointError
from cogsmith.errors import UserError
from cogsmith.model_files import ALL, Globs, chosen
from cogsmith.paths import Project, cache_dir
from cogsmith.pickles import convert
from object_server import BUCKET, ObjectServer
from projects import make_project, of, packed_facts


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "published")
    write_safetensors(folder / "model.safetensors", {"model.embed_tokens.weight": (8192, 64)})
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path / "project", monkeypatch)


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
    source, revision, paths = packed_facts(first)
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
    assert packed_facts(first)[2][-1] == "model.safetensors"
    assert not [path for path in packed_facts(first)[2] if path.endswith(".bin")]
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
