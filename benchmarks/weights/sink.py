"""An S3 server for speed: it takes uploads and keeps nothing of them but their sizes.

nginx ends TLS, reads each body whole into memory as any server must, and drops it; what to answer it asks a few lines of
Python, with the request's headers alone. So of an uploader's bytes Python sees none, and both cost the same for each
uploader: a copy of each byte out of the socket, and one short question for each request. It checks no signature and no
sum: a CRC-32C that a client sends is given back when it asks for the object's.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from servers import certificate, free_port, nginx

PROFILES = {"plain": "HTTP", "tls": "HTTPS (TLS 1.3)"}
_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_DATE = "2026-01-01T00:00:00.000Z"
# The largest part of any uploader stays in memory; malloc is told to keep it for the next one.
_BODY = 64 << 20
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
_CONFIGURATION = """
{user}
worker_processes 2;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 100000;
    client_max_body_size 0;
    client_body_buffer_size {body};
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {folder}/tls.crt;
    ssl_certificate_key {folder}/tls.key;
    ssl_protocols TLSv1.3;
    upstream answers {{ server 127.0.0.1:{answers}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{plain};
        listen 127.0.0.1:{tls} ssl;
        location / {{
            proxy_pass http://answers;
            proxy_http_version 1.1;
            proxy_pass_request_body off;
            proxy_set_header Connection "";
            proxy_set_header Content-Length "";
            proxy_set_header Expect "";
            proxy_set_header X-Length $content_length;
            proxy_set_header X-Received $request_length;
        }}
    }}
}}
"""


@dataclass
class Stored:
    """An object, or an upload on its way to be one.

    Attributes:
        sizes: bytes of each part, by its number; what aws-chunked adds is not in it.
        sums: headers with checksums that are given back.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


class Sink:
    """What has come in.

    Attributes:
        urls: profile -> endpoint.
        certificate: to be trusted.
        objects: by path, "/BUCKET/KEY".
        asked: when each upload was begun or completed: (time.monotonic(), "begin" or "complete").
    """

    def __init__(self, urls: dict[str, str], certificate: Path, pid: int) -> None:
        self.urls = urls
        self.certificate = certificate
        self._pid = pid
        self._uploads: dict[str, Stored] = {}
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Be empty again."""
        self.objects: dict[str, Stored] = {}
        self.asked: list[tuple[float, str]] = []
        self._uploads.clear()

    @property
    def cpu(self) -> float:
        """Seconds of processor time that nginx has had so far."""
        workers = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        ticks = [Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split() for worker in workers]
        return sum(int(each[11]) + int(each[12]) for each in ticks) / os.sysconf("SC_CLK_TCK")

    def answer(self, method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        """Status, headers and body for a request whose body has been read."""
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        with self._lock:
            if method == "PUT":
                return self._put(url.path, query, headers)
            if method == "POST":
                return self._post(url.path, query, headers)
            if method == "DELETE":
                self._uploads.pop(query.get("uploadId", ""), None)
                return 204, {}, ""
            return self._get(url.path, query)

    def _put(
        self, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, dict[str, str], str]:
        size = int(headers.get("x-amz-decoded-content-length") or headers.get("x-length") or 0)
        if int(headers["x-received"]) < size:
            return 400, {}, f"{_XML}<Error><Code>IncompleteBody</Code></Error>"
        sums = _sums(headers)
        if "uploadId" in query:
            number = int(query["partNumber"])
            self._uploads[query["uploadId"]].sizes[number] = size
        else:
            number = 1
            self.objects[path] = Stored({1: size}, sums)
        return 200, {"ETag": f'"{number:032x}"', **sums}, ""

    def _post(
        self, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> tuple[int, dict[str, str], str]:
        bucket, _, key = path[1:].partition("/")
        if "uploads" in query:
            self.asked.append((time.monotonic(), "begin"))
            name = f"upload{len(self.asked)}"
            self._uploads[name] = Stored()
            known = ("x-amz-checksum-algorithm", "x-amz-checksum-type")
            text = f"<Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{name}</UploadId>"
            return (
                200,
                {each: headers[each] for each in known if each in headers},
                _element("InitiateMultipartUploadResult", text),
            )
        self.asked.append((time.monotonic(), "complete"))
        done = self._uploads.pop(query["uploadId"])
        done.sums = _sums(headers)
        self.objects[path] = done
        text = f'<Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>"{1:032x}-{len(done.sizes)}"</ETag>'
        return 200, {}, _element("CompleteMultipartUploadResult", text)

    def _get(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, str], str]:
        if "uploads" in query:
            return 200, {}, _element("ListMultipartUploadsResult", "<IsTruncated>false</IsTruncated>")
        if "uploadId" in query:
            # Nobody goes on with an upload here.
            return 200, {}, _element("ListPartsResult", "<IsTruncated>false</IsTruncated>")
        if "location" in query:
            return 200, {}, _element("LocationConstraint", "")
        if "/" not in path.strip("/"):
            return 200, {}, _element("ListBucketResult", "<IsTruncated>false</IsTruncated>")
        found = self.objects.get(path)
        if found is None:
            return 404, {}, f"{_XML}<Error><Code>NoSuchKey</Code></Error>"
        about = {"Content-Length": str(found.size), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        return 200, {**about, "ETag": f'"{1:032x}"', **found.sums}, ""


def _sums(headers: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name.startswith("x-amz-checksum-")}


def _element(name: str, inside: str) -> str:
    return f'{_XML}<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</{name}>'


@contextlib.contextmanager
def sink(folder: Path) -> Iterator[Sink]:
    """Serve on loopback in each profile.

    Args:
        folder: for configuration, certificate and logs.

    Raises:
        SystemExit: there is no nginx, or it does not start.
    """
    folder.mkdir(parents=True)
    certificate(folder)
    ports = {name: free_port() for name in (*PROFILES, "answers")}
    urls = {name: f"http{'s' if name == 'tls' else ''}://127.0.0.1:{ports[name]}" for name in PROFILES}
    user = "user root;" if os.geteuid() == 0 else ""
    text = _CONFIGURATION.format(user=user, folder=folder, body=_BODY, **ports)
    with nginx(text, folder, ports["plain"], _MALLOC) as pid:
        made = Sink(urls, folder / "tls.crt", pid)
        server = ThreadingHTTPServer(("127.0.0.1", ports["answers"]), _handler(made))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
            server.server_close()


def _handler(made: Sink) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def handle_any(self) -> None:
            headers = {name.lower(): text for name, text in self.headers.items()}
            status, said, body = made.answer(self.command, self.path, headers)
            self.send_response(status)
            for name, text in {"Content-Length": str(len(body)), **said}.items():
                self.send_header(name, text)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    return Handler
