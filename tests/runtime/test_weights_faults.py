"""Everything that a server does wrong, over plain HTTP and over TLS with libcurl and with the standard library."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cogsmith_runtime.weights import Limits
from cogsmith_runtime.weights.journal import Journal

from .packed import GRANULE, QUICK, Object, packed
from .range_server import Faults, RangeServer

OBJECT = packed()
Serve = Callable[..., RangeServer]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run([*command, "-keyout", path, "-out", f"{path}.crt"], capture_output=True, check=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def serve_tls(certificate: Path, content: Object = OBJECT, **faults: Any) -> RangeServer:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    return RangeServer(content.content, Faults(**faults), tls)


@pytest.fixture(params=["http", "libcurl", "ssl"])
def serve(request: pytest.FixtureRequest, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Makes a server of one kind, and has the reader use the client of that kind."""
    if request.param == "http":
        return lambda content=OBJECT, **faults: RangeServer(content.content, Faults(**faults))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    if request.param == "ssl":
        without_pycurl(monkeypatch)
    return lambda content=OBJECT, **faults: serve_tls(certificate, content, **faults)


def without_pycurl(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not installed."""
    monkeypatch.setitem(sys.modules, "pycurl", None)
    monkeypatch.delitem(sys.modules, "cogsmith_runtime.weights.curl_reader", raising=False)


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"no_ranges": True},
        {"no_ranges_after": 5},
        {"every": 5},
        {"every": 5, "passing": 429},
        {"every": 5, "passing": 500},
        {"every": 9, "retry_after": "soon"},
        {"wrong_range": (3, 8)},
        {"short": 100_000},
        {"cut": 100_000},
        {"reset": 100_000},
        {"redirect": "/moved?signature=secret"},
        {"stall": (3, 7)},
        {"trickle": (3, 7)},
        {"flip": 100_000, "flips": 2},
        {"no_ranges": True, "flip": 100_000, "flips": 2},
        {"cut": 100_000, "every": 7, "redirect": "/moved"},
    ],
    ids=str,
)
def test_fetch_in_spite_of(tmp_path: Path, serve: Serve, faults: dict[str, Any]) -> None:
    with serve(**faults) as server:
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path))


@pytest.mark.parametrize("fault", ["cut", "reset", "short"])
def test_a_body_that_ends_early_goes_on_at_the_byte(tmp_path: Path, serve: Serve, fault: str) -> None:
    with serve(**{fault: 100_000}) as server:
        OBJECT.fetch(server.url, tmp_path)
        # What a reset throws away has to come again.
        assert server.served <= len(OBJECT.content) * (2 if fault == "reset" else 1)


def test_bodies_cut_at_3_mib(tmp_path: Path, serve: Serve) -> None:
    large = packed({"config.json": 700, "model.safetensors": 32 << 20})
    with serve(large, cut=3 << 20) as server:
        assert large.is_in(large.fetch(server.url, tmp_path, Limits(connections=4, pause=0.01)))
        assert server.served <= len(large.content)


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_says_when_to_come_back_is_left_alone_until_then(
    tmp_path: Path, serve: Serve, status: int
) -> None:
    with serve(every=1, passing=status, retry_after="1") as server:
        start = time.monotonic()
        text = OBJECT.fails(server.url, tmp_path, dataclasses.replace(QUICK, tries=2))
        assert text.startswith("E2211 Unreachable")
        assert f"the server answers {status}" in text
        assert time.monotonic() - start >= 1
        assert len(server.ranges) == 2


def test_a_redirect_is_followed_once(tmp_path: Path, serve: Serve) -> None:
    with serve(redirect="/moved?signature=secret") as server:
        OBJECT.fetch(server.url, tmp_path)
        assert [path for path in server.paths if path.startswith("/object")] == server.paths[:1]


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"status_after": 1, "status": 403}, "E2205 Refused"),
        ({"status_after": 1, "status": 401}, "E2205 Refused"),
        ({"status_after": 1, "status": 404}, "E2206 NotFound"),
        ({"status_after": 1, "status": 416}, "E2207 OtherObject"),
        ({"status_after": 1, "status": 418}, "E2204 BadSource"),
        ({"status_after": 6, "status": 403}, "E2205 Refused"),
        ({"status_after": 6, "status": 404}, "E2206 NotFound"),
        ({"status_after": 6, "status": 412}, "E2207 OtherObject"),
        ({"size": len(OBJECT.content) + 4096}, "E2207 OtherObject"),
        ({"size": len(OBJECT.content) - 4096}, "E2207 OtherObject"),
        ({"size": 4096, "no_ranges": True}, "E2207 OtherObject"),
        ({"new_tag": 4}, "E2207 OtherObject"),
        ({"status_after": 1, "status": 503}, "E2211 Unreachable"),
        ({"status_after": 1, "status": 302}, "E2211 Unreachable"),
        ({"wrong_range": tuple(range(2, 999))}, "E2211 Unreachable"),
        ({"redirect": "/object?again"}, "E2204 BadSource"),
        ({"redirect": "ftp://elsewhere/x?token=secret"}, "E2204 BadSource"),
    ],
    ids=str,
)
def test_fetch_that_fails(tmp_path: Path, serve: Serve, faults: dict[str, Any], message: str) -> None:
    with serve(**faults) as server:
        text = OBJECT.fails(server.url, tmp_path)
        assert text.startswith(message)
        assert "127.0.0.1" in text
        assert "secret" not in text
        if "Unreachable" not in message:
            assert len(server.ranges) <= 6 + QUICK.connections


def test_a_url_that_ran_out_midway_goes_on_with_a_new_one(tmp_path: Path, serve: Serve) -> None:
    with serve(status_after=9) as server:
        assert OBJECT.fails(server.url, tmp_path).startswith("E2205 Refused")
        server.faults.status_after = None
        kept = len(Journal(tmp_path / f"{OBJECT.index.digest}.journal", OBJECT.index.digest).claims)
        assert kept
        before = server.served
        assert OBJECT.is_in(OBJECT.fetch(f"{server.url}&renewed", tmp_path))
        assert server.served - before <= len(OBJECT.content) - (kept - 4) * GRANULE


@pytest.mark.parametrize("which", ["first", "middle", "last"])
def test_damage_names_file_and_offset(tmp_path: Path, serve: Serve, which: str) -> None:
    number, granule = {"first": (0, 0), "middle": (3, 5), "last": (4, 21)}[which]
    member = OBJECT.index.files[number]
    start = granule * GRANULE
    length = min(GRANULE, member.size - start)
    with serve(flip=member.offset + start + 17) as server:
        text = OBJECT.fails(server.url, tmp_path)
        assert text.startswith(
            f"E2208 Damaged: {member.path} is damaged in {server.url.split('?')[0]}: the {length} bytes "
            f"at {start} of the file (at {member.offset + start} of the object) do not have their crc32c"
        )
        server.faults.flip = None
        before = server.served
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path))
        assert server.served - before <= len(OBJECT.content)


def test_an_error_in_one_connection_ends_the_others_at_once(tmp_path: Path, serve: Serve) -> None:
    with serve(stall=(2, 3, 4), status_after=5) as server:
        start = time.monotonic()
        text = OBJECT.fails(server.url, tmp_path, dataclasses.replace(QUICK, timeout=30))
        assert text.startswith("E2205 Refused")
        assert time.monotonic() - start < 2.5


def test_a_connection_far_slower_than_the_others_is_replaced(tmp_path: Path, serve: Serve) -> None:
    """Its bytes never stop, so no timeout would end it before a day."""
    limits = dataclasses.replace(QUICK, timeout=3600)
    with serve(trickle=(3,)) as server:
        start = time.monotonic()
        assert OBJECT.is_in(OBJECT.fetch(server.url, tmp_path, limits))
        assert time.monotonic() - start < 30


@pytest.mark.parametrize("client", ["libcurl", "ssl"])
def test_a_certificate_that_is_not_trusted(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    if client == "ssl":
        without_pycurl(monkeypatch)
    with serve_tls(certificate) as server:
        text = OBJECT.fails(server.url, tmp_path)
        assert text.startswith("E2211 Unreachable: the certificate of https://127.0.0.1:")
        assert "SSL_CERT_FILE" in text
        assert server.ranges == []


def test_http_may_lead_to_https(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with serve_tls(certificate) as server, RangeServer(b"", Faults(redirect=server.url)) as first:
        assert OBJECT.is_in(OBJECT.fetch(first.url, tmp_path))
        assert len(first.ranges) == 1


def test_https_stays_https(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with RangeServer(OBJECT.content) as plain, serve_tls(certificate, redirect=plain.url) as server:
        text = OBJECT.fails(server.url, tmp_path)
        assert text.startswith("E2204 BadSource")
        assert "without TLS" in text
        assert plain.ranges == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_name_that_does_not_exist(tmp_path: Path, scheme: str) -> None:
    text = OBJECT.fails(f"{scheme}://nowhere.invalid/object?token=secret", tmp_path)
    assert text.startswith(
        f"E2211 Unreachable: {scheme}://nowhere.invalid/object cannot be read after 8 tries ("
    )
    assert "secret" not in text


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_is_not_there(tmp_path: Path, scheme: str) -> None:
    assert OBJECT.fails(f"{scheme}://127.0.0.1:1/object?token=secret", tmp_path).startswith(
        f"E2211 Unreachable: {scheme}://127.0.0.1:1/object cannot be read after 8 tries (["
    )


@pytest.mark.parametrize(
    "sizes",
    [
        {"config.json": 1},
        {"config.json": 0},
        {"model.safetensors": GRANULE},
        {"model.safetensors": GRANULE + 1, "a.json": GRANULE - 1},
        {f"part {number}/{number}.json": number for number in range(2000)},
        {"-rf": 5, ".hidden": 6, "two words.json": 7, "größe/モデル.safetensors": 90_000, "a\u00a0b'\"$;": 8},
    ],
    ids=["one byte", "no byte", "one granule", "around one granule", "2,000 files", "odd names"],
)
def test_files_of_any_size_and_name(tmp_path: Path, serve: Serve, sizes: dict[str, int]) -> None:
    content = packed(sizes)
    with serve(content) as server:
        assert content.is_in(content.fetch(server.url, tmp_path))


def command(server: RangeServer, folder: Path) -> list[str]:
    OBJECT.write(folder)
    arguments = ["--index", folder / "weights.json", "--url", server.url, "--to", folder / "cache"]
    return [sys.executable, "-m", "cogsmith_runtime.weights", *map(str, arguments)]


def test_killed_ten_times_at_any_moment(tmp_path: Path, serve: Serve) -> None:
    """Each run keeps what it had: so many kills would else never let one come to its end."""
    moments = random.Random(11)
    with serve(rate=700_000) as server:
        for _ in range(10):
            child = subprocess.Popen(
                command(server, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(moments.uniform(0.05, 0.9))
            child.kill()
            child.wait()
        server.faults.rate = None
        # The server notices only now that nobody listens any more.
        time.sleep(0.4)
        kept = len(Journal(tmp_path / "cache" / f"{OBJECT.index.digest}.journal", OBJECT.index.digest).claims)
        before = server.served
        done = subprocess.run(command(server, tmp_path), capture_output=True, text=True, check=True)
        assert OBJECT.is_in(Path(done.stdout.strip()))
        assert server.served - before <= max(1, len(OBJECT.content) - (kept - 4) * GRANULE)


def test_sigterm_keeps_what_is_there(tmp_path: Path, serve: Serve) -> None:
    with serve(rate=400_000) as server:
        child = subprocess.Popen(command(server, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        journal = tmp_path / "cache" / f"{OBJECT.index.digest}.journal"
        limit = time.monotonic() + 20
        while time.monotonic() < limit and not (
            journal.exists() and len(journal.read_text().splitlines()) > 8
        ):
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGTERM)
        out, error = child.communicate(timeout=10)
        assert (child.returncode, out) == (143, b"")
        assert b"Traceback" not in error
        assert len(Journal(journal, OBJECT.index.digest).claims) >= 8
