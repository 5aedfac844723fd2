"""`cogsmith weights`: what lies in a bucket is shown, read through and removed, but nothing that a lock names."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from cogsmith.bucket import Bucket, open_bucket
from cogsmith.errors import UserError
from cogsmith.paths import Project
from cogsmith.verbs import weights
from cogsmith.verbs.lock import lock
from cogsmith.verbs.pack import pack
from cogsmith.verbs.weights import ls, prune, rm, verify
from projects import SPEC, make_project
from s3_server import Proxy


@pytest.fixture(params=["file://.bucket", "s3://models/llm"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("s3"):
        request.getfixturevalue("store")
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Project:
    return make_project(tmp_path / "project", monkeypatch, f"{SPEC}weights: {{bucket: '{url}'}}\n")


@pytest.fixture
def bucket(project: Project, url: str) -> Bucket:
    return open_bucket(url, project.root)


@pytest.fixture
def digests(project: Project, bucket: Bucket) -> tuple[str, str]:
    """Of what was packed before the chat template changed, and of what is locked."""
    old = packed(project)
    (project.root / "weights/tiny/chat_template.jinja").write_text("{{ messages[0].content }}")
    new = packed(project)
    assert bucket.list() == sorted(f"{digest}.{kind}" for digest in (old, new) for kind in ("tar", "json"))
    return old, new


def packed(project: Project) -> str:
    locked = pack(project, "tiny").weights
    assert locked is not None
    return locked.digest


def spoil(bucket: Bucket, key: str, data: bytes | None) -> None:
    """Put other bytes in an object's place, or none."""
    bucket.delete(key)
    if data is not None:
        bucket.add(key, data)


def never(text: str) -> bool:
    raise AssertionError(text)


def lock_another(project: Project) -> None:
    """A second model with the same weights in the same bucket."""
    for path in (project.root / "models").glob("tiny.*"):
        path.with_stem("other").write_text(path.read_text())


