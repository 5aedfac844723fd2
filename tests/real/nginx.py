"""nginx on loopback, where a container's bucket would be: as fast as it can, or so much a connection; it tells what it sent."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cogsmith.local import free_port

_CONFIGURATION = """
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
    log_format sent "$request_uri $status $body_bytes_sent";
    access_log {folder}/access.log sent;
    sendfile on;
    sendfile_max_chunk 1m;
    root {root};
    limit_rate {rate};
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; }}
}}
"""


@dataclass(frozen=True)
class Nginx:
    """A server; `url` is that of its root, without "/" behind it."""

    url: str
    log: Path

    def sent(self) -> list[int]:
        """Bytes of the body of every answer that has ended. All have when the server has."""
        lines = [line.split() for line in self.log.read_text().splitlines()]
        assert all(status in ("200", "206") for _, status, _ in lines), lines
        return [int(count) for _, _, count in lines]


def require(program: str) -> str:
    """Where a program is. Debian has some where not every user looks."""
    found = shutil.which(program, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")
    assert found, f"{program} is not installed: scripts/bootstrap installs it"
    return found


@contextlib.contextmanager
def serve(root: Path, folder: Path, rate: int = 0) -> Iterator[Nginx]:
    """Serve the files below `root`.

    Args:
        folder: made for configuration and logs.
        rate: bytes per second of one connection; 0: as many as there are.
    """
    folder.mkdir()
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        _CONFIGURATION.format(user=user, folder=folder, root=root, port=port, rate=rate)
    )
    server = subprocess.Popen([require("nginx"), "-p", folder, "-c", folder / "nginx.conf"])
    try:
        _wait(server, port, folder / "error.log")
        yield Nginx(f"http://127.0.0.1:{port}", folder / "access.log")
        # It writes an answer down when that has ended, which takes a moment after a client was killed.
        server.send_signal(signal.SIGQUIT)
        server.wait(30)
    finally:
        server.terminate()
        server.wait(30)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 10
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"nginx did not start: {log.read_text() if log.exists() else 'no log'}")
