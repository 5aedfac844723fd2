"""N curls, each with one range, into preallocated files: as little as a download by ranges can do. Checks nothing.

python floor.py URL INDEX TO N
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cogsmith_runtime.weights import Index


def main(url: str, index: Index, to: Path, count: int) -> int:
    part = -(-index.content // count)
    curls = []
    for member in index.files:
        path = to / member.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            if member.size:
                os.posix_fallocate(file.fileno(), 0, member.size)
        for start in range(0, member.size, part):
            end = min(start + part, member.size)
            with path.open("r+b", buffering=0) as file:
                file.seek(start)
                bytes_ = f"{member.offset + start}-{member.offset + end - 1}"
                trust = ("--cacert", os.environ["SSL_CERT_FILE"])
                curls.append(subprocess.Popen(["curl", "-sSf", *trust, "-r", bytes_, url], stdout=file))
    return max(curl.wait() for curl in curls)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Index.load(Path(sys.argv[2])), Path(sys.argv[3]), int(sys.argv[4])))
