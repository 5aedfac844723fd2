"""The only file that talks to the Hugging Face Hub: a revision's commit and files, headers by ranges, downloads.

The client is imported when it is used: it takes longer to import than all of cogsmith.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cogsmith.disk import check_room
from cogsmith.errors import UserError
from cogsmith.model_address import HubAddress, is_commit
from cogsmith.safetensors import MAX_HEADER

if TYPE_CHECKING:
    from tqdm.auto import tqdm

# Holds the header of most files, so that one request does.
_FIRST_READ = 16 << 10
_CONNECTIONS = 8
_SECONDS = 30.0
_NOTE = ".hub.json"

Progress = Callable[[int, int], None]


class UnreachableError(UserError):
    """Nothing answers, or requests are switched off: what is in the cache may still do."""


@dataclass(frozen=True)
class RemoteFile:
    """Size in bytes; the sha256 of a large file, None of a small one."""

    size: int
    sha256: str | None


@dataclass(frozen=True)
class Commit:
    """One commit of a repository, and its files by path."""

    address: HubAddress
    sha: str
    files: dict[str, RemoteFile]


def resolve(address: HubAddress, revision: str | None = None) -> Commit:
    """The commit that a revision is now, with sizes and sums of its files.

    Args:
        revision: instead of the one that the address names.

    Raises:
        UserError: there is no such repository or revision, no access; UnreachableError without a network.
    """
    wanted = revision or address.branch
    with _errors(address, wanted):
        from huggingface_hub import HfApi

        info = HfApi().model_info(address.repo, revision=wanted, files_metadata=True, timeout=_SECONDS)
        if info.sha is None or info.siblings is None:
            raise UserError(f"{_endpoint()} does not say which commit {address.url} is at", _CHECK_ENDPOINT)
    files = {
        item.rfilename: RemoteFile(item.size or 0, item.lfs.sha256 if item.lfs else None)
        for item in info.siblings
    }
    return Commit(address, info.sha, files)


def read_headers(commit: Commit, names: Sequence[str], cache: Path) -> Path:
    """A folder with the files of these names, in which the safetensors files are holes but for their headers.

    Each has its full length, so that the folder reads like the model itself. It is kept below `cache`.

    Raises:
        UserError: as `resolve`, or the Hub does not answer as it should.
    """
    folder = _headers_folder(commit.address, commit.sha, cache)
    folder.mkdir(parents=True, exist_ok=True)
    absent = [name for name in names if not (folder / name).is_file()]
    small = [name for name in absent if not name.endswith(".safetensors")]
    if small:
        whole = download(commit, small)
        for name in small:
            _put(folder / name, partial(shutil.copyfile, whole / name))
    shards = [name for name in absent if name.endswith(".safetensors")]
    with _errors(commit.address, commit.sha), ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(lambda name: _fetch_header(commit, name, folder / name), shards))
    note = {name: asdict(file) for name, file in commit.files.items()}
    _put(folder / _NOTE, lambda path: path.write_text(json.dumps(note)))
    return folder


def known_commit(address: HubAddress, sha: str, cache: Path) -> Commit | None:
    """What `read_headers` noted of a commit: commits do not change, so it need not be asked again."""
    try:
        note = json.loads((_headers_folder(address, sha, cache) / _NOTE).read_text())
        return Commit(address, sha, {name: RemoteFile(**file) for name, file in note.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def download(commit: Commit, names: Sequence[str], progress: Progress | None = None) -> Path:
    """Bring these files into the Hub client's own cache, and return the folder of that commit there.

    Args:
        progress: called with (bytes that came, bytes to come in all); not at all where everything is in the cache.

    Raises:
        UserError: as `resolve`, a full disk, or a file that does not come whole.
    """
    with _errors(commit.address, commit.sha):
        from huggingface_hub import snapshot_download, try_to_load_from_cache
        from huggingface_hub.constants import HF_HUB_CACHE

        absent = [
            name
            for name in names
            if not isinstance(try_to_load_from_cache(commit.address.repo, name, revision=commit.sha), str)
        ]
        needed = sum(commit.files[name].size for name in absent)
        check_room(
            Path(HF_HUB_CACHE),
            needed,
            f"download {commit.address.url}",
            "set HF_HOME to a folder on a larger disk",
        )
        report = _Report(progress, needed)
        folder = Path(
            snapshot_download(
                commit.address.repo,
                revision=commit.sha,
                allow_patterns=[_literal(name) for name in names],
                tqdm_class=_bar(report),
            )
        )
    for name in names:
        _check_size(commit, folder, name)
    return folder


def cached(address: HubAddress, revision: str | None) -> Path | None:
    """The folder of a revision in the Hub client's cache, whatever it holds; None where it is not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(
            address.repo,
            revision=revision or address.branch,
            local_files_only=True,
            allow_patterns=["config.json"],
        )
    except LocalEntryNotFoundError:
        return None
    return Path(found)


_CHECK_ENDPOINT = "check HF_ENDPOINT, the proxy and the firewall"


def _headers_folder(address: HubAddress, sha: str, cache: Path) -> Path:
    return cache / "headers" / address.repo.replace("/", "--") / sha


