"""Packing: the same files give the same tar anywhere, every tar reader reads it, nothing odd gets in."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cogsmith.bucket import Bucket, open_bucket
from cogsmith.errors import UserError
from cogsmith.layout import fingerprint, layout
from cogsmith.pack import Packed, pack, write_tar
from cogsmith_runtime.weights import Index, obtain

if TYPE_CHECKING:
    from typing_extensions import Buffer

FILES = {
    "model-00002.safetensors": b"2" * 70_001,
    "model-00001.safetensors": b"1" * 4096,
    "config.json": b'{"model_type": "llama"}',
    "empty.txt": b"",
    "tokenizer.json": b"t" * 20_000,
    "größe/模型.json": b"{}",
    f"{'long/' * 30}name.json": b"{}",
}


def fill(folder: Path, files: dict[str, bytes] | None = None) -> list[str]:
    files = FILES if files is None else files
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return list(files)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return open_bucket("file://bucket", tmp_path)


@pytest.fixture
def packed(tmp_path: Path, bucket: Bucket) -> Packed:
    return pack(tmp_path / "model", fill(tmp_path / "model"), bucket)


def test_what_is_in_the_bucket(packed: Packed, bucket: Bucket) -> None:
    digest = packed.index.digest
    assert packed.sent
    assert bucket.list() == [f"{digest}.json", f"{digest}.tar"]
    assert packed.key == f"{digest}.tar"
    assert packed.url == f"file://{bucket.folder}/{digest}.tar"
    assert Index.load(bucket.path(f"{digest}.json")) == packed.index
    assert bucket.size(packed.key) == packed.index.size


def test_small_files_come_first_and_all_are_aligned(packed: Packed, bucket: Bucket) -> None:
    names = [member.path for member in packed.index.files]
    assert names == [*sorted(names[:-2]), "model-00001.safetensors", "model-00002.safetensors"]
    tar = bucket.path(packed.key).read_bytes()
    for member in packed.index.files:
        data = tar[member.offset : member.offset + member.size]
        assert data == FILES[member.path]
        assert member.offset % 4096 == 0
        assert member.sha256 == hashlib.sha256(data).hexdigest()
    assert len(tar) % 4096 == 0
    assert (packed.index.source, packed.index.revision) == (None, None)


def test_the_bytes_are_known(tmp_path: Path, bucket: Bucket) -> None:
    """Whoever changes the layout gives every packed model another name; this says so."""
    folder = tmp_path / "m"
    small = {"config.json": b"{}", "model.safetensors": b"x" * 5000, "ä.json": b"[]"}
    key = pack(folder, fill(folder, small), bucket).key
    assert key == "7eed818c293cdeda6390a3f6bbe2f24302e959c5442dbf1a4e0720a657365039.tar"
    assert hashlib.sha256(bucket.path(key).read_bytes()).hexdigest() == (
        "94d513d603ff8d4d55303caf4c760fa0521c0b380304e22ac3cb45e5d68c47d8"
    )


def test_the_same_anywhere(packed: Packed, tmp_path: Path) -> None:
    """Other folder, order, times, owner's rights, umask, locale and hash seed: the same digest."""
    other = tmp_path / "other"
    for name in reversed(fill(other)):
        (other / name).chmod(0o600)
        os.utime(other / name, (1, 1))
    code = (
        "import os, sys; os.umask(0o077); from pathlib import Path; from cogsmith.pack import pack;"
        "from cogsmith.bucket import open_bucket; root = Path(sys.argv[1]);"
        "print(pack(root / 'other', sys.argv[2:], open_bucket('file://b2', root)).index.digest)"
    )
    environment = {**os.environ, "LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", code, str(tmp_path), *reversed(FILES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == packed.index.digest
    assert (tmp_path / "b2" / packed.key).read_bytes() == Path(
        packed.url.removeprefix("file://")
    ).read_bytes()


def same(folder: Path) -> bool:
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return found.keys() == FILES.keys() and all(
        path.read_bytes() == FILES[name] for name, path in found.items()
    )


@pytest.mark.parametrize(
    "command", [["tar", "-xf"], ["bsdtar", "-xf"], ["busybox", "tar", "-xf"]], ids=lambda c: c[0]
)
def test_tar_programs_read_it(packed: Packed, bucket: Bucket, tmp_path: Path, command: list[str]) -> None:
    assert shutil.which(command[0]), f"{command[0]} is not installed: scripts/bootstrap installs it"
    out = tmp_path / "out"
    out.mkdir()
    done = subprocess.run(
        [*command, bucket.path(packed.key), "-C", out], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert same(out)


def test_python_reads_it(packed: Packed, bucket: Bucket, tmp_path: Path) -> None:
    with tarfile.open(bucket.path(packed.key)) as tar:
        for info in tar:
            assert (info.mtime, info.uid, info.gid, info.mode, info.uname, info.gname) == (
                0,
                0,
                0,
                0o644,
                "",
                "",
            )
        # Debian 12's Python knows no filters yet; later ones warn without.
        options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(tmp_path / "out", **options)
    assert same(tmp_path / "out")


def test_the_reader_reads_it(packed: Packed, bucket: Bucket, tmp_path: Path) -> None:
    index = bucket.path(f"{packed.index.digest}.json")
    assert same(obtain(packed.url, index, None, tmp_path / "cache").folder)


def test_a_file_of_more_than_8_gib(tmp_path: Path) -> None:
    """Its size has no room in the header. Sparse: only the headers are real."""
    size = (8 << 30) + 12_345
    with (tmp_path / "big.safetensors").open("wb") as file:
        file.truncate(size)
    (tmp_path / "small.safetensors").write_bytes(b"small")
    plan = layout(tmp_path, ["small.safetensors", "big.safetensors"])
    with (tmp_path / "big.tar").open("wb") as out:
        for entry in plan.entries:
            out.seek(entry.offset - len(entry.header))
            out.write(entry.header)
        out.seek(plan.entries[1].offset)
        out.write(b"small")
        out.truncate(plan.size)
    with tarfile.open(tmp_path / "big.tar") as tar:
        found = [(info.name, info.size, info.offset_data) for info in tar]
    assert found == [(entry.path, entry.size, entry.offset) for entry in plan.entries]
    assert found[0][1] == size
    listed = subprocess.run(["tar", "-tvf", tmp_path / "big.tar"], capture_output=True, text=True, check=True)
    assert f" {size} " in listed.stdout
    assert listed.stderr == ""


@pytest.mark.parametrize("length", range(1, 120))
def test_every_length_of_a_name(tmp_path: Path, length: int) -> None:
    name = "ä" + "x" * length
    (tmp_path / name).write_bytes(b"data")
    out = io.BytesIO()
    plan = layout(tmp_path, [name])
    write_tar(plan, out)
    assert len(out.getvalue()) == plan.size
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        assert [(info.name, info.offset_data % 4096) for info in tar] == [(name, 0)]


def test_packing_again_sends_nothing(packed: Packed, bucket: Bucket, tmp_path: Path) -> None:
    times = [bucket.path(key).stat().st_mtime_ns for key in bucket.list()]
    again = pack(tmp_path / "model", list(FILES), bucket)
    assert not again.sent
    assert again.index == packed.index
    assert [bucket.path(key).stat().st_mtime_ns for key in bucket.list()] == times
    assert len(list(bucket.folder.iterdir())) == 2


def test_the_index_comes_back_when_only_it_is_missing(packed: Packed, bucket: Bucket, tmp_path: Path) -> None:
    bucket.path(f"{packed.index.digest}.json").unlink()
    pack(tmp_path / "model", list(FILES), bucket)
    assert Index.load(bucket.path(f"{packed.index.digest}.json")) == packed.index


@pytest.mark.parametrize("spoil", ["cut", "flip"])
def test_a_damaged_object_in_the_bucket_is_named(
    spoil: str, packed: Packed, bucket: Bucket, tmp_path: Path
) -> None:
    with bucket.path(packed.key).open("r+b") as file:
        if spoil == "cut":
            file.truncate(1000)
        else:
            file.seek(5000)
            file.write(b"\xff")
    with pytest.raises(UserError, match="is damaged"):
        pack(tmp_path / "model", list(FILES), bucket)


def test_progress_is_in_bytes_of_the_files(tmp_path: Path, bucket: Bucket) -> None:
    calls: list[tuple[int, int]] = []
    pack(
        tmp_path / "m",
        fill(tmp_path / "m"),
        bucket,
        bar=lambda _: nullcontext(lambda *call: calls.append(call)),
    )
    total = sum(map(len, FILES.values()))
    assert calls[-1] == (total, total)
    assert len(calls) < 8


@pytest.mark.parametrize("change", ["longer", "shorter", "other bytes"])
def test_a_file_that_changes_meanwhile(tmp_path: Path, bucket: Bucket, change: str) -> None:
    folder = tmp_path / "m"
    names = fill(folder, {"config.json": b"{}", "model.safetensors": bytes(20 << 20)})

    class Meddler(io.BytesIO):
        meddled = False

        def write(self, data: Buffer, /) -> int:
            if not self.meddled and self.tell() > 5 << 20:
                self.meddled = True
                with (folder / "model.safetensors").open("r+b") as file:
                    file.truncate({"longer": 30 << 20, "shorter": 10 << 20, "other bytes": 20 << 20}[change])
                    file.write(b"other")
            return super().write(data)

    with pytest.raises(UserError, match=r"model\.safetensors changed while it was packed"):
        write_tar(layout(folder, names), Meddler())


def test_an_error_leaves_nothing_in_the_bucket(tmp_path: Path, bucket: Bucket) -> None:
    fill(tmp_path / "m", {"config.json": b"{}"})

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(tmp_path / "m", ["config.json"], bucket, bar=lambda _: nullcontext(stop))
    assert list(bucket.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["config.json", "Config.JSON"], "are one and the same on some disks"),
        (["config.json", "config.json"], "are one and the same on some disks"),
        (["a\nb"], "has a control character in its name"),
        (["a\\b"], "has a backslash in its name"),
        (["../outside"], "leads out of its folder"),
        (["/etc/passwd"], "is absolute"),
        (["missing"], "cannot be read"),
        (["out"], "is a link to .*outside of"),
        (["broken"], "cannot be read"),
        (["loop"], "cannot be read"),
        (["fifo"], "is not a plain file"),
        (["device"], "is a link to /dev/null, outside of"),
        (["folder"], "is not a plain file"),
        ([], "has no files to pack"),
    ],
)
def test_what_is_not_packed(tmp_path: Path, bucket: Bucket, names: list[str], message: str) -> None:
    folder = tmp_path / "m"
    fill(folder, {"config.json": b"{}", "Config.JSON": b"{}", "a\nb": b"", "a\\b": b""})
    (tmp_path / "outside").write_text("secret")
    (folder / "out").symlink_to("../outside")
    (folder / "broken").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    (folder / "device").symlink_to("/dev/null")
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    with pytest.raises(UserError, match=message):
        pack(folder, names, bucket)
    assert bucket.list() == []


def test_the_links_of_a_hugging_face_cache_are_followed(tmp_path: Path, bucket: Bucket) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    fill(tmp_path / "models--a--b", {"blobs/1": b"{}"})
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to("../../blobs/1")
    assert pack(snapshot, ["config.json"], bucket).index.files[0].size == 2


def test_a_link_inside_the_folder_is_followed(tmp_path: Path, bucket: Bucket) -> None:
    folder = tmp_path / "m"
    fill(folder, {"blobs/1": b"{}"})
    (folder / "config.json").symlink_to("blobs/1")
    assert pack(folder, ["config.json"], bucket).index.files[0].size == 2


def test_fingerprint(tmp_path: Path) -> None:
    names = fill(tmp_path)
    first = fingerprint(tmp_path, names)
    assert fingerprint(tmp_path, list(reversed(names))) == first
    os.utime(tmp_path / "config.json", ns=(1, 1))
    second = fingerprint(tmp_path, names)
    assert second != first
    assert fingerprint(tmp_path, names[1:]) not in (first, second)
