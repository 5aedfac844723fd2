"""A bucket that is a folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from cogsmith.bucket import Bucket, open_bucket
from cogsmith.errors import UserError


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///srv/models", "/srv/models"),
        ("file://localhost/srv/models", "/srv/models"),
        ("file:///srv/my%20models%3F", "/srv/my models?"),
        ("file://.bucket", "ROOT/.bucket"),
        ("file://.bucket/", "ROOT/.bucket"),
        ("file://some/where", "ROOT/some/where"),
        ("file://../shared", "ROOT/../shared"),
        ("FILE://Bucket", "ROOT/Bucket"),
    ],
)
def test_where_a_url_leads(tmp_path: Path, url: str, folder: str) -> None:
    wanted = os.path.normpath(folder.replace("ROOT", str(tmp_path)))
    assert open_bucket(url, tmp_path).folder == Path(wanted)


@pytest.mark.parametrize(
    ("url", "message", "hint"),
    [
        ("s3://", "is no address of a bucket", "s3://BUCKET/PREFIX"),
        ("s3://Models/x", "is no address of a bucket", "s3://BUCKET/PREFIX"),
        ("s3://models/a b", "is no address of a bucket", "plain letters"),
        ("s3://models/a//b", "is no address of a bucket", "plain letters"),
        ("gs://models/../x", "is no address of a bucket", "gs://BUCKET/PREFIX"),
        ("s3://key:secret@models/x", "is no address of a bucket", "s3://BUCKET/PREFIX"),
        (".bucket", "is not a URL of a bucket", "file://folder"),
        ("/srv/models", "is not a URL of a bucket", "file:///absolute/folder"),
        ("file:/srv/models", "is not a URL of a bucket", "file:///absolute/folder"),
        ("https://example.com/x", "is not a URL of a bucket", "file:///absolute/folder"),
        ("file://", "does not name a folder", "file://folder"),
        ("file://~/models", "does not name a folder", "file:///absolute/folder"),
        ("file:///srv/a?b", "has a query", "%3F"),
        ("file://[x", "is not a URL", "file://folder"),
    ],
)
def test_what_is_no_bucket(tmp_path: Path, url: str, message: str, hint: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        open_bucket(url, tmp_path)
    assert hint in (caught.value.hint or "")


def test_a_file_is_no_bucket(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UserError, match="is not a folder"):
        open_bucket("file://x", tmp_path)


def put(bucket: Bucket, key: str, data: bytes) -> bool:
    with bucket.put(len(data)) as incoming:
        incoming.file.write(data)
        return incoming.keep(key)


def test_an_object_comes_in_and_is_never_replaced(tmp_path: Path) -> None:
    bucket = open_bucket("file://my bucket", tmp_path)
    assert bucket.list() == []
    assert not bucket.exists("a.tar")
    assert put(bucket, "a.tar", b"one")
    assert not put(bucket, "a.tar", b"one")
    with pytest.raises(UserError, match="is damaged: it is not what its name says"):
        put(bucket, "a.tar", b"two")
    assert bucket.path("a.tar").read_bytes() == b"one"
    assert (bucket.list(), bucket.size("a.tar"), bucket.exists("a.tar")) == (["a.tar"], 3, True)
    assert bucket.url("a.tar") == f"file://{tmp_path}/my%20bucket/a.tar"
    assert [path.name for path in bucket.folder.iterdir()] == ["a.tar"]
    with pytest.raises(UserError, match=r"there is no b\.tar"):
        bucket.size("b.tar")


def test_other_people_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    old = os.umask(0o022)
    try:
        bucket = open_bucket("file://b", tmp_path)
        put(bucket, "a", b"")
        assert bucket.path("a").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(old)


def test_nothing_stays_of_an_object_that_is_not_kept(tmp_path: Path) -> None:
    bucket = open_bucket("file://b", tmp_path)
    with pytest.raises(KeyboardInterrupt), bucket.put(3) as incoming:
        incoming.file.write(b"one")
        raise KeyboardInterrupt
    assert list(bucket.folder.iterdir()) == []


def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    bucket = open_bucket("file://b", tmp_path)
    with bucket.put(3) as living:
        living.file.write(b"one")
        (bucket.folder / ".incoming-1-dead").write_bytes(b"half")
        put(bucket, "b", b"two")
        assert not (bucket.folder / ".incoming-1-dead").exists()
        assert living.keep("a")
    assert bucket.list() == ["a", "b"]


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path) -> None:
    bucket = open_bucket("file://b", tmp_path)
    with pytest.raises(UserError, match="GB are needed"), bucket.put(shutil.disk_usage(tmp_path).total * 2):
        raise AssertionError
    assert list(bucket.folder.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    bucket = open_bucket("file://x/y", tmp_path)
    with pytest.raises(UserError, match="cannot be written"), bucket.put(1):
        raise AssertionError
