"""Each uploader once against moto's S3 server, which keeps what it is sent: are those the bytes?"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import boto3
from peers import OURS
from servers import free_port, wait
from uploaders import BUCKET, Job, commands, environment
from watch import run

_BLOCK = 1 << 20


def check(job: Job, packed: Path, folder: Path, limit: float) -> dict[str, str]:
    """What is wrong with each command; empty if nothing is.

    Args:
        packed: the tar that `cogsmith pack` makes of the model in a folder.
        folder: where moto may keep what comes, in memory.
        limit: seconds for each command.
    """
    wrong = {}
    with _moto(folder) as endpoint:
        settings = environment(endpoint)
        store = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=settings["AWS_REGION"],
            aws_access_key_id=settings["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=settings["AWS_SECRET_ACCESS_KEY"],
        )
        store.create_bucket(Bucket=BUCKET)
        for name, command in commands().items():
            done = run(command(job), settings, limit)
            keys = [entry["Key"] for entry in store.list_objects_v2(Bucket=BUCKET).get("Contents", ())]
            tars = [key for key in keys if key.endswith(".tar")]
            if done.error or len(tars) != 1:
                wrong[name] = done.error or f"exit 0, but {len(tars)} tars in the bucket"
            else:
                body = store.get_object(Bucket=BUCKET, Key=tars[0])["Body"]
                if not (_same_bytes(packed, body) if name == OURS else _same_members(job.model, body)):
                    wrong[name] = "exit 0, but the object is not the model"
            for key in keys:
                store.delete_object(Bucket=BUCKET, Key=key)
    return wrong


@contextlib.contextmanager
def _moto(folder: Path) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env={"TMPDIR": str(folder)}, stdout=quiet, stderr=quiet)
    try:
        wait(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _same_bytes(path: Path, body: IO[bytes]) -> bool:
    with path.open("rb") as file:
        return _same(file, body)


def _same_members(model: Path, body: IO[bytes]) -> bool:
    """Whether a tar holds the files of the model, and no others."""
    names = set()
    with tarfile.open(mode="r|", fileobj=body) as tar:
        for member in tar:
            if member.isfile():
                name = member.name.removeprefix("./")
                names.add(name)
                inside = tar.extractfile(member)
                assert inside is not None
                with (model / name).open("rb") as file:
                    if not _same(file, inside):
                        return False
    return names == {path.name for path in model.iterdir()}


def _same(one: IO[bytes], other: IO[bytes]) -> bool:
    while block := one.read(_BLOCK):
        # A body ends a read early where it likes.
        rest = block
        while rest:
            piece = other.read(len(rest))
            if not piece or piece != rest[: len(piece)]:
                return False
            rest = rest[len(piece) :]
    return not other.read(1)
