"""An object behind http:// or https://: where it really is, and what an answer of its server means."""

from __future__ import annotations

import email.utils
import http.client
import re
import ssl
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from .errors import BAD_SOURCE, NOT_FOUND, OTHER_OBJECT, REFUSED, WeightsError, bare
from .http_reader import HttpReader, Request, ask
from .sources import InterruptedRead, Limits, Reader, other_size

if TYPE_CHECKING:
    from .curl_loop import Loops

_REDIRECTS = {301, 302, 303, 307, 308}
_PASSING = {408, 425, 429, 500, 502, 503, 504}
_MOST_REDIRECTS = 5


class WebSource:
    """An object behind a URL.

    Args:
        url: may carry a signature in its query, which is never shown.
        limits: see Limits.
    """

    def __init__(self, url: str, limits: Limits) -> None:
        self.name = bare(url)
        self._limits = limits
        self._first = _split(url)
        self._url = self._first
        self._tls: ssl.SSLContext | None = None
        self._etag: str | None = None
        self._size = 0
        self._lock = threading.Lock()
        self._loops: Loops | None = None

    def probe(self, size: int) -> bool:
        """Ask for one byte: it says where the object really is, how large it is, and whether ranges work."""
        self._size = size
        self._etag = None
        url = self._first
        for _ in range(_MOST_REDIRECTS + 1):
            with ask(self._request(url), 0, 1) as response:
                if response.status not in _REDIRECTS:
                    self.check(response.status, response.getheader, 0)
                    # A weak tag may not be used to ask for the same bytes again.
                    tag = response.getheader("ETag")
                    self._etag = tag if tag and tag.startswith('"') else None
                    self._url = url
                    return response.status == http.client.PARTIAL_CONTENT
                url = self._redirected(url, response.getheader("Location"))
        hint = "Give the URL that the last one leads to."
        raise WeightsError(BAD_SOURCE, f"{self.name} is redirected more than {_MOST_REDIRECTS} times", hint)

    def reader(self) -> Reader:
        """libcurl where there is TLS: Python's own hands over each 16 KiB by itself, at twice the processor time."""
        request = self._request(self._url)
        if self._url.scheme == "https":
            try:
                from .curl_loop import Loops
                from .curl_reader import CurlReader
            except ImportError:
                pass
            else:
                with self._lock:
                    self._loops = self._loops or Loops()
                return CurlReader(request, self.check, self._loops)
        return HttpReader(request, self.check)

    def _request(self, url: SplitResult) -> Request:
        if self._tls is None and url.scheme == "https":
            self._tls = ssl.create_default_context()
        return Request(url, self.name, self._limits.timeout, self._etag, self._tls)

    def check(self, status: int, header: Callable[[str], str | None], start: int) -> int:
        """The offset in the object of the answer's first byte. Raises InterruptedRead, WeightsError.

        Args:
            header: a header's value by its name, in any case.
            start: the first byte that was asked for.
        """
        self._check_status(status, header)
        tag = header("ETag")
        if self._etag and tag and tag != self._etag:
            raise self._changed()
        if (header("Content-Encoding") or "identity") != "identity":
            hint = "Store the object without a content encoding."
            raise WeightsError(OTHER_OBJECT, f"{self.name} is sent compressed", hint)
        if status == http.client.OK:
            length = header("Content-Length")
            if length is not None and length != str(self._size):
                raise other_size(self.name, int(length) if length.isdecimal() else -1, self._size)
            return 0
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", (header("Content-Range") or "").strip())
        if found is None or int(found[1]) != start:
            raise InterruptedRead("the answer is not the range that was asked for")
        if found[2] not in ("*", str(self._size)):
            raise other_size(self.name, int(found[2]), self._size)
        return start

    def _check_status(self, status: int, header: Callable[[str], str | None]) -> None:
        if status in (http.client.OK, http.client.PARTIAL_CONTENT):
            return
        if status in _PASSING:
            raise InterruptedRead(f"the server answers {status}", _seconds(header("Retry-After")))
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            hint = "Check that the object may be read by everyone, or give a fresh signed URL in COG_WEIGHTS."
            raise WeightsError(REFUSED, f"{self.name} may not be read (the server answers {status})", hint)
        if status in (http.client.NOT_FOUND, http.client.GONE):
            hint = "Pack the model again, or correct the URL."
            raise WeightsError(
                NOT_FOUND, f"there is nothing at {self.name} (the server answers {status})", hint
            )
        if status == http.client.PRECONDITION_FAILED:
            raise self._changed()
        if status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            message = (
                f"{self.name} is shorter than the index says (the server answers 416): it is another object"
            )
            raise WeightsError(OTHER_OBJECT, message, "Pack again, or correct the URL.")
        raise WeightsError(
            BAD_SOURCE, f"{self.name} cannot be read (the server answers {status})", "Check the URL."
        )

    def _changed(self) -> WeightsError:
        message = f"{self.name} was replaced by another object while it was read"
        return WeightsError(OTHER_OBJECT, message, "Never overwrite a packed object; start again.")

    def _redirected(self, url: SplitResult, location: str | None) -> SplitResult:
        if not location:
            raise InterruptedRead("a redirect that leads nowhere")
        try:
            target = _split(urljoin(url.geturl(), location))
        except WeightsError as error:
            raise WeightsError(
                BAD_SOURCE, f"{self.name} is redirected, but {error.message}", "Check the URL."
            ) from None
        if url.scheme == "https" and target.scheme != "https":
            hint = "Give an https URL that stays https."
            raise WeightsError(BAD_SOURCE, f"{self.name} is redirected to a connection without TLS", hint)
        return target


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise WeightsError(BAD_SOURCE, f"{bare(url)} is not a URL", "Give https://HOST/PATH.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise WeightsError(
            BAD_SOURCE, f"{bare(url)!r} is not a URL", "Percent-encode spaces and special characters."
        )
    if parts.username is not None:
        hint = "Use a public or a signed URL."
        raise WeightsError(BAD_SOURCE, f"{bare(url)} is given with a user and password", hint)
    return parts


def _seconds(retry_after: str | None) -> float:
    """A Retry-After header: seconds, or a date; 0 where it says neither."""
    text = (retry_after or "").strip()
    if text.isdecimal():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return 0.0
