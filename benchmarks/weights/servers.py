"""nginx on loopback in five profiles, and what makes two of them slow or unreliable."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

RATE = 60_000_000
"""Bytes per second of one connection of a capped profile."""
FIRST_BYTE = 0.030
"""Seconds until a capped profile sends its first byte."""
_CUTS = (8 << 20, 40 << 20)
"""A connection of the lossy profile ends after so many bytes, by chance between these."""
PROFILES = {
    "plain": "HTTP",
    "tls": "HTTPS (TLS 1.3)",
    "capped": f"HTTP, {RATE / 1e6:.0f} MB/s a connection, {FIRST_BYTE * 1000:.0f} ms to the first byte",
    "capped-tls": f"HTTPS, {RATE / 1e6:.0f} MB/s a connection, {FIRST_BYTE * 1000:.0f} ms to the first byte",
    "lossy": "HTTP, one request in eight answered 503, each connection cut after 8 to 40 MiB",
}

_CONFIGURATION = """
{user}
worker_processes 2;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    sendfile_max_chunk 1m;
    keepalive_requests 100000;
    root {root};
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    ssl_certificate {folder}/tls.crt;
    ssl_certificate_key {folder}/tls.key;
    ssl_protocols TLSv1.3;
    upstream slow {{ server 127.0.0.1:{delay}; keepalive 256; }}
    server {{ listen 127.0.0.1:{plain}; }}
    server {{ listen 127.0.0.1:{tls} ssl; }}
    server {{
        listen 127.0.0.1:{capped};
        listen 127.0.0.1:{capped-tls} ssl;
        location / {{ auth_request /wait; limit_rate {rate}; }}
        location = /wait {{
            internal;
            proxy_pass http://slow;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_pass_request_body off;
        }}
    }}
    server {{
        listen 127.0.0.1:{behind};
        if ($request_id ~ "^[01]") {{ return 503; }}
    }}
}}
"""


@contextlib.contextmanager
def serve(root: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Serve the files below `root`; yields profile -> URL of the root, ending in "/".

    Args:
        folder: for configuration, certificate and logs.

    Raises:
        SystemExit: there is no nginx, or it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    certificate(folder)
    ports = {name: free_port() for name in (*PROFILES, "behind", "delay")}
    user = "user root;" if os.geteuid() == 0 else ""
    text = _CONFIGURATION.format(user=user, folder=folder, root=root, rate=RATE, **ports)
    _listen(ports["delay"], _answer_late)
    _listen(ports["lossy"], lambda client: _cut(client, ports["behind"]))
    with nginx(text, folder, ports["plain"]):
        yield {
            name: f"http{'s' if name.endswith('tls') else ''}://127.0.0.1:{ports[name]}/" for name in PROFILES
        }


@contextlib.contextmanager
def nginx(
    configuration: str, folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[int]:
    """Run nginx until the end of the block; yields its process id.

    Args:
        port: one of those that it listens on.
        environment: more of it than there is.

    Raises:
        SystemExit: there is no nginx, or it does not start.
    """
    (folder / "nginx.conf").write_text(configuration)
    try:
        server = subprocess.Popen(
            ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")],
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError:
        raise SystemExit("nginx is not installed (Debian: nginx-light)") from None
    try:
        wait(server, port)
        yield server.pid
    finally:
        server.terminate()
        server.wait()


def certificate(folder: Path) -> None:
    """tls.crt and tls.key for 127.0.0.1."""
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    # As rustls takes it, which is in obstore.
    name += ["-addext", "basicConstraints=critical,CA:FALSE"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run(
        [*command, "-keyout", folder / "tls.key", "-out", folder / "tls.crt"], capture_output=True, check=True
    )


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait(server: subprocess.Popen[bytes], port: int) -> None:
    """Until it listens on a port of loopback. Raises SystemExit if it ends instead, or takes too long."""
    limit = time.monotonic() + 30
    while time.monotonic() < limit and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise SystemExit(f"{server.args[0]} did not start; its last words are above")


def _listen(port: int, serve_one: object) -> None:
    listening = socket.create_server(("127.0.0.1", port), backlog=256)

    def accept() -> None:
        while True:
            client, _ = listening.accept()
            threading.Thread(target=serve_one, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _answer_late(client: socket.socket) -> None:
    """Yes to everything, after the time to the first byte: nginx asks before it sends a file."""
    with client:
        while client.recv(65536):
            time.sleep(FIRST_BYTE)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _cut(client: socket.socket, port: int) -> None:
    """Pass a connection on to nginx, and end it in the middle of a body."""
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        threading.Thread(target=_ask, args=(client, server), daemon=True).start()
        left = random.randint(*_CUTS)  # noqa: S311
        read, write = os.pipe()
        try:
            while left > 0 and (count := os.splice(server.fileno(), write, min(left, 1 << 20))):
                left -= count
                while count:
                    count -= os.splice(read, client.fileno(), count)
        except OSError:
            pass
        finally:
            os.close(read)
            os.close(write)
            for each in (client, server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


def _ask(client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(65536):
            server.sendall(data)
