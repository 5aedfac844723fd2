"""The weights' path whole: packed, served by nginx, read by the reader, alone and inside Cog's own server with the real vLLM."""

from __future__ import annotations

import contextlib
import filecmp
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from crc32c import crc32c

from checkpoints import write_safetensors
from cogsmith import environment
from cogsmith.checkpoint import Checkpoint
from cogsmith.layout import layout
from cogsmith.local import LocalServer, free_port
from cogsmith.paths import Project
from cogsmith.read_files import index_of
from cogsmith.source import read_source
from cogsmith.spec import load_spec
from cogsmith.verbs.render import planned, render
from cogsmith_runtime.weights import Index, Member, verify
from cogsmith_runtime.weights.index import GRANULE
from cogsmith_runtime.weights.journal import Journal
from cogsmith_runtime.weights.plan import granules
from s3_server import Proxy

from . import nginx
from .conftest import cogsmith
from .served import leftovers, processes, wait_for

MEBIBYTE = 1 << 20
BIG = 6 << 30


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk with room for what is fetched; what is packed has holes. Gone after the test."""
    free = shutil.disk_usage(tmp_path).free
    assert free > BIG + (1 << 30), (
        f"{tmp_path} has {free / 1e9:.1f} GB free, and this test takes 7.5: set TMPDIR"
    )
    folder = tmp_path / "room"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def pack_with_holes(folder: Path) -> Index:
    """big.tar with one file of more than 6 GiB: zeros but for a mark at the start of each granule."""
    write_safetensors(folder / "model.safetensors", {"weight": (BIG // 2,)})
    plan = layout(folder, ["model.safetensors"])
    [entry] = plan.entries
    with (folder / "model.safetensors").open("rb") as file:
        head = file.read(4096).rstrip(b"\0")
    digest, sums = hashlib.sha256(), ""
    with (folder / "big.tar").open("wb") as tar:
        tar.write(entry.header)
        for position in range(0, entry.size, GRANULE):
            start = mark(position) if position else head
            granule = (start + bytes(GRANULE - len(start)))[: entry.size - position]
            digest.update(granule)
            sums += f"{crc32c(granule):08x}"
            tar.seek(entry.offset + position)
            tar.write(start)
        tar.truncate(plan.size)
    assert (folder / "big.tar").stat().st_blocks * 512 < BIG / 8, (
        f"the disk of {folder} keeps no holes: set TMPDIR"
    )
    index = index_of(plan, [Member(entry.path, entry.offset, entry.size, digest.hexdigest(), sums)])
    (folder / "weights.json").write_text(index.dumps())
    return index


def mark(position: int) -> bytes:
    return position.to_bytes(8, "big") + b"mark"


def run_and_watch(command: list[str]) -> tuple[str, int]:
    """The standard output of a command that succeeds, and its VmHWM in bytes: all that was ever resident, its libraries too.

    Not getrusage: there a child begins with what its parent had.
    """
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
            peak = max([peak, *(int(line.split()[1]) * 1024 for line in lines)])
            time.sleep(0.02)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0
    return output, peak


def test_six_gibibytes_arrive_where_they_belong_in_little_memory(room: Path) -> None:
    index = pack_with_holes(room)
    with nginx.serve(room, room / "nginx") as server:
        command = [sys.executable, "-m", "cogsmith_runtime.weights", "--index", str(room / "weights.json")]
        output, peak = run_and_watch([*command, "--url", f"{server.url}/big.tar", "--to", str(room / "to")])
    assert Path(output.strip()) == room / "to" / index.digest
    assert peak < 120 * MEBIBYTE, peak
    with (room / "to" / index.digest / "model.safetensors").open("rb") as file:
        assert file.seek(0, os.SEEK_END) == index.files[0].size > BIG
        for position in range(GRANULE, index.files[0].size, GRANULE):
            file.seek(position - 4096)
            assert file.read(4096 + 12) == bytes(4096) + mark(position), position


# Packed to a bucket of S3 and to a folder


@pytest.fixture(scope="module")
def source(project: Path) -> Checkpoint:
    """The demo model's files, as they are packed."""
    with contextlib.chdir(project):
        here = Project.here()
        return read_source(load_spec(here.spec_path("smol")), here).whole()


def tar_of(root: Path) -> Path:
    """The one tar in the bucket of a project."""
    [tar] = (root / ".bucket").glob("*.tar")
    return tar


def packed(root: Path) -> dict[str, Any]:
    done = cogsmith(root, "pack", "smol", "--format", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_bucket_of_s3_gets_what_a_folder_gets_and_gets_it_once(
    project: Path, store: Proxy, tmp_path: Path
) -> None:
    local = packed(project)
    (tmp_path / "models").mkdir()
    (tmp_path / "weights").symlink_to(project / "weights")
    spec = (project / "models/smol.yaml").read_text() + "weights: {bucket: s3://models/llm}\n"
    (tmp_path / "models/smol.yaml").write_text(spec)
    there = packed(tmp_path)
    assert there["url"] == f"s3://models/llm/{local['digest']}.tar"
    assert {**there, "url": None} == {**local, "url": None}
    assert store.sent == there["size"]
    body = store.s3.get_object(Bucket="models", Key=f"llm/{local['digest']}.tar")["Body"]
    assert sha256(body) == sha256(tar_of(project).open("rb"))

    store.forget()
    assert packed(tmp_path) == there
    assert {asked.method for asked in store.asked} <= {"GET", "HEAD"}
    # As on another machine, which knows nothing of the first pack.
    shutil.rmtree(tmp_path / ".cogsmith")
    assert packed(tmp_path) == there
    assert store.parts == []
    assert store.sent == 0


def sha256(file: Any) -> str:
    with contextlib.closing(file):
        digest = hashlib.sha256()
        while block := file.read(MEBIBYTE):
            digest.update(block)
        return digest.hexdigest()


@pytest.mark.parametrize("command", [["tar"], ["bsdtar"], ["busybox", "tar"]], ids=lambda command: command[0])
def test_every_tar_program_reads_it(
    command: list[str], project: Path, source: Checkpoint, tmp_path: Path
) -> None:
    nginx.require(command[0])
    tar = tar_of(project)
    listed = subprocess.run([*command, "-tf", tar], capture_output=True, text=True, check=True)
    assert (sorted(listed.stdout.splitlines()), listed.stderr) == (sorted(source.files), "")
    subprocess.run([*command, "-xf", tar, "-C", tmp_path], check=True)
    same_files(source, tmp_path)


def test_python_reads_it(project: Path, source: Checkpoint, tmp_path: Path) -> None:
    with tarfile.open(tar_of(project)) as tar:
        assert sorted(tar.getnames()) == sorted(source.files)
        tar.extractall(tmp_path, filter="data")
    same_files(source, tmp_path)


def same_files(source: Checkpoint, folder: Path) -> None:
    """That a folder holds the source's files and nothing else; empties it."""
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) == sorted(source.files)
    match, other, unread = filecmp.cmpfiles(source.folder, folder, source.files, shallow=False)
    assert (len(match), other, unread) == (len(source.files), [], [])
    shutil.rmtree(folder)


