"""A bucket of Google Cloud Storage, through obstore. Tried only against a local server, never against Google's."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import obstore
from crc32c import crc32c
from obstore.store import GCSStore

from cogsmith.bucket import Unfinished
from cogsmith.object_store import RETRIES, ObjectStore, client_options
from cogsmith.progress import Reporter
from cogsmith.read_files import changed_in, read_range
from cogsmith.store_errors import Place
from cogsmith.verify import check_ends

if TYPE_CHECKING:
    from obstore.store import GCSConfig, GCSCredential

    from cogsmith.layout import Layout
    from cogsmith.progress import Progress
    from cogsmith.read_files import Summed

_GOOGLE = "https://storage.googleapis.com"
_SMALLEST_PART = 8 << 20
_MOST_PARTS = 10_000
# Each holds one part in memory.
_CONNECTIONS = 8


class GsBucket(ObjectStore):
    """gs://bucket/prefix. Credentials: GOOGLE_APPLICATION_CREDENTIALS, those of `gcloud auth application-default login`,
    or the machine's own. STORAGE_EMULATOR_HOST names another server, which is asked without any.
    """

    scheme = "gs"

    @functools.cached_property
    def _endpoint(self) -> str:
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
        if not emulator:
            return _GOOGLE
        return emulator if "://" in emulator else f"http://{emulator}"

    @functools.cached_property
    def place(self) -> Place:
        return Place(
            f"gs://{self._bucket}",
            self._endpoint,
            "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`",
            "check the network and STORAGE_EMULATOR_HOST",
        )

    @functools.cached_property
    def _store(self) -> GCSStore:
        emulated = self._endpoint != _GOOGLE
        config: GCSConfig = {"base_url": self._endpoint} if emulated else {}
        with self._errors("signing"):
            return GCSStore(
                self._bucket,
                config=config,
                client_options=client_options(self._endpoint),
                retry_config=RETRIES,
                credential_provider=_nobody if emulated else None,
            )

    def check_access(self) -> None:
        """By listing, as far as that is allowed: whether writing is shows only when it is tried."""
        with self._errors("listing"):
            try:
                obstore.list(self._store, prefix=self._key(".access-check")).collect()
            except obstore.exceptions.PermissionDeniedError:
                return

    def part_size(self, size: int) -> int:
        mebibyte = 1 << 20
        return max(_SMALLEST_PART, -(-size // _MOST_PARTS // mebibyte) * mebibyte)

    def send(self, key: str, plan: Layout, summed: Summed, progress: Progress | None = None) -> None:
        """As one stream. If it is interrupted the next try starts from the beginning."""
        report = Reporter(progress, plan.size)
        stopped: list[BaseException] = []

        def blocks() -> Iterator[bytes]:
            try:
                yield from _checked(plan, summed, report)
            except BaseException as error:
                stopped.append(error)
                raise

        with self._errors("writing"):
            try:
                obstore.put(
                    self._store,
                    self._key(key),
                    blocks(),
                    use_multipart=True,
                    chunk_size=summed.part,
                    max_concurrency=_CONNECTIONS,
                )
            except Exception:
                if stopped:
                    raise stopped[0] from None
                raise
        report.end()
        if not self.holds(key, plan.size):
            raise self.damaged(key)
        check_ends(self, key, summed.index)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """None: Google removes what it was not told to finish, by the bucket's own rules."""
        return ()

    def give_up(self, upload: Unfinished) -> None:
        raise NotImplementedError


def _nobody() -> GCSCredential:
    """For an emulator: without a token obstore still asks for one before an upload."""
    return {"token": "none", "expires_at": None}


def _checked(plan: Layout, summed: Summed, report: Reporter) -> Iterator[bytes]:
    """The tar, part by part. A file that changed ends it before its last part is handed over, so that no object is made."""
    for number, expected in enumerate(summed.parts):
        start, end = summed.range(number)
        crc = 0
        held = b""
        for block in read_range(plan, start, end):
            if held:
                yield held
            held = bytes(block)
            crc = crc32c(held, crc)
            report.add(len(held))
        if crc != expected:
            raise changed_in(plan, summed.index, start, end)
        yield held
