"""Ranges over HTTP with the standard library's client."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import SplitResult

from .errors import UNREACHABLE, WeightsError
from .sources import InterruptedRead, Sink, ended_early

Check = Callable[[int, Callable[[str], str | None], int], int]
"""Status, headers and the byte asked for -> the offset of the first byte that comes; see WebSource.check."""


@dataclass(frozen=True)
class Request:
    """What is asked for, but for the range.

    Attributes:
        url: may hold a signature.
        name: may be shown.
        timeout: seconds without a byte.
        etag: the object must still have this one.
        tls: for https.
    """

    url: SplitResult
    name: str
    timeout: float
    etag: str | None
    tls: ssl.SSLContext | None

    def headers(self, start: int, end: int) -> dict[str, str]:
        """To ask for bytes start to end (exclusive), as they are stored."""
        headers = {
            "Range": f"bytes={start}-{end - 1}",
            "Accept-Encoding": "identity",
            "User-Agent": "cogsmith",
        }
        return headers | ({"If-Match": self.etag} if self.etag else {})


def untrusted(name: str, reason: str) -> WeightsError:
    """The server's certificate is not one to believe."""
    hint = "Set SSL_CERT_FILE to the certificates to trust, or correct the URL."
    return WeightsError(UNREACHABLE, f"the certificate of {name} is not trusted ({reason})", hint)


@contextlib.contextmanager
def ask(request: Request, start: int, end: int) -> Iterator[http.client.HTTPResponse]:
    """Ask once, over a connection of its own. Raises InterruptedRead, WeightsError."""
    connection = _connection(request)
    try:
        with _passing(request):
            connection.request("GET", _target(request), headers=request.headers(start, end))
            response = connection.getresponse()
        yield response
    finally:
        connection.close()


class HttpReader:
    """One connection, kept open from part to part.

    Args:
        check: holds each answer to what was asked.
    """

    def __init__(self, request: Request, check: Check) -> None:
        self._request = request
        self._check = check
        self._connection = _connection(request)

    def read(self, start: int, end: int, sink: Sink) -> None:
        response = self._ask(start, end)
        try:
            sink.begin(self._check(response.status, response.getheader, start))
            position = start
            while room := sink.room():
                with _passing(self._request):
                    count = response.readinto(room)
                if not count:
                    raise ended_early(position)
                position += count
                sink.filled(count)
        finally:
            if not response.isclosed():
                # What is left of the body would be taken for the next answer.
                response.close()
                self._connection.close()

    def _ask(self, start: int, end: int) -> http.client.HTTPResponse:
        reused = self._connection.sock is not None
        try:
            return self._ask_once(start, end)
        except InterruptedRead:
            if not reused:
                raise
            # A server may close an idle connection at any time; that is no failure.
            return self._ask_once(start, end)

    def _ask_once(self, start: int, end: int) -> http.client.HTTPResponse:
        try:
            with _passing(self._request):
                headers = self._request.headers(start, end)
                self._connection.request("GET", _target(self._request), headers=headers)
                return self._connection.getresponse()
        except BaseException:
            self._connection.close()
            raise

    def interrupt(self) -> None:
        plain: socket.socket | None = self._connection.sock
        if plain is not None:
            # Not the TLS object's own method: it would let a reader in another thread go on without TLS.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(plain, socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


def _connection(request: Request) -> http.client.HTTPConnection:
    host, port = request.url.hostname or "", request.url.port
    if request.url.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=request.timeout, context=request.tls)
    return http.client.HTTPConnection(host, port, timeout=request.timeout)


def _target(request: Request) -> str:
    return (request.url.path or "/") + (f"?{request.url.query}" if request.url.query else "")


@contextlib.contextmanager
def _passing(request: Request) -> Iterator[None]:
    """Turn what the network does into InterruptedRead, but for what no new try can change."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise untrusted(request.name, error.verify_message) from None
    except TimeoutError:
        raise InterruptedRead(f"no answer for {request.timeout:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise InterruptedRead(str(error) or type(error).__name__) from None
