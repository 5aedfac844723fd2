"""A web server for files: plain HTTPS, and as much of S3's API, which Google's storage speaks too, as listing and reading takes."""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "models"


@dataclass
class ObjectServer:
    """Serves /KEY, and the same objects as those of a bucket.

    Attributes:
        objects: bodies by key.
        tls: serves https:// instead.
        status: answered to everything, if set.
        redirect: where /redirect leads.
        cuts: so many bodies are cut off at half.
        broken_after: the status of everything that comes after such a cut.
        changes: bodies that change after they were listed, by key.
        asked: method, path and range of every request.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    status: int | None = None
    redirect: str = ""
    cuts: int = 0
    broken_after: int | None = None
    changes: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    served: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> ObjectServer:
        owner = self

        class Handler(_Handler):
            state = owner

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
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def gets(self, ending: str) -> list[str]:
        return [line for line in self.asked if line.startswith("GET") and line.split()[1].endswith(ending)]


class _Handler(BaseHTTPRequestHandler):
    state: ObjectServer
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        # A client that does not trust us hangs up inside the handshake.
        with contextlib.suppress(OSError):
            super().handle()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query, path = parse_qs(parts.query), unquote(parts.path)
        with self.state.lock:
            self.state.asked.append(f"{self.command} {path} {self.headers.get('Range', '')}")
        key = path.removeprefix("/").removeprefix(f"{BUCKET}/")
        if self.state.status is not None:
            self.send(self.state.status, b"")
        elif path == "/redirect":
            self.send(302, b"", Location=self.state.redirect)
        elif "list-type" in query:
            self.send(200, self.listing(query["prefix"][0]).encode())
        elif key in self.state.objects:
            self.content(self.state.changes.get(key, self.state.objects[key]))
        else:
            self.send(404, b"")

    do_HEAD = do_GET  # noqa: N815

    def listing(self, prefix: str) -> str:
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{_tag(body)}&quot;</ETag><Size>{len(body)}</Size></Contents>"
            for key, body in sorted(self.state.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"

    def content(self, body: bytes) -> None:
        headers = {"ETag": f'"{_tag(body)}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        fresh = self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
        if found and fresh:
            start, end = int(found[1]), min(int(found[2] or len(body)) + 1, len(body))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            self.send(206, body[start:end], **headers)
        else:
            self.send(200, body, **headers)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with self.state.lock:
            cut = self.state.cuts > 0 and len(body) > 100_000
            self.state.cuts -= cut
            if cut and self.state.broken_after:
                self.state.status = self.state.broken_after
            body = body[: len(body) // 2] if cut else body
            self.state.served += len(body)
        self.close_connection = cut
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _tag(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()