def _put(path: Path, write: Callable[[Path], object]) -> None:
    """Whole or not at all, whoever else is at it."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _fetch_header(commit: Commit, name: str, target: Path) -> None:
    size = commit.files[name].size
    head = _range(commit, name, 0, min(_FIRST_READ, size))
    length = int.from_bytes(head[:8], "little")
    # A length that makes no sense is told by who reads the folder.
    if len(head) == _FIRST_READ < 8 + length <= min(size, MAX_HEADER):
        head += _range(commit, name, len(head), 8 + length)

    def write(path: Path) -> None:
        path.write_bytes(head)
        with path.open("r+b") as file:
            file.truncate(size)

    _put(target, write)


def _range(commit: Commit, name: str, start: int, end: int) -> bytes:
    """The bytes start to end of a file; a server that ignores the range is left as soon as they are here."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

    if start == end:
        return b""
    url = hf_hub_url(commit.address.repo, name, revision=commit.sha)
    headers = {**build_hf_headers(), "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    with http_stream_backoff(
        "GET", url, headers=headers, timeout=_SECONDS, follow_redirects=True
    ) as response:
        hf_raise_for_status(response)
        position = start if response.status_code == 206 else 0
        data = b""
        for block in response.iter_bytes():
            data += block
            if position + len(data) >= end:
                break
    part = data[start - position : end - position]
    if len(part) < end - start:
        raise UserError(f"{commit.address.url}: the header of {name} was cut short", "try again")
    return part


def _literal(name: str) -> str:
    """A glob that matches this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _check_size(commit: Commit, folder: Path, name: str) -> None:
    path = folder / name
    size = path.stat().st_size if path.is_file() else None
    if size != commit.files[name].size:
        said = "is not there" if size is None else f"has {size} bytes, must have {commit.files[name].size}"
        raise UserError(f"{path} {said}", "remove it, so that it is downloaded again")


class _Report:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def add(self, size: float) -> None:
        self._done = min(self._done + int(size), self._total)
        if self._progress:
            self._progress(self._done, self._total)


def _bar(report: _Report) -> type[tqdm[Any]]:
    """A progress bar of the client that draws nothing, and tells our own what was written to disk."""
    from huggingface_hub.utils import tqdm as client_tqdm

    class Bar(client_tqdm):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._counts = options.get("name") == "huggingface_hub.snapshot_download"
            super().__init__(*arguments, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, count: float | None = 1) -> None:
            if self._counts:
                report.add(count or 0)

    return Bar


@contextlib.contextmanager
def _errors(address: HubAddress, revision: str) -> Iterator[None]:
    """What the client raises as one clear line. Its own texts are not passed on: they may hold signed addresses."""
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        raise UserError(
            f"{address.url} is gated, and you have no access to it", _gated_hint(address)
        ) from None
    except errors.RevisionNotFoundError:
        raise _no_revision(address, revision) from None
    except errors.RepositoryNotFoundError:
        raise _no_repository(address) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise _not_here(address, error) from None
    except errors.HfHubHTTPError as error:
        raise _refused(address, error.response.status_code) from None
    except errors.FileMetadataError:
        raise UserError(f"{_endpoint()} does not answer like the Hugging Face Hub", _CHECK_ENDPOINT) from None
    except httpx2.TransportError as error:
        raise _unreachable(address, error) from None


def _gated_hint(address: HubAddress) -> str:
    page = f"https://huggingface.co/{address.repo}"
    if _has_token():
        return f"accept its terms on {page} with the account of your token, and let the token read gated repositories"
    return f"accept its terms on {page}, then run `hf auth login` or set HF_TOKEN"


def _no_revision(address: HubAddress, revision: str) -> UserError:
    if is_commit(revision) and not address.is_commit:
        message = f"{address.url} has no commit {revision[:12]} any more: its history was rewritten"
        return UserError(message, "run `cogsmith lock`, which takes what is there now")
    return UserError(
        f"{address.url} has no revision {revision!r}", "name a branch, a tag or a commit that it has"
    )


def _no_repository(address: HubAddress) -> UserError:
    if _has_token():
        hint = "check the name; if it is private, your token must be of an account that may read it"
    else:
        hint = "check the name; if it is private, run `hf auth login` or set HF_TOKEN"
    return UserError(f"there is no model {address.repo} on {_endpoint()}", hint)


def _not_here(address: HubAddress, error: Exception) -> UserError:
    from huggingface_hub import is_offline_mode

    if is_offline_mode():
        message = f"{address.url} is not in the cache, and HF_HUB_OFFLINE is set"
        return UnreachableError(
            message, f"unset it, or run `hf download {address.repo}` where there is a network"
        )
    return _unreachable(address, error)


def _unreachable(address: HubAddress, error: Exception) -> UserError:
    import httpx2

    slow = isinstance(error, httpx2.TimeoutException)
    said = "does not answer in time" if slow else "cannot be reached"
    message = f"{_endpoint()} {said}, and {address.url} is not in the cache"
    return UnreachableError(
        message, "check the network and the proxy (HTTPS_PROXY); a mirror is named by HF_ENDPOINT"
    )


def _refused(address: HubAddress, status: int) -> UserError:
    if status == 401:
        hint = "run `hf auth login` again, or correct or unset HF_TOKEN"
        return UserError(f"{_endpoint()} does not take your token (401)", hint)
    if status == 403:
        return UserError(
            f"your token may not read {address.url} (403)", "give it the right to read this repository"
        )
    if status == 429:
        return UserError(
            f"{_endpoint()} has had too many requests (429)", "wait some minutes; a token raises the limit"
        )
    return UserError(f"{_endpoint()} answered {status} to a request for {address.url}", "try again later")


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _endpoint() -> str:
    """Where the Hub is taken to be, without a user name or a password."""
    from huggingface_hub.constants import ENDPOINT

    parts = urlsplit(ENDPOINT)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
