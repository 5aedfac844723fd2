"""The reader without its checksums: with an index in which every crc32c is 0, and a crc32c that is always 0."""

from __future__ import annotations

import sys

from cogsmith_runtime.weights import __main__, scatter

scatter.crc32c = lambda _view, _crc: 0

if __name__ == "__main__":
    sys.exit(__main__.main())