def cogsmith(*arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cogsmith", "weights", *arguments]
    return subprocess.run(command, input=answer, capture_output=True, text=True, timeout=60, check=False)


def test_ls(
    project: Project, bucket: Bucket, url: str, digests: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = digests
    bucket.add("notes.txt", b"somebody else's")
    lock_another(project)
    capsys.readouterr()
    ls(project, "tiny", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == url
    assert lines[1].split() == ["digest", "size", "date", "locked", "by"]
    assert {line.split()[0] for line in lines[2:]} == {old[:16], new[:16]}
    [locked] = [line for line in lines if line.startswith(new[:16])]
    assert locked.endswith("UTC  other, tiny")
    # Both models have one bucket, which is shown once.
    ls(project, None, as_json=True)
    [found] = json.loads(capsys.readouterr().out)["buckets"]
    assert found["bucket"] == url
    facts = {entry["digest"]: entry for entry in found["weights"]}
    assert facts.keys() == {old, new}
    assert (facts[old]["locked_by"], facts[new]["locked_by"]) == ([], ["other", "tiny"])
    assert facts[new]["size"] == bucket.size(f"{new}.tar")
    assert facts[new]["modified"].endswith("+00:00")


def test_ls_of_an_empty_bucket(project: Project, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ls(project, "tiny", as_json=False)
    assert capsys.readouterr().out == f"{url}\nnothing\n"
    ls(project, "tiny", as_json=True)
    assert json.loads(capsys.readouterr().out) == {"buckets": [{"bucket": url, "weights": []}]}


def test_verify(project: Project, digests: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert verify(project, "tiny", as_json=False)
    written = capsys.readouterr()
    assert written.out == ""
    assert f"{digests[1]}.tar is whole: 6 files, " in written.err
    assert verify(project, "tiny", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["digest"], found["ok"], found["problem"]) == (
        "tiny",
        digests[1],
        True,
        None,
    )


@pytest.mark.parametrize("what", ["a tensor", "a header", "the end", "cut", "gone", "index", "no index"])
def test_verify_names_the_damage(
    project: Project,
    bucket: Bucket,
    digests: tuple[str, str],
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tar, index = f"{digests[1]}.tar", f"{digests[1]}.json"
    whole = bytes(bucket.read(tar, 0, bucket.size(tar)))
    place = whole.rindex(b"model.safetensors")
    spoilt = {"a tensor": place + 9000, "a header": place, "the end": len(whole) - 1}
    if what in spoilt:
        at = spoilt[what]
        spoil(bucket, tar, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    elif what in ("cut", "gone"):
        spoil(bucket, tar, whole[:-4096] if what == "cut" else None)
    else:
        spoil(bucket, index, b"{}" if what == "index" else None)
    said = {
        "a tensor": "is damaged: model.safetensors from byte 0 ",
        "a header": "is damaged: the tar's header of model.safetensors ",
        "the end": "is damaged: the tar's header of the end of the tar ",
        "cut": f"has {len(whole) - 4096} bytes, and the index says {len(whole)}",
        "gone": f"there is no {bucket.url(tar)}",
        "index": f"{bucket.url(index)} is damaged",
        "no index": f"there is no {bucket.url(index)}",
    }[what]
    with pytest.raises(UserError) as caught:
        verify(project, "tiny", as_json=False)
    assert said in caught.value.message
    assert caught.value.hint
    capsys.readouterr()
    if what == "gone":
        return
    assert not verify(project, "tiny", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert said in found["problem"]


def test_verify_before_anything_is_packed(project: Project) -> None:
    with pytest.raises(UserError, match=r"models/tiny\.lock is missing"):
        verify(project, "tiny", as_json=False)
    lock(project, "tiny")
    with pytest.raises(UserError, match="the weights of tiny are not packed"):
        verify(project, "tiny", as_json=True)


def test_rm(project: Project, bucket: Bucket, url: str, digests: tuple[str, str]) -> None:
    old, new = digests
    asked: list[str] = []
    rm(project, "tiny", old[:12], lambda text: bool(asked.append(text)))
    assert len(bucket.list()) == 4
    assert asked[0].startswith(f"Remove {old[:12]} (")
    assert asked[0].endswith(f" from {url}?")
    rm(project, "tiny", f"{old}.tar", lambda _: True)
    assert bucket.list() == [f"{new}.json", f"{new}.tar"]
    assert verify(project, "tiny", as_json=False)


def test_rm_refuses(project: Project, bucket: Bucket, digests: tuple[str, str]) -> None:
    old, new = digests
    lock_another(project)
    for digest, said in (
        (new, f"{new} is named by models/other.lock, models/tiny.lock"),
        (old[:7], f"'{old[:7]}' is too short for a digest"),
        ("0" * 64, f"{'0' * 64} is no packed model in "),
        ("", "'' is too short for a digest"),
    ):
        with pytest.raises(UserError) as caught:
            rm(project, "tiny", digest, never)
        assert said in caught.value.message
    bucket.add(f"{old[:8]}{'0' * 56}.tar", b"x")
    with pytest.raises(UserError, match="is the beginning of several digests"):
        rm(project, "tiny", old[:8], never)
    assert len(bucket.list()) == 5


def test_prune(project: Project, bucket: Bucket, url: str, digests: tuple[str, str]) -> None:
    _, new = digests
    bucket.add("notes.txt", b"somebody else's")
    asked: list[str] = []
    prune(project, "tiny", lambda text: bool(asked.append(text)))
    assert len(bucket.list()) == 5
    assert asked[0].startswith("Remove these 1 (")
    assert f"from {url}? No lock in models/ names them" in asked[0]
    prune(project, "tiny", lambda _: True)
    assert bucket.list() == sorted([f"{new}.json", f"{new}.tar", "notes.txt"])
    prune(project, "tiny", never)


def test_nothing_is_removed_where_a_lock_cannot_be_read(
    project: Project, bucket: Bucket, digests: tuple[str, str]
) -> None:
    """It may name what would be removed."""
    (project.root / "models/broken.lock").write_text("weights: [")
    for verb in (lambda: prune(project, "tiny", never), lambda: rm(project, "tiny", digests[0], never)):
        with pytest.raises(UserError, match=r"broken\.lock"):
            verb()
    assert len(bucket.list()) == 4


@pytest.mark.parametrize("url", ["s3://models/llm"])
def test_prune_removes_unfinished_uploads_that_are_old(
    project: Project, store: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("llm/ab.tar", "llm/deeper/ab.tar", "other/ab.tar"):
        store.s3.create_multipart_upload(Bucket="models", Key=key)
    # moto begins every upload in 2010.
    with monkeypatch.context() as patch:
        patch.setattr(weights, "_ABANDONED", timedelta(days=36500))
        prune(project, "tiny", never)
    prune(project, "tiny", lambda _: True)
    left = store.s3.list_multipart_uploads(Bucket="models")["Uploads"]
    assert [upload["Key"] for upload in left] == ["llm/deeper/ab.tar", "other/ab.tar"]


@pytest.mark.parametrize("url", ["file://.bucket"])
def test_the_commands(project: Project, bucket: Bucket, digests: tuple[str, str]) -> None:
    old, new = digests
    assert cogsmith("ls").stdout.startswith("file://.bucket\ndigest ")
    assert json.loads(cogsmith("verify", "tiny", "--format", "json").stdout)["ok"]
    refused = cogsmith("rm", "tiny", new, "--yes")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 2)
    declined = cogsmith("rm", "tiny", old, answer="n\n")
    assert (declined.returncode, declined.stdout) == (0, "")
    assert "[y/N]" in declined.stderr
    assert cogsmith("prune", "tiny").returncode == 130
    assert len(bucket.list()) == 4
    assert cogsmith("prune", "tiny", "--yes").returncode == 0
    assert bucket.list() == [f"{new}.json", f"{new}.tar"]
    bucket.delete(f"{new}.json")
    damaged = cogsmith("verify", "tiny", "--format", "json")
    assert (damaged.returncode, json.loads(damaged.stdout)["ok"]) == (1, False)
    assert cogsmith("verify", "tiny").returncode == 1
