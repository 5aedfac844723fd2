"""moto's S3 server in a process of its own, and a proxy in front of it that counts requests and fails on request."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.session
import pytest
from botocore.config import Config

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@dataclass(frozen=True)
class Asked:
    """One request, before it is answered."""

    method: str
    path: str
    headers: dict[str, str]
    number: int

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    @property
    def is_part(self) -> bool:
        return self.method == "PUT" and "partNumber" in self.query

    @property
    def is_complete(self) -> bool:
        return self.method == "POST" and "uploadId" in self.query


@dataclass(frozen=True)
class Answer:
    """Given instead of the server's, with a text or an S3 error of this code in its body."""

    status: int
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def body(self) -> bytes:
        if self.text:
            return self.text.encode()
        return f"<?xml version='1.0'?><Error><Code>{self.code}</Code></Error>".encode() if self.code else b""


@dataclass(frozen=True)
class Cut:
    """The connection ends after so many bytes of the request's body."""

    after: int


Fault = Callable[[Asked], Answer | Cut | None]


class Proxy:
    """http://127.0.0.1:<port> in front of an S3 server; https:// with a file that holds a certificate and its key.

    Attributes:
        fault: asked about each request; None lets it through.
        asked: every request, in order.
        sent: bytes of parts that were let through.
        s3: a plain client of the server itself, to prepare and to look.
    """

    def __init__(self, target: str, certificate: Path | None = None) -> None:
        self.target = urlsplit(target).netloc
        self._certificate = certificate
        self.s3 = client(target)
        self.fault: Fault = lambda _: None
        self.asked: list[Asked] = []
        self.sent = 0
        self.lock = threading.Lock()

    def forget(self) -> None:
        self.asked, self.sent = [], 0
        self.fault = lambda _: None

    @property
    def parts(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.is_part]

    def __enter__(self) -> Proxy:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                with contextlib.suppress(OSError):
                    proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self._certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self._certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if self._certificate else ''}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.s3.close()

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        with self.lock:
            headers = {name.lower(): value for name, value in request.headers.items()}
            asked = Asked(request.command, request.path, headers, len(self.asked))
            self.asked.append(asked)
            fault = self.fault(asked)
        length = int(request.headers.get("Content-Length") or 0)
        if isinstance(fault, Cut):
            request.rfile.read(min(fault.after, length))
            request.close_connection = True
            request.connection.shutdown(socket.SHUT_RDWR)
            return
        body = request.rfile.read(length)
        if isinstance(fault, Answer):
            self._answer(request, fault.status, fault.headers, fault.body)
            return
        connection = http.client.HTTPConnection(self.target, timeout=60)
        try:
            connection.request(asked.method, asked.path, body, dict(request.headers))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if asked.is_part and answer.status == 200:
            with self.lock:
                self.sent += len(content) or length
        headers = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in ("connection", "date", "server")
        }
        self._answer(request, answer.status, headers, content)

    @staticmethod
    def _answer(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        request.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or request.command == "HEAD":
                request.send_header(name, value)
        if request.command != "HEAD":
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """The server's URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
                break
            assert process.poll() is None
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def empty_store(server: str, patch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of moto's server, which then has one empty bucket, models; everything that asks S3 is led there."""
    urllib.request.urlopen(urllib.request.Request(f"{server}/moto-api/reset", method="POST")).close()
    with Proxy(server) as proxy:
        proxy.s3.create_bucket(Bucket="models")
        use(patch, proxy.url)
        yield proxy


def client(url: str) -> Any:
    session = botocore.session.Session()
    return session.create_client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(s3={"addressing_style": "path"}),
    )


def use(patch: pytest.MonkeyPatch, url: str) -> None:
    """Point everything that asks S3 at a server."""
    patch.setenv("AWS_ACCESS_KEY_ID", KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    patch.setenv("AWS_ENDPOINT_URL", url)
    patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in (
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL_S3",
    ):
        patch.delenv(name, raising=False)
