"""A web server that speaks as much of the Hugging Face Hub's API as a download needs. It stands for the Hub, which tests do not reach."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

REPO = "maker/tiny"
TOKEN = "hf_" + "abcdefghij" * 3
OTHER_TOKEN = "hf_" + "klmnopqrst" * 3
_LARGE = (".safetensors", ".bin")


@dataclass
class HubServer:
    """Serves the commits of one repository.

    Attributes:
        commits: files by commit; `branches` says which commit a name is at.
        needs_token: whether only TOKEN opens the files of the repository.
        private: whether only TOKEN shows that it exists.
        status: answered to everything, if set.
        no_ranges: answers 200 with everything to a ranged request.
        flip: changes a byte of this file.
        served: bytes of bodies sent, by file.
        asked: method and path of every request.
        to_cdn: the headers of requests to where large files really are.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    needs_token: bool = False
    private: bool = False
    status: int | None = None
    no_ranges: bool = False
    flip: str | None = None
    served: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    to_cdn: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, folder: Path, branch: str = "main") -> str:
        """A new commit with the files of a folder; the branch is at it from now on."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[sha] = files
        self.branches[branch] = sha
        return sha

    def __enter__(self) -> HubServer:
        owner = self

        class Handler(_Handler):
            hub = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def cdn(self) -> str:
        """Another host than the Hub, for a client."""
        return f"http://localhost:{self._server.server_address[1]}/cdn"

    def bytes_of(self, ending: str) -> int:
        return sum(count for name, count in self.served.items() if name.endswith(ending))


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.hub.lock:
            self.hub.asked.append(f"{self.command} {path}")
        if self.hub.status is not None:
            self.error(self.hub.status)
        elif path.startswith("/cdn/"):
            self.hub.to_cdn.append(dict(self.headers))
            sha, _, name = path.removeprefix("/cdn/").partition("/")
            self.content(name, self.hub.commits[sha][name], {})
        elif found := re.fullmatch(rf"/api/models/{REPO}(?:/revision/(.+)|/tree/(.+))?", path):
            self.about(found[1] or found[2] or "main", tree=found[2] is not None)
        elif found := re.fullmatch(rf"/{REPO}/resolve/([^/]+)/(.+)", path):
            self.resolve(found[1], found[2])
        else:
            self.error(404, "RepoNotFound")

    do_HEAD = do_GET  # noqa: N815

    def about(self, revision: str, tree: bool) -> None:
        if not self.allowed(self.hub.private, "RepoNotFound"):
            return
        sha = self.sha(revision)
        if sha is None:
            self.error(404, "RevisionNotFound")
            return
        files = self.hub.commits[sha]
        if tree:
            data: object = [
                {"type": "file", "path": name, "oid": sha, **_large(name, body)}
                for name, body in files.items()
            ]
        else:
            siblings = [
                {"rfilename": name, "blobId": sha, **_large(name, body)} for name, body in files.items()
            ]
            data = {"id": REPO, "modelId": REPO, "sha": sha, "siblings": siblings}
        self.send(200, json.dumps(data).encode(), {"Content-Type": "application/json"})

    def resolve(self, revision: str, name: str) -> None:
        if not self.allowed(self.hub.needs_token, "GatedRepo"):
            return
        sha = self.sha(revision)
        body = self.hub.commits.get(sha or "", {}).get(name)
        if sha is None or body is None:
            self.error(404, "EntryNotFound" if sha else "RevisionNotFound")
            return
        headers = {"X-Repo-Commit": sha}
        if name.endswith(_LARGE):
            linked = {
                "X-Linked-Size": str(len(body)),
                "X-Linked-ETag": f'"{hashlib.sha256(body).hexdigest()}"',
            }
            self.send(302, b"", {**headers, **linked, "Location": f"{self.hub.cdn}/{sha}/{name}"})
        else:
            self.content(name, body, headers)

    def allowed(self, guarded: bool, code: str) -> bool:
        said = self.headers.get("Authorization", "")
        if said and said not in (f"Bearer {TOKEN}", f"Bearer {OTHER_TOKEN}"):
            self.error(401, message="Invalid credentials in Authorization header")
            return False
        if guarded and said != f"Bearer {TOKEN}":
            self.error(404 if code == "RepoNotFound" else 403 if said else 401, code)
            return False
        return True

    def sha(self, revision: str) -> str | None:
        sha = self.hub.branches.get(revision, revision)
        return sha if sha in self.hub.commits else None

    def content(self, name: str, body: bytes, headers: dict[str, str]) -> None:
        if self.hub.flip == name:
            body = body[:-1] + bytes([body[-1] ^ 1])
        headers = {**headers, "ETag": f'"{hashlib.sha1(body).hexdigest()}"', "Accept-Ranges": "bytes"}
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found and not self.hub.no_ranges:
            start, end = int(found[1]), min(int(found[2] or len(body)) + 1, len(body))
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            self.send(206, body[start:end], headers, name)
        else:
            self.send(200, body, headers, name)

    def error(self, status: int, code: str = "", message: str = "") -> None:
        more = {"X-Error-Code": code} if code else {}
        self.send(status, b"", {**more, "X-Error-Message": message or code or "no"})

    def send(self, status: int, body: bytes, headers: dict[str, str], name: str = "") -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        sent = 0
        try:
            while sent < len(body):
                sent += self.wfile.write(body[sent : sent + (64 << 10)])
        except OSError:
            self.close_connection = True
        with self.hub.lock:
            self.hub.served[name] = self.hub.served.get(name, 0) + sent

    def log_message(self, *_: object) -> None:
        pass


def _large(name: str, body: bytes) -> dict[str, object]:
    size: dict[str, object] = {"size": len(body)}
    if name.endswith(_LARGE):
        size["lfs"] = {
            "size": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "oid": hashlib.sha256(body).hexdigest(),
            "pointerSize": 130,
        }
    return size
