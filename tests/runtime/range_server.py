"""A web server with byte ranges for one object, and the ways in which such servers fail."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Faults:
    """What goes wrong; by default nothing.

    Attributes:
        no_ranges: answers 200 with everything.
        status_after: from this request on, answers `status`.
        every: answers `passing` to each request whose number it divides.
        passing: a status that a client should try again after.
        retry_after: the header of that answer.
        cut: closes the connection after this many bytes of a body.
        reset: likewise, by a reset, as a crashed server or a firewall does.
        wrong_range: the requests of these numbers are answered with the bytes behind those that were asked for.
        short: answers at most so many bytes of a range, and says so.
        flip: this byte of the object is wrong, in the first `flips` answers that hold it.
        size: the size that is claimed.
        redirect: /object leads here.
        stall: the requests of these numbers send half of the body, then nothing for 5 seconds.
        trickle: the requests of these numbers send 20 bytes a second.
        no_ranges_after: from this request on, answers 200 with everything.
        rate: bytes per second of each connection.
        new_tag: from this request on the object has another ETag.
    """

    no_ranges: bool = False
    status: int = 403
    status_after: int | None = None
    every: int | None = None
    passing: int = 503
    retry_after: str | None = None
    cut: int | None = None
    reset: int | None = None
    wrong_range: tuple[int, ...] = ()
    short: int | None = None
    flip: int | None = None
    flips: int = 1 << 30
    size: int | None = None
    redirect: str | None = None
    stall: tuple[int, ...] = ()
    trickle: tuple[int, ...] = ()
    no_ranges_after: int | None = None
    rate: float | None = None
    new_tag: int | None = None


@dataclass
class RangeServer:
    """Serves `content` at http://127.0.0.1:<port>/object.

    Attributes:
        tls: serves https:// instead.
        served: bytes of bodies sent.
        ranges: the ranges asked for, in order.
        paths: the paths asked for, in order.
    """

    content: bytes
    faults: Faults = field(default_factory=Faults)
    tls: ssl.SSLContext | None = None
    served: int = 0
    ranges: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> RangeServer:
        owner = self

        class Handler(_Handler):
            server_state = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.tls:
            self._server.socket = self.tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}/object?token=secret"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: RangeServer

    def handle(self) -> None:
        # A client that does not trust us hangs up inside the handshake.
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def do_GET(self) -> None:
        state, faults = self.server_state, self.server_state.faults
        with state.lock:
            number = len(state.ranges) + 1
            state.ranges.append(self.headers.get("Range", ""))
            state.paths.append(self.path)
        if faults.redirect and self.path.startswith("/object"):
            self._empty(302, Location=faults.redirect)
        elif faults.status_after is not None and number >= faults.status_after:
            self._empty(faults.status)
        elif faults.every and number % faults.every == 0:
            waits = {"Retry-After": faults.retry_after} if faults.retry_after else {}
            self._empty(faults.passing, **waits)
        else:
            self._object(number)

    def _empty(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _object(self, number: int) -> None:
        state, faults = self.server_state, self.server_state.faults
        tag = '"two"' if faults.new_tag is not None and number >= faults.new_tag else '"one"'
        if self.headers.get("If-Match", tag) != tag:
            self._empty(412)
            return
        size = len(state.content)
        start, end = 0, size
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        whole = faults.no_ranges or (faults.no_ranges_after is not None and number >= faults.no_ranges_after)
        if asked and not whole:
            start, end = int(asked[1]), min(int(asked[2]) + 1, size)
            end = min(end, start + (faults.short or size))
            if number in faults.wrong_range:
                start, end = start + 1, min(end + 1, size)
        if start >= size:
            self._empty(416)
            return
        partial = asked is not None and not whole
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{faults.size or size}")
        self.send_header("Content-Length", str((end - start) if partial else (faults.size or size)))
        self.send_header("ETag", tag)
        self.end_headers()
        self._send(self._body(start, end), number)

    def _body(self, start: int, end: int) -> bytes:
        state, faults = self.server_state, self.server_state.faults
        body = state.content[start:end]
        # The probe asks for one byte and looks at none.
        if faults.flip is not None and start <= faults.flip < end and faults.flips > 0 and end - start > 1:
            faults.flips -= 1
            at = faults.flip - start
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        return body

    def _send(self, body: bytes, number: int) -> None:
        state, faults = self.server_state, self.server_state.faults
        block = 64 << 10
        whole = len(body)
        if cut := faults.cut or faults.reset:
            body = body[:cut]
        if number in faults.stall:
            body = body[: len(body) // 2]
        rate = faults.rate
        if number in faults.trickle:
            block, rate = 2, 20
        try:
            for position in range(0, len(body), block):
                piece = body[position : position + block]
                if rate:
                    time.sleep(len(piece) / rate)
                # Before the client can have it, so that a test finds it counted.
                with state.lock:
                    state.served += len(piece)
                self.wfile.write(piece)
        except OSError:
            self.close_connection = True
            return
        if number in faults.stall:
            time.sleep(5)
        if len(body) < whole:
            self.close_connection = True
            if faults.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # Not the polite end of the base class, which would send what is left first.
                os.close(self.connection.detach())
