"""A checkpoint in a folder of a bucket (s3://, gs://) -> a folder in the cache, by obstore.

Credentials are those of the environment, under the names that the clouds' own tools have for them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cogsmith.conversion import locked
from cogsmith.disk import check_room
from cogsmith.errors import UserError
from cogsmith.model_files import Globs, chosen
from cogsmith_runtime.weights.index import clash, path_problem

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CONNECTIONS = 8
_BLOCK = 8 << 20
_HINTS = {
    "s3": "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or GOOGLE_SKIP_SIGNATURE=true for a public bucket",
}

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class _Object:
    """One object: its key, its name below the prefix, its size, and a tag that changes when it does."""

    key: str
    name: str
    size: int
    tag: str

    @property
    def version(self) -> list[int | str]:
        return [self.size, self.tag]


def fetch_folder(
    url: str, cache: Path, globs: Globs, code: bool = False, progress: Progress | None = None
) -> Path:
    """Bring the model's files of a bucket's folder into the cache; those that are there already are not fetched again.

    Args:
        url: s3://bucket/prefix or gs://bucket/prefix.
        globs, code: which files are the model's; see `chosen`.
        progress: called with (bytes that came, bytes to come in all).

    Raises:
        UserError: no access, nothing there, a full disk, or an object that changes meanwhile.
    """
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    bucket, _, prefix = rest.partition("/")
    place = cache / "sources" / hashlib.sha256(url.encode()).hexdigest()[:32]
    place.mkdir(parents=True, exist_ok=True)
    with locked(place), _errors(url, scheme):
        store = _store(scheme, bucket)
        objects = _listed(store, url, prefix.strip("/") + "/")
        names = set(chosen((item.name for item in objects), globs, code))
        _Fetch(store, url, place, [item for item in objects if item.name in names], progress).run()
    return place


def _store(scheme: str, bucket: str) -> ObjectStore:
    from obstore.store import from_url

    # The default goes on for three minutes where there is no network.
    return from_url(
        f"{scheme}://{bucket}", retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=30)}
    )


def _listed(store: ObjectStore, url: str, prefix: str) -> list[_Object]:
    import obstore

    found = []
    for metas in obstore.list(store, prefix=prefix):
        for meta in metas:
            name = str(meta["path"]).removeprefix(prefix)
            tag = meta["e_tag"] or meta["last_modified"].isoformat()
            found.append(_Object(str(meta["path"]), name, meta["size"], tag))
    if not found:
        raise UserError(f"{url} holds nothing", "check the bucket and the prefix")
    top = [item for item in found if "/" not in item.name and item.name]
    for item in top:
        if problem := path_problem(item.name):
            raise UserError(f"{url}: {item.name!r} {problem}", "rename it, or leave it out")
    if pair := clash(item.name for item in top):
        message = f"{url}: {pair[0]!r} and {pair[1]!r} are one and the same on some disks"
        raise UserError(message, "rename one of them, or leave it out")
    return top


class _Fetch:
    """Files of one folder on their way. A note beside each says which version of the object it is, whole or in part."""

    def __init__(
        self, store: ObjectStore, url: str, place: Path, objects: list[_Object], progress: Progress | None
    ) -> None:
        self._store, self._url, self._place, self._objects = store, url, place, objects
        self._progress = progress
        self._total = self._done = 0
        self._lock = threading.Lock()

    def run(self) -> None:
        wanted = {item.name for item in self._objects}
        for path in self._place.iterdir():
            if not path.name.startswith(".") and path.name not in wanted:
                path.unlink()  # it is not in the bucket any more
        absent = [item for item in self._objects if not self._is_here(item)]
        self._total = needed = sum(item.size for item in absent)
        check_room(
            self._place, needed, f"download {self._url}", "set COGSMITH_CACHE to a folder on a larger disk"
        )
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            try:
                list(pool.map(self._fetch, absent))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _is_here(self, item: _Object) -> bool:
        path = self._place / item.name
        return path.is_file() and path.stat().st_size == item.size and self._noted(item) == item.version

    def _note(self, item: _Object) -> Path:
        return self._place / f".{item.name}.version"

    def _noted(self, item: _Object) -> object:
        try:
            return json.loads(self._note(item).read_text())
        except (OSError, ValueError):
            return None

    def _fetch(self, item: _Object) -> None:
        import obstore

        path, partial = self._place / item.name, self._place / f".{item.name}.partial"
        path.unlink(missing_ok=True)
        if self._noted(item) != item.version:
            partial.unlink(missing_ok=True)
            self._note(item).write_text(json.dumps(item.version))
        with partial.open("ab") as file:
            position = file.tell()
            self._add(position)
            if position < item.size:
                answer = obstore.get(self._store, item.key, options={"range": {"offset": position}})
                meta = answer.meta
                tag = meta["e_tag"] or meta["last_modified"].isoformat()
                if [meta["size"], tag] != item.version:
                    raise UserError(f"{self._url}/{item.name} changed meanwhile", "try again")
                for block in answer.stream(min_chunk_size=_BLOCK):
                    file.write(block)
                    self._add(len(block))
            size = file.tell()
        if size != item.size:
            partial.unlink()
            raise UserError(
                f"{self._url}/{item.name} has {size} bytes, the bucket lists {item.size}", "try again"
            )
        partial.rename(path)

    def _add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if self._progress:
                self._progress(self._done, self._total)


@contextlib.contextmanager
def _errors(url: str, scheme: str) -> Iterator[None]:
    """What obstore raises as one line. Its own texts are long, and may hold what identifies an account."""
    from obstore import exceptions

    try:
        yield
    except FileNotFoundError as error:
        if error.filename is not None:
            raise
        raise UserError(f"{url} is not there", "check the bucket and the prefix") from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
        raise UserError(f"{url} may not be read with these credentials", _HINTS[scheme]) from None
    except exceptions.BaseError as error:
        text = str(error)
        status = re.search(r"status code: (\d{3})", text)
        if status and status[1] == "404":
            raise UserError(f"{url} is not there", "check the bucket and the prefix") from None
        if status and status[1] in ("401", "403") and "169.254.169.254" not in text:
            raise UserError(f"{url} may not be read with these credentials", _HINTS[scheme]) from None
        if "169.254.169.254" in text or "metadata" in text:
            raise UserError(f"there are no credentials for {url}", _HINTS[scheme]) from None
        said = f"answered {status[1]}" if status else "cannot be reached"
        hint = "check the network, AWS_ENDPOINT_URL and AWS_REGION" if scheme == "s3" else "check the network"
        raise UserError(f"the storage of {url} {said}", hint) from None
