"""A tar that is nowhere on disk -> an object of S3: parts over many connections, from the files it is made of.

An upload that was interrupted is gone on with: parts that have arrived are not sent again. Each part's CRC-32C is known
from the first pass over the files, so that a file that changed since is found before the object exists.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import random
import re
import ssl
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import urllib3
from botocore.utils import get_environ_proxies
from crc32c import crc32c

from cogsmith.errors import UserError
from cogsmith.multipart import Multipart, Part
from cogsmith.progress import Progress, Reporter, StoppedError
from cogsmith.read_files import FileChangedError, changed_in, read_range
from cogsmith.store_errors import code_in, refused, unreachable

if TYPE_CHECKING:
    from cogsmith.layout import Layout
    from cogsmith.read_files import Summed

# An object store caps each connection, so their number is no function of the cores.
CONNECTIONS = 32
_PASSING = {408, 429, 500, 502, 503, 504}
_PASSING_CODES = {"BadDigest", "ExpiredToken", "RequestTimeout", "SlowDown", "XAmzContentChecksumMismatch"}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a part is tried.

    Attributes:
        tries: failures in a row until it is given up.
        pause: seconds before the second try; doubles with each, up to `longest`.
        timeout: seconds without a sign of life.
    """

    tries: int = 8
    pause: float = 0.5
    longest: float = 20.0
    timeout: float = 60.0


def upload(
    multipart: Multipart,
    plan: Layout,
    summed: Summed,
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> None:
    """Send what is missing, and make the object.

    Args:
        progress: called with (bytes of the tar that are there, its size).

    Raises:
        UserError: a file changed, and then nothing stays; the store fails, and then what was sent stays for the next try.
        ObjectThereError: somebody else was faster.
    """
    report = Reporter(progress, plan.size)
    sender = _Sender(multipart, plan, summed, report, patience or Patience())
    tags = {part.number - 1: part.tag for part in _arrived(multipart, plan, summed)}
    for number in tags:
        start, end = summed.range(number)
        report.add(end - start)
    missing = [number for number in range(len(summed.parts)) if number not in tags]
    with contextlib.closing(sender):
        try:
            tags |= sender.send(missing)
        except FileChangedError:
            # What has arrived is of no weights that there are.
            multipart.give_up()
            raise
    report.end()
    parts = [(tags[number], crc) for number, crc in enumerate(summed.parts)]
    multipart.complete(parts, summed.whole)


def _arrived(multipart: Multipart, plan: Layout, summed: Summed) -> Iterator[Part]:
    """The parts of an earlier try that are what would be sent now."""
    for part in multipart.parts():
        number = part.number - 1
        if number < len(summed.parts):
            start, end = summed.range(number)
            if part.size == end - start and _same(part, plan, summed, start, end):
                yield part


def _same(part: Part, plan: Layout, summed: Summed, start: int, end: int) -> bool:
    expected = summed.parts[part.number - 1]
    if part.crc is not None:
        return part.crc == expected
    # A store without checksums gives the MD5, unless it encrypts with a key of its own.
    if not re.fullmatch(r'"?[0-9a-f]{32}"?', part.tag):
        return False
    digest, crc = hashlib.md5(usedforsecurity=False), 0
    for block in read_range(plan, start, end):
        digest.update(block)
        crc = crc32c(block, crc)
    return digest.hexdigest() == part.tag.strip('"') and crc == expected


class _PassingError(Exception):
    """Worth another try."""

    def __init__(self, final: UserError) -> None:
        super().__init__()
        self.final = final


class _Sender:
    """Sends parts over connections that are kept open from part to part."""

    def __init__(
        self, multipart: Multipart, plan: Layout, summed: Summed, report: Reporter, patience: Patience
    ) -> None:
        self._multipart = multipart
        self._plan = plan
        self._summed = summed
        self._report = report
        self._patience = patience
        self._stopped = threading.Event()
        self._http = _connections(multipart, patience)

    def close(self) -> None:
        self._http.clear()

    def send(self, numbers: list[int]) -> dict[int, str]:
        """Send these parts (from 0); the ETag of each. The first failure ends them all."""
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            futures = {pool.submit(self._send, number): number for number in numbers}
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                failed = [future for future in done if not future.cancelled() and future.exception()]
                if failed:
                    failed[0].result()
            except BaseException:
                # Ctrl-C too: every thread ends at its next block.
                self._stopped.set()
                self._report.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return {number: future.result() for future, number in futures.items()}

    def _send(self, number: int) -> str:
        pause = self._patience.pause
        for attempt in range(1, self._patience.tries + 1):
            try:
                return self._try(number)
            except _PassingError as error:
                if attempt == self._patience.tries:
                    raise error.final from None
            # Spread, so that the connections do not all come back at once.
            if self._stopped.wait(pause * random.uniform(0.5, 1.5)):  # noqa: S311
                break
            pause = min(2 * pause, self._patience.longest)
        raise StoppedError

    def _try(self, number: int) -> str:
        start, end = self._summed.range(number)
        url, headers = self._multipart.signed(number + 1, self._summed.parts[number])
        body = _Body(self._plan, start, end, self._report)
        try:
            answer = self._http.request(
                "PUT",
                url,
                body=cast(Iterable[bytes], body),  # blocks of any kind of bytes are taken
                headers={**headers, "Content-Length": str(end - start)},
                retries=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError):
            body.take_back()
            raise _PassingError(unreachable(self._multipart.place)) from None
        if body.sent == end - start and body.crc != self._summed.parts[number]:
            raise changed_in(self._plan, self._summed.index, start, end)
        tag = answer.headers.get("ETag")
        if answer.status == http.client.OK and tag:
            return tag
        body.take_back()
        raise self._refused(answer.status, code_in(answer.data.decode(errors="replace")))

    def _refused(self, status: int, code: str) -> Exception:
        if code == "NoSuchUpload":
            return self._multipart.gone()
        final = refused(self._multipart.place, code, status, "writing")
        return _PassingError(final) if status in _PASSING or code in _PASSING_CODES else final


class _Body:
    """The bytes of one part, read as they are sent.

    Attributes:
        sent: bytes so far; `crc` is their CRC-32C.
    """

    def __init__(self, plan: Layout, start: int, end: int, report: Reporter) -> None:
        self._plan = plan
        self._start = start
        self._end = end
        self._report = report
        self.sent = 0
        self.crc = 0

    def __iter__(self) -> Iterator[memoryview]:
        for block in read_range(self._plan, self._start, self._end):
            self.crc = crc32c(block, self.crc)
            yield block
            self.sent += len(block)
            self._report.add(len(block))

    def take_back(self) -> None:
        """It has to be sent again."""
        self._report.add(-self.sent)


def _connections(multipart: Multipart, patience: Patience) -> urllib3.PoolManager:
    """Connections to the store, through the proxy that the environment names."""
    endpoint = multipart.connection.endpoint
    proxy = get_environ_proxies(endpoint).get(urlsplit(endpoint).scheme)
    context = None
    if "https" in (urlsplit(endpoint).scheme, urlsplit(proxy or "").scheme):
        # One for all: to load what a system trusts takes 20 ms.
        context = ssl.create_default_context(cafile=multipart.connection.certificates)
    options: dict[str, Any] = {
        "maxsize": CONNECTIONS,
        # While a body is sent the time to connect holds for each of its blocks.
        "timeout": urllib3.Timeout(connect=patience.timeout, read=patience.timeout),
        "ssl_context": context,
    }
    if proxy:
        return urllib3.ProxyManager(proxy, proxy_ssl_context=context, **options)
    return urllib3.PoolManager(**options)
