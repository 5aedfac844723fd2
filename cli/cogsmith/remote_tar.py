"""A checkpoint in a tar behind https:// -> a folder in the cache: resumed where it was cut off, unpacked once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cogsmith.conversion import locked
from cogsmith.disk import check_room
from cogsmith.errors import UserError
from cogsmith_runtime.weights.index import clash, path_problem

if TYPE_CHECKING:
    import httpx

_TRIES = 4
_PAUSE = 0.5
_SECONDS = 30.0
_OTHER_DISK = "set COGSMITH_CACHE to a folder on a larger disk"

Progress = Callable[[int, int], None]


class _PassingError(UserError):
    """One that may be over at the next try."""


@dataclass(frozen=True)
class Version:
    """What a server says of an object: its size in bytes, and a tag that changes when it does."""

    size: int
    tag: str


@dataclass(frozen=True)
class Unpacked:
    """The folder that holds the model, and the sha256 of the tar that it was in."""

    folder: Path
    sha256: str


def fetch_tar(url: str, cache: Path, progress: Progress | None = None) -> Unpacked:
    """Download and unpack a tar, unless the one that is there now was already.

    Args:
        cache: folders are kept below it, by address.
        progress: called with (bytes that came, bytes to come).

    Raises:
        UserError: it cannot be downloaded, or is no tar of plain files.
    """
    place = cache / "sources" / hashlib.sha256(url.encode()).hexdigest()[:32]
    place.mkdir(parents=True, exist_ok=True)
    with locked(place):
        with _errors(url):
            version = _version(url)
        known = _known(place, version)
        if known is not None:
            return known
        check_room(place, 2 * version.size, f"download and unpack {url}", _OTHER_DISK)
        tar = _download(url, version, place, progress)
        with tar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        folder = place / digest
        if not folder.is_dir():
            _unpack(url, tar, folder)
        tar.unlink()
        (place / "version.json").write_text(json.dumps({**asdict(version), "sha256": digest}))
    return Unpacked(_model_in(folder), digest)


def _known(place: Path, version: Version) -> Unpacked | None:
    try:
        note = json.loads((place / "version.json").read_text())
    except (OSError, ValueError):
        return None
    digest = note.pop("sha256", "")
    folder = place / digest
    same = bool(version.tag) and note == asdict(version) and bool(digest) and folder.is_dir()
    return Unpacked(_model_in(folder), digest) if same else None


def _version(url: str) -> Version:
    with _client() as client:
        answer = client.head(url)
        answer.raise_for_status()
    length = answer.headers.get("Content-Length", "")
    if not length.isdigit():
        raise UserError(
            f"{url} does not say how long it is", "serve it by a server that sends Content-Length"
        )
    return Version(int(length), answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")


def _client() -> httpx.Client:
    import httpx

    def only_https(request: httpx.Request) -> None:
        if request.url.scheme != "https":
            raise UserError(
                f"a redirect leads to {request.url.scheme}://{request.url.host}", "serve it over https"
            )

    return httpx.Client(follow_redirects=True, timeout=_SECONDS, event_hooks={"request": [only_https]})


def _download(url: str, version: Version, place: Path, progress: Progress | None) -> Path:
    """The whole tar. What an earlier run got is gone on with if the server still has the same object."""
    tar, note = place / "model.tar.partial", place / "partial.json"
    if not version.tag or not note.is_file() or note.read_text() != json.dumps(asdict(version)):
        tar.unlink(missing_ok=True)
    note.write_text(json.dumps(asdict(version)))
    tar.touch()
    failures = 0
    while (before := tar.stat().st_size) < version.size:
        try:
            with _errors(url):
                _append(url, version, tar, progress)
        except _PassingError:
            # Every try that got further counts as none.
            failures = 1 if tar.stat().st_size > before else failures + 1
            if failures == _TRIES:
                raise
            time.sleep(_PAUSE * failures)
    note.unlink()
    return tar


def _append(url: str, version: Version, tar: Path, progress: Progress | None) -> None:
    position = tar.stat().st_size
    headers = {"Accept-Encoding": "identity"}
    if position:
        headers |= {"Range": f"bytes={position}-", "If-Range": version.tag}
    with _client() as client, client.stream("GET", url, headers=headers) as answer:
        answer.raise_for_status()
        if position and answer.status_code != 206:
            position = 0  # another object by now, or a server without ranges
        elif position and not answer.headers.get("Content-Range", "").startswith(f"bytes {position}-"):
            raise UserError(f"{url} answers with another range than was asked for", "try again")
        start = position
        with tar.open("r+b") as file:
            file.truncate(position)
            file.seek(position)
            for block in answer.iter_raw():
                position += len(block)
                if position > version.size:
                    raise UserError(f"{url} is longer than it says", "try again")
                file.write(block)
                if progress:
                    progress(position - start, version.size - start)


@contextlib.contextmanager
def _errors(url: str) -> Iterator[None]:
    import httpx

    try:
        yield
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        message = f"{url} cannot be read ({status})"
        if status >= 500 or status == 429:
            raise _PassingError(message, "try again later") from None
        hint = "check the address" if status in (404, 410) else "it must be readable without a password"
        raise UserError(message, hint) from None
    except httpx.TooManyRedirects:
        raise UserError(f"{url} leads in circles", "check the address") from None
    except httpx.TransportError as error:
        said = "does not answer in time" if isinstance(error, httpx.TimeoutException) else "cannot be reached"
        reason = str(error).partition("\n")[0][:120]
        raise _PassingError(
            f"{url} {said} ({reason})", "check the address, the network and the proxy"
        ) from None


def _unpack(url: str, tar: Path, folder: Path) -> None:
    """All of it or nothing: a tar comes from anyone, and so do the names in it."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with tarfile.open(tar, "r:") as archive:
            members = [member for member in archive.getmembers() if not member.isdir()]
            _check_members(url, members)
            partial.mkdir()
            for member in members:
                archive.extract(member, partial, set_attrs=False, filter="data")
        partial.rename(folder)
    except (tarfile.TarError, EOFError) as error:
        tar.unlink(missing_ok=True)
        message = f"{url} is no whole uncompressed tar ({str(error)[:80]})"
        raise UserError(message, "pack the folder again with plain `tar cf`") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_members(url: str, members: list[tarfile.TarInfo]) -> None:
    for member in members:
        member.name = member.name.removeprefix("./")
        problem = path_problem(member.name)
        if not member.isreg():
            problem = "is a link or a device, not a plain file"
        if problem:
            raise UserError(f"{url}: {member.name!r} {problem}", "leave it out of the tar")
    if pair := clash(member.name for member in members):
        raise UserError(
            f"{url}: {pair[0]!r} and {pair[1]!r} are one and the same on some disks", "rename one of them"
        )


def _model_in(folder: Path) -> Path:
    """The folder itself, or the only one in it: many a tar was made from outside of the model's folder."""
    inner = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if not (folder / "config.json").exists() and len(inner) == 1 and inner[0].is_dir():
        return inner[0]
    return folder
