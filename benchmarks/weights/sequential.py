"""File after file over one connection, as huggingface_hub downloads where no faster way is installed: httpx, 10 MiB blocks,
five tries, each going on at the byte. Checks nothing.

python sequential.py URL INDEX TO
"""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path

import httpx

from cogsmith_runtime.weights import Index

_BLOCK = 10 << 20
_TRIES = 5


def main(url: str, index: Index, to: Path) -> None:
    with httpx.Client(verify=ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])) as client:
        for member in index.files:
            path = to / member.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                _fetch(client, f"{url}{member.path}", member.size, file)


def _fetch(client: httpx.Client, url: str, size: int, file: object) -> None:
    left = _TRIES
    while True:
        done = file.tell()
        try:
            headers = {"Range": f"bytes={done}-", "Accept-Encoding": "identity"}
            with client.stream("GET", url, headers=headers if done else {}) as response:
                response.raise_for_status()
                for block in response.iter_bytes(_BLOCK):
                    file.write(block)
                    left = _TRIES
        except httpx.HTTPError:
            left -= 1
            if not left:
                raise
        if file.tell() == size:
            return


if __name__ == "__main__":
    main(sys.argv[1], Index.load(Path(sys.argv[2])), Path(sys.argv[3]))
