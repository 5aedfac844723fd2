"""The commands that are compared: each puts the files of the model into a bucket, as one tar."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peers import HERE, OURS

BUCKET = "models"
_BOTO3 = f"{sys.executable} {HERE / 'upload_boto3.py'}"
_S5CMD = "tar | s5cmd pipe"
_S5CMD_TUNED = "tar | s5cmd pipe, tuned"
UPLOAD_FILEOBJ = "tarfile, boto3 upload_fileobj"
PROGRAMS = {
    "nginx": ["nginx", "-v"],
    "boto3": [sys.executable, "-c", "import boto3; print(boto3.__version__)"],
    "s5cmd": ["s5cmd", "version"],
    "tar": ["tar", "--version"],
}
"""Name -> command that says its version."""


@dataclass(frozen=True)
class Job:
    """What is packed.

    Attributes:
        project: a folder of cogsmith's whose spec `bench` names the model and the bucket.
        model: the folder with its files.
        tar: where one may be written, in memory as the model is.
        key: of the object, where the command may choose it.
    """

    project: Path
    model: Path
    tar: Path
    key: str


Command = Callable[[Job], list[str]]


def _shell(text: str) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", text]


def _upload_file(job: Job) -> list[str]:
    return _shell(
        f"tar c -C {job.model} -f {job.tar} .; {_BOTO3} file {job.tar} {BUCKET} {job.key}; rm {job.tar}"
    )


def _upload_fileobj(job: Job) -> list[str]:
    return _shell(f"{_BOTO3} tarfile {job.model} {BUCKET} {job.key}")


def _upload_fileobj_tuned(job: Job) -> list[str]:
    return _shell(f"tar c -C {job.model} . | {_BOTO3} stdin - {BUCKET} {job.key} tuned")


def _s5cmd(job: Job) -> list[str]:
    return _shell(f"tar c -C {job.model} . | s5cmd pipe s3://{BUCKET}/{job.key}")


def _s5cmd_tuned(job: Job) -> list[str]:
    return _shell(f"tar c -C {job.model} . | s5cmd pipe -p 16 -c 16 s3://{BUCKET}/{job.key}")


def _ours(job: Job) -> list[str]:
    return _shell(f"cd {job.project}; {sys.executable} -m cogsmith pack --quiet bench")


def commands() -> dict[str, Command]:
    """Name -> command, in the order of the table; those that are not installed are left out."""
    found: dict[str, Command] = {
        "tar to memory, boto3 upload_file": _upload_file,
        UPLOAD_FILEOBJ: _upload_fileobj,
        "tar | boto3 upload_fileobj, tuned": _upload_fileobj_tuned,
    }
    if shutil.which("s5cmd"):
        found |= {_S5CMD: _s5cmd, _S5CMD_TUNED: _s5cmd_tuned}
    return found | {OURS: _ours}


def absent() -> list[str]:
    """The uploaders that this machine lacks."""
    return [] if shutil.which("s5cmd") else [_S5CMD, _S5CMD_TUNED]


def environment(endpoint: str, certificate: Path | None = None) -> dict[str, str]:
    """What leads every one of them to a server."""
    trust = {"AWS_CA_BUNDLE": str(certificate), "SSL_CERT_FILE": str(certificate)} if certificate else {}
    return trust | {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": endpoint,
        "S3_ENDPOINT_URL": endpoint,
    }
