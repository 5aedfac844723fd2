"""boto3 as an uploader: of a file, or of a tar that is made while it is sent.

python upload_boto3.py file|tarfile|stdin FROM BUCKET KEY [tuned]
"""

from __future__ import annotations

import os
import sys
import tarfile
import threading
from pathlib import Path

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config


def main(what: str, source: str, bucket: str, key: str, tuned: bool) -> None:
    # By default: parts of 8 MiB, ten threads, a CRC of each part.
    parts, options = TransferConfig(), Config()
    if tuned:
        parts = TransferConfig(multipart_chunksize=32 << 20, max_concurrency=16)
        # Neither a CRC nor a sha256 of what is sent.
        options = Config(
            request_checksum_calculation="when_required",
            s3={"payload_signing_enabled": False},
            max_pool_connections=16,
        )
    client = boto3.client("s3", config=options)
    if what == "file":
        client.upload_file(source, bucket, key, Config=parts)
    elif what == "stdin":
        client.upload_fileobj(sys.stdin.buffer, bucket, key, Config=parts)
    else:
        read, write = os.pipe()
        threading.Thread(target=_write_tar, args=(Path(source), write)).start()
        with os.fdopen(read, "rb") as stream:
            client.upload_fileobj(stream, bucket, key, Config=parts)


def _write_tar(folder: Path, pipe: int) -> None:
    # As long as that of GNU tar.
    form = tarfile.GNU_FORMAT
    with os.fdopen(pipe, "wb") as stream, tarfile.open(mode="w|", fileobj=stream, format=form) as tar:
        tar.add(folder, ".")


if __name__ == "__main__":
    main(*sys.argv[1:5], tuned="tuned" in sys.argv[5:])
