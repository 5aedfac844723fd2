"""What S3 and Google Cloud Storage have in common, through obstore: find, list, read, add, delete, sign."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions

from cogsmith.bucket import Store, Stored
from cogsmith.errors import UserError
from cogsmith.store_errors import Place, code_in, of_obstore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSStore, RetryConfig, S3Store

_SIGNED_FOR = timedelta(hours=12)
RETRIES: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=30)}


def client_options(endpoint: str) -> ClientConfig:
    """How obstore asks an endpoint."""
    return {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=10),
        # Of a whole request: the largest is one part of an upload over a slow line.
        "timeout": timedelta(minutes=10),
        "user_agent": "cogsmith",
    }


class ObjectStore(Store):
    """A prefix in a bucket of an object store. It is asked on first use.

    Args:
        bucket: its name.
        prefix: in front of each key, without slashes around it; empty for none.
    """

    scheme: str

    def __init__(self, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self.name = f"{self.scheme}://{bucket}/{self._prefix}".rstrip("/")

    @property
    @abstractmethod
    def place(self) -> Place:
        """The bucket, as errors name it."""

    @property
    @abstractmethod
    def _store(self) -> S3Store | GCSStore: ...

    def url(self, key: str) -> str:
        return f"{self.name}/{key}"

    def readable(self, key: str) -> str:
        """Signed with these credentials, good for twelve hours at most."""
        with self._errors("signing"):
            return obstore.sign(self._store, "GET", self._key(key), _SIGNED_FOR)

    def find(self, key: str) -> Stored | None:
        with self._errors("reading"):
            try:
                meta = obstore.head(self._store, self._key(key))
            except FileNotFoundError:
                return None
            except exceptions.PermissionDeniedError:
                self._check_hidden(key)
                return None
        return Stored(key, meta["size"], meta["last_modified"])

    def _check_hidden(self, key: str) -> None:
        """Without the permission to list, S3 answers 403 for what is not there. An answer to GET says which 403 it is."""
        try:
            obstore.get_range(self._store, self._key(key), start=0, end=1)
        except exceptions.PermissionDeniedError as error:
            if code_in(str(error)) not in ("AccessDenied", ""):
                raise
        except FileNotFoundError:
            pass

    def objects(self) -> list[Stored]:
        found = []
        with self._errors("listing"):
            for page in obstore.list(self._store, prefix=self._prefix or None):
                for meta in page:
                    key = meta["path"].removeprefix(self._prefix)
                    if "/" not in key:
                        found.append(Stored(key, meta["size"], meta["last_modified"]))
        return sorted(found, key=lambda stored: stored.key)

    def read(self, key: str, start: int, end: int) -> memoryview:
        with self._errors("reading"):
            return memoryview(obstore.get_range(self._store, self._key(key), start=start, end=end))

    def add(self, key: str, data: bytes) -> bool:
        with self._errors("writing"):
            try:
                obstore.put(self._store, self._key(key), data, mode="create")
            except exceptions.AlreadyExistsError:
                if bytes(obstore.get(self._store, self._key(key)).bytes()) != data:
                    raise self.damaged(key) from None
                return False
        return True

    def delete(self, key: str) -> None:
        with self._errors("removing"), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, self._key(key))

    def _key(self, key: str) -> str:
        return self._prefix + key

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except (exceptions.BaseError, OSError) as error:
            raise of_obstore(self.place, error, doing) from None