# A boot from HTTP on Cog's own server: killed at half, and started again

# Of one connection, in bytes per second; there is one for each 16 MiB, so that the fetch takes some seven seconds.
RATE = 2_500_000


@dataclass(frozen=True)
class Restarted:
    """A server that was killed at half of its fetch and has started again.

    Attributes:
        state: the folder with its logs.
        folder: the files that were fetched.
        kept: bytes that were on the disk, and claimed, when it was killed.
        first, second: bytes of each answer that nginx gave to the start that was killed, and to the other.
    """

    url: str
    state: Path
    folder: Path
    index: Index
    kept: int
    first: list[int]
    second: list[int]


@pytest.fixture(scope="module")
def restarted(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    root = tmp_path_factory.mktemp("restarted")
    tar, state, cache = tar_of(project), project / ".cogsmith/restarted", root / "cache"
    with contextlib.chdir(project):
        here = Project.here()
        plan = planned(here, "smol")
        render(here, plan)
    assert plan.index is not None
    python = environment.ensure(plan.engine, plan.packages, plan.cog)

    def started(server: nginx.Nginx) -> LocalServer:
        """As a container is; `cogsmith serve` would have it read the bucket's folder."""
        variables = {"COG_WEIGHTS": f"{server.url}/{tar.name}", "COGSMITH_CACHE": str(cache)}
        return LocalServer(project / "build/smol", python, free_port(), plan.concurrency, variables, state)

    with nginx.serve(tar.parent, root / "slow", RATE) as slow, started(slow):
        kept = kill_at_half(plan.index, cache, project)
    with nginx.serve(tar.parent, root / "fast") as fast, started(fast) as server:
        server.wait_ready(300, lambda _: None)
        yield Restarted(
            server.url, state, cache / plan.index.digest, plan.index, kept, slow.sent(), fast.sent()
        )
    assert leftovers(project) == []


def kill_at_half(index: Index, cache: Path, project: Path) -> int:
    """SIGKILL to every process of a server once half of its weights are there; how many bytes are then."""
    sizes = {(granule.file, granule.number): granule.size for granule in granules(index)}

    def claimed() -> int:
        return sum(sizes[key] for key in Journal(cache / f"{index.digest}.journal", index.digest).claims)

    wait_for(lambda: claimed() >= index.content / 2, 120, "half of the weights")
    while left := processes(project):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert not (cache / index.digest).exists()
    return claimed()


def test_a_start_after_a_kill_fetches_only_the_rest(restarted: Restarted) -> None:
    index, kept = restarted.index, restarted.kept
    assert index.content / 2 <= kept < index.content * 0.8
    second = sum(restarted.second)
    # Besides the files there are the first byte, asked for alone, and what lies between small files.
    assert index.content - kept <= second <= index.content - kept + MEBIBYTE
    assert second < index.size * 0.6
    # Only what was under way is sent twice: of each connection at most the granule that was not whole yet.
    assert sum(restarted.first) + second <= index.size + MEBIBYTE + len(restarted.first) * GRANULE
    assert verify(index, restarted.folder) == []


def test_the_boot_report_shows_the_fetch(restarted: Restarted, project: Path) -> None:
    phases = {
        phase["phase"]: phase for phase in json.loads((restarted.state / "boot.json").read_text())["phases"]
    }
    assert list(phases) == ["fetch", "verify", "engine_import", "load", "warm_up"]
    fetch = phases["fetch"]
    assert fetch["bytes"] == restarted.index.content - restarted.kept
    assert fetch["bytes_per_second"] > 0
    assert 0 < fetch["connections"] < len(restarted.second)
    for name in ("server.log", "boot.json"):
        done = cogsmith(project, "status", "--boot", str(restarted.state / name))
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        names = ["fetch", "verify", "engine import", "load", "warm-up", "ready after"]
        assert [line[:14].strip() for line in lines] == names
        assert all("█" in line for line in lines[:-1])
        assert f"{fetch['bytes'] / 1e9:.3f} GB" in lines[0]
        assert f"{fetch['connections']} connections" in lines[0]


def test_what_was_fetched_answers(restarted: Restarted) -> None:
    inputs = {"prompt": "What is the capital of France?", "temperature": 0, "max_tokens": 40}
    answer = httpx.post(f"{restarted.url}/predictions", json={"input": inputs}, timeout=120).json()
    assert "Paris" in "".join(answer["output"]), answer
