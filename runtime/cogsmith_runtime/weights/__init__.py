"""weights.json and a place -> files on this machine's disk: in parallel, verified, resumable."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .check import sizes_problem, verify
from .errors import BAD_SOURCE, NO_WEIGHTS, OTHER_OBJECT, WeightsError, bare
from .fetch import Fetched, Progress, fetch
from .index import Index, Member
from .sources import FileSource, Limits, Source
from .web import WebSource

__all__ = [
    "Fetched",
    "Index",
    "Limits",
    "Member",
    "Progress",
    "WeightsError",
    "fetch",
    "obtain",
    "source_of",
    "verify",
]


def obtain(
    weights: str | None, index_path: Path, url: str | None, cache: Path, progress: Progress | None = None
) -> Fetched:
    """The folder with the model's files, fetched if they are not on this disk yet.

    Args:
        weights: where they are, if the host says so (COG_WEIGHTS): a folder (used as it is), or a packed tar, as a
            plain path, file:// or http(s)://. Goes before `url`.
        index_path: weights.json. A folder may come without one.
        url: where they are, as the image says.
        cache: where fetched files are kept, as <cache>/<digest>.
        progress: called a few times a second with (bytes that are there, bytes of all files).

    Raises:
        WeightsError: they cannot be had; says why and what to do.
    """
    where = str(weights or url or "")
    if not where:
        hint = "Set COG_WEIGHTS to the packed tar or to a folder: a path, file:// or https://."
        raise WeightsError(NO_WEIGHTS, "this image does not say where its weights are", hint)
    local = _local(where)
    if local is not None and local.is_dir():
        return Fetched(_in_place(local, index_path))
    index = Index.load(index_path)
    return fetch(index, source_of(where), cache, progress)


def source_of(where: str, limits: Limits | None = None) -> Source:
    """The packed tar at a path, file:// or http(s)://. Raises WeightsError."""
    local = _local(where)
    return WebSource(where, limits or Limits()) if local is None else FileSource(local)


def _local(where: str) -> Path | None:
    """The path that is meant, or None for one of the web."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", where)
    if scheme is None:
        return Path(where)
    name = scheme[1].lower()
    if name in ("http", "https"):
        return None
    if name != "file":
        hint = "Give a path, file:// or https://."
        raise WeightsError(BAD_SOURCE, f"weights cannot be read from {bare(where)}", hint)
    parts = urlsplit(where)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
        hint = "Give file:///ABSOLUTE/PATH, with special characters percent-encoded."
        raise WeightsError(BAD_SOURCE, f"{bare(where)} does not name a file of this machine", hint)
    return Path(unquote(parts.path))


def _in_place(folder: Path, index_path: Path) -> Path:
    if index_path.exists() and (problem := sizes_problem(Index.load(index_path), folder)):
        hint = "Give the folder that was packed, or leave COG_WEIGHTS empty."
        raise WeightsError(OTHER_OBJECT, f"the folder {folder} holds other weights: {problem}", hint)
    return folder
