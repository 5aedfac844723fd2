"""An object behind http:// or https://, read by ranges with the standard library's client."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import SplitResult, urljoin, urlsplit

from .errors import BAD_SOURCE, NOT_FOUND, OTHER_OBJECT, REFUSED, UNREACHABLE, WeightsError, bare
from .sources import InterruptedRead, Limits, Reader, Stream, other_size

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
        self._tls = ssl.create_default_context() if url.lower().startswith("https:") else None
        self._etag: str | None = None
        self._size = 0
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()
        self._aborted = False

    def probe(self, size: int) -> bool:
        """Ask for one byte: it says where the object really is, how large it is, and whether ranges work."""
        self._size = size
        self._etag = None
        url = self._first
        for _ in range(_MOST_REDIRECTS + 1):
            connection = self.connect(url)
            try:
                response = self.ask(connection, url, 0, 1)
                if response.status not in _REDIRECTS:
                    self.check(response, 0)
                    # A weak tag may not be used to ask for the same bytes again.
                    tag = response.getheader("ETag")
                    self._etag = tag if tag and tag.startswith('"') else None
                    self._url = url
                    return response.status == http.client.PARTIAL_CONTENT
                url = self._redirected(url, response.getheader("Location"))
            finally:
                self.disconnect(connection)
        hint = "Give the URL that the last one leads to."
        raise WeightsError(BAD_SOURCE, f"{self.name} is redirected more than {_MOST_REDIRECTS} times", hint)

    def reader(self) -> Reader:
        return _WebReader(self, self._url)

    def abort(self) -> None:
        with self._lock:
            self._aborted = True
            for connection in self._open:
                self._shut(connection)

    @staticmethod
    def _shut(connection: http.client.HTTPConnection) -> None:
        plain: socket.socket | None = connection.sock
        if plain is not None:
            # Not the TLS object's own method: it would let a reader in another thread go on without TLS.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(plain, socket.SHUT_RDWR)

    def connect(self, url: SplitResult) -> http.client.HTTPConnection:
        """A connection, not yet opened, that `abort` knows."""
        host, port = url.hostname or "", url.port
        connection: http.client.HTTPConnection
        if self._tls is not None and url.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port, timeout=self._limits.timeout, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._limits.timeout)
        with self._lock:
            self._open.add(connection)
        return connection

    def disconnect(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def ask(
        self, connection: http.client.HTTPConnection, url: SplitResult, start: int, end: int
    ) -> http.client.HTTPResponse:
        """Ask for bytes start to end (exclusive) and read the answer's head."""
        headers = {
            "Range": f"bytes={start}-{end - 1}",
            "Accept-Encoding": "identity",
            "User-Agent": "cogsmith",
        }
        if self._etag:
            headers["If-Match"] = self._etag
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        with self.passing():
            if connection.sock is None:
                connection.connect()
                if self._aborted:
                    raise InterruptedRead("the fetch was stopped")
            connection.request("GET", target, headers=headers)
            return connection.getresponse()

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Turn what the network does into InterruptedRead, but for what no new try can change."""
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            hint = "Set SSL_CERT_FILE to the certificates to trust, or correct the URL."
            message = f"the certificate of {self.name} is not trusted ({error.verify_message})"
            raise WeightsError(UNREACHABLE, message, hint) from None
        except TimeoutError:
            raise InterruptedRead(f"no answer for {self._limits.timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise InterruptedRead(str(error) or type(error).__name__) from None

    def check(self, response: http.client.HTTPResponse, start: int) -> int:
        """The offset in the object of the answer's first byte. Raises InterruptedRead, WeightsError."""
        self._check_status(response.status)
        tag = response.getheader("ETag")
        if self._etag and tag and tag != self._etag:
            raise self._changed()
        if response.getheader("Content-Encoding", "identity") != "identity":
            hint = "Store the object without a content encoding."
            raise WeightsError(OTHER_OBJECT, f"{self.name} is sent compressed", hint)
        if response.status == http.client.OK:
            length = response.getheader("Content-Length")
            if length is not None and length != str(self._size):
                raise other_size(self.name, int(length) if length.isdecimal() else -1, self._size)
            return 0
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.getheader("Content-Range", "").strip())
        if found is None or int(found[1]) != start:
            raise InterruptedRead("the answer is not the range that was asked for")
        if found[2] not in ("*", str(self._size)):
            raise other_size(self.name, int(found[2]), self._size)
        return start

    def _check_status(self, status: int) -> None:
        if status in (http.client.OK, http.client.PARTIAL_CONTENT):
            return
        if status in _PASSING:
            raise InterruptedRead(f"the server answers {status}")
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
        if target.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
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


class _WebReader:
    """One connection, kept open from part to part."""

    def __init__(self, source: WebSource, url: SplitResult) -> None:
        self._source = source
        self._url = url
        self._connection = source.connect(url)

    def open(self, start: int, end: int) -> Stream:
        reused = self._connection.sock is not None
        try:
            response = self._source.ask(self._connection, self._url, start, end)
        except InterruptedRead:
            self._connection.close()
            if not reused:
                raise
            # A server may close an idle connection at any time; that is no failure.
            response = self._source.ask(self._connection, self._url, start, end)
        try:
            position = self._source.check(response, start)
        except InterruptedRead:
            self._connection.close()
            raise
        return _WebStream(self._source, self._connection, response, position)

    def close(self) -> None:
        self._source.disconnect(self._connection)


class _WebStream:
    def __init__(
        self,
        source: WebSource,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        position: int,
    ) -> None:
        self._source = source
        self._connection = connection
        self._response = response
        self.position = position

    def readinto(self, view: memoryview) -> int:
        with self._source.passing():
            count = self._response.readinto(view)
        self.position += count
        return count

    def close(self) -> None:
        if not self._response.isclosed():
            # What is left of the body would be taken for the next answer.
            self._response.close()
            self._connection.close()
