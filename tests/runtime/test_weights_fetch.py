"""Fetching from a web server and from a file: what arrives, what is refused, what a failure leaves."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cogsmith_runtime.weights import Limits, WeightsError
from cogsmith_runtime.weights.journal import Journal

from .packed import GRANULE, Object, packed
from .range_server import Faults, RangeServer

OBJECT = packed()


def serve(**faults: Any) -> RangeServer:
    return RangeServer(OBJECT.content, Faults(**faults))


def test_fetch_by_ranges(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    with serve() as server:
        folder = OBJECT.fetch(server.url, tmp_path / "cache", progress=lambda *call: calls.append(call))
        assert folder == tmp_path / "cache" / OBJECT.index.digest
        assert OBJECT.is_in(folder)
        assert len(server.ranges) == len(set(server.ranges)) > 10
        # Headers between small files are read over; padding and the end of the tar are not asked for.
        assert server.served <= len(OBJECT.content)
        asked = len(server.ranges)
        assert OBJECT.fetch(server.url, tmp_path / "cache") == folder
        assert len(server.ranges) == asked
    assert calls[-1] == (OBJECT.index.content, OBJECT.index.content)
    assert len(calls) < 8
    assert calls == sorted(calls)
    assert not (tmp_path / "cache" / f"{OBJECT.index.digest}.partial").exists()


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_fetch_from_a_file(tmp_path: Path, prefix: str) -> None:
    tar = OBJECT.write(tmp_path / "bucket")
    assert OBJECT.is_in(OBJECT.fetch(f"{prefix}{tar}", tmp_path / "cache"))


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    assert OBJECT.fails("http://127.0.0.1:1/object?token=secret", tmp_path).startswith(
        "E2211 Unreachable: http://127.0.0.1:1/object cannot be read after 8 tries (["
    )


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/key?token=secret",
        "http://",
        "http://host:99999/x",
        "http://h/a b",
        "http://h/ä",
        "file://other/x",
    ],
)
def test_a_url_that_cannot_be(tmp_path: Path, url: str) -> None:
    text = OBJECT.fails(url, tmp_path)
    assert text.startswith("E2204 BadSource")
    assert "secret" not in text


def test_damage_names_file_and_offset(tmp_path: Path) -> None:
    member = OBJECT.index.files[3]
    with serve(flip=member.offset + 5 * GRANULE + 17) as server:
        text = OBJECT.fails(server.url, tmp_path)
        assert text.startswith(f"E2208 Damaged: model-1.safetensors is damaged in {server.url.split('?')[0]}")
        assert (
            f"the {GRANULE} bytes at {5 * GRANULE} of the file (at {member.offset + 5 * GRANULE} of the object)"
            in text
        )
        server.faults.flip = None
        before = server.served
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path))
        assert server.served - before < len(OBJECT.content)


def test_a_config_that_was_tampered_with(tmp_path: Path) -> None:
    """Its crc32c was made to fit, as anybody can; its sha256 was not."""
    files = list(OBJECT.index.files)
    files[0] = dataclasses.replace(files[0], sha256="0" * 64)
    tampered = dataclasses.replace(OBJECT, index=dataclasses.replace(OBJECT.index, files=tuple(files)))
    with serve() as server:
        for _ in range(2):
            text = tampered.fails(server.url, tmp_path)
            assert text.startswith("E2208 Damaged: config.json does not have the sha256")


def test_a_full_disk_is_noticed_before_anything_is_asked(tmp_path: Path) -> None:
    member = OBJECT.index.files[3]
    granule = 1 << 30
    size = shutil.disk_usage(tmp_path).total * 2 // granule * granule
    huge = dataclasses.replace(member, size=size, crc32c="0" * (8 * size // granule))
    index = dataclasses.replace(OBJECT.index, granule=granule, size=size * 2, files=(huge,))
    with serve() as server:
        text = dataclasses.replace(OBJECT, index=index).fails(server.url, tmp_path)
        assert text.startswith("E2209 NoSpace")
        assert server.ranges == []


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with serve() as server, pytest.raises(WeightsError, match="E2210 DiskError"):
        OBJECT.fetch(server.url, tmp_path / "cache")


def _command(server: RangeServer, folder: Path) -> list[str]:
    OBJECT.write(folder)
    command = [
        sys.executable,
        "-m",
        "cogsmith_runtime.weights",
        "--index",
        str(folder / "weights.json"),
    ]
    return [*command, "--url", server.url, "--to", str(folder / "cache")]


def _killed_halfway(server: RangeServer, folder: Path) -> int:
    """Kill a fetch with SIGKILL in its middle; returns how many granules its journal claims."""
    server.faults.rate = 400_000
    child = subprocess.Popen(_command(server, folder), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    journal = folder / "cache" / f"{OBJECT.index.digest}.journal"
    limit = time.monotonic() + 20
    while time.monotonic() < limit and not (journal.exists() and len(journal.read_text().splitlines()) > 15):
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    server.faults.rate = None
    # The server notices only now that nobody listens any more.
    time.sleep(0.4)
    return len(Journal(journal, OBJECT.index.digest).claims)


def test_a_killed_fetch_goes_on_where_it_was(tmp_path: Path) -> None:
    with serve() as server:
        kept = _killed_halfway(server, tmp_path)
        assert 15 <= kept < 45
        before = server.served
        done = subprocess.run(_command(server, tmp_path), capture_output=True, text=True, check=True)
        assert OBJECT.is_in(Path(done.stdout.strip()))
        assert server.served - before <= len(OBJECT.content) - (kept - 4) * GRANULE


@pytest.mark.parametrize("damaged", [False, True])
def test_after_a_reboot_every_claim_is_checked(tmp_path: Path, damaged: bool) -> None:
    with serve() as server:
        kept = _killed_halfway(server, tmp_path)
        journal = tmp_path / "cache" / f"{OBJECT.index.digest}.journal"
        head, rest = journal.read_text().split("\n", 1)
        journal.write_text(f"{head[:-4]}0000\n{rest}")
        if damaged:
            file, number = max(Journal(journal, OBJECT.index.digest).claims)
            path = tmp_path / "cache" / f"{OBJECT.index.digest}.partial" / OBJECT.index.files[file].path
            with path.open("r+b") as out:
                out.seek(number * GRANULE + 5)
                out.write(b"\0damage\0")
        before = server.served
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path / "cache"))
        assert server.served - before <= len(OBJECT.content) - (kept - 5) * GRANULE


def test_a_finished_folder_is_read_through_after_a_reboot_and_mended(tmp_path: Path) -> None:
    with serve() as server:
        folder = OBJECT.fetch(server.url, tmp_path)
        journal = tmp_path / f"{OBJECT.index.digest}.journal"
        asked = len(server.ranges)
        journal.unlink()
        assert OBJECT.fetch(server.url, tmp_path) == folder
        assert len(server.ranges) == asked
        assert Journal(journal, OBJECT.index.digest).same_boot
        with (folder / "sub/model-2.safetensors").open("r+b") as out:
            out.write(b"\0damage\0")
        (folder / "modeling.py").write_text("import os")
        journal.unlink()
        before = server.served
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path))
        assert server.served - before == 1 + GRANULE


def test_a_file_that_vanished_is_fetched_again(tmp_path: Path) -> None:
    with serve() as server:
        (OBJECT.fetch(server.url, tmp_path) / "config.json").unlink()
        before = server.served
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path))
        assert server.served - before == 1 + 700


def test_two_at_once_fetch_once(tmp_path: Path) -> None:
    with serve(rate=1_000_000) as server:
        first, second = (
            subprocess.Popen(
                _command(server, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(2)
        )
        out = [child.communicate(timeout=30) for child in (first, second)]
        assert first.returncode == second.returncode == 0
        assert out[0][0] == out[1][0]
        assert server.served <= len(OBJECT.content)
    assert OBJECT.is_in(tmp_path / "cache" / OBJECT.index.digest)
    assert "waiting for it" in out[0][1] + out[1][1]


Plant = Callable[[Path, Path], object]


@pytest.mark.parametrize(
    "plant",
    [
        lambda partial, outside: (partial / "config.json").symlink_to(outside / "victim"),
        lambda partial, outside: (partial / "config.json").hardlink_to(outside / "victim"),
        lambda partial, outside: (partial / "sub").symlink_to(outside),
        lambda partial, outside: (partial / "config.json").mkdir(),
        lambda partial, outside: os.mkfifo(partial / "config.json"),
        lambda partial, outside: (partial / "extra.py").write_text("import os"),
        lambda partial, outside: (partial / "sub").write_text("a file"),
        lambda partial, outside: (partial.rmdir(), partial.symlink_to(outside)),
        lambda partial, outside: (partial.rmdir(), partial.write_text("a file")),
        lambda partial, outside: partial.with_suffix(".journal").symlink_to(outside / "victim"),
        lambda partial, outside: partial.with_suffix("").symlink_to(outside),
    ],
    ids=[
        "link",
        "second name",
        "linked folder",
        "folder",
        "fifo",
        "extra",
        "file",
        "linked",
        "no folder",
        "journal",
        "final",
    ],
)
def test_nothing_planted_leads_out_of_the_folder(tmp_path: Path, plant: Plant) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim").write_text("untouched")
    partial = tmp_path / "cache" / f"{OBJECT.index.digest}.partial"
    partial.mkdir(parents=True)
    plant(partial, outside)
    with serve() as server:
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path / "cache"))
    assert [path.name for path in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "untouched"


def test_one_connection_is_enough(tmp_path: Path) -> None:
    small: Object = packed({"config.json": 10, "model.safetensors": 3})
    with RangeServer(small.content) as server:
        assert small.is_in(small.fetch(server.url, tmp_path, Limits()))
        assert len(server.ranges) == 2
