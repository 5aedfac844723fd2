"""Ranges over HTTPS with libcurl: TLS in C, a third of the processor time of Python's own."""

from __future__ import annotations

import ssl
from urllib.parse import urlunsplit

import pycurl

from .curl_loop import Loops
from .errors import WeightsError
from .http_reader import Check, Request, untrusted
from .sources import InterruptedRead, Sink, ended_early

_CERTIFICATE = {pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE}
_STOP = -1


class CurlReader:
    """One connection, kept open from part to part.

    Args:
        check: holds each answer to what was asked.
        loops: drive it.
    """

    def __init__(self, request: Request, check: Check, loops: Loops) -> None:
        self._request = request
        self._check = check
        self._loops = loops
        self._loop = loops.join()
        self._curl = _handle(request)
        self._curl.setopt(pycurl.HEADERFUNCTION, self._header)
        self._curl.setopt(pycurl.WRITEFUNCTION, self._write)
        self._sink: Sink | None = None
        self._start = self._position = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._begun = False
        self._failure: BaseException | None = None

    def read(self, start: int, end: int, sink: Sink) -> None:
        self._sink, self._start = sink, start
        self._begun, self._failure = False, None
        headers = self._request.headers(start, end)
        self._curl.setopt(pycurl.HTTPHEADER, [f"{name}: {value}" for name, value in headers.items()])
        code, text = self._loop.perform(self._curl)
        self._sink = None
        if self._failure is not None:
            raise self._failure from None
        if code == pycurl.E_WRITE_ERROR and not sink.room():
            return
        if code != pycurl.E_OK:
            raise self._reason(code, text)
        if not self._begun:
            self._begin(sink)
        if sink.room():
            raise ended_early(self._position)

    def _reason(self, code: int, text: str) -> InterruptedRead | WeightsError:
        if code in _CERTIFICATE:
            return untrusted(self._request.name, text)
        if code == pycurl.E_OPERATION_TIMEDOUT:
            return InterruptedRead(f"no answer for {self._request.timeout:g} s")
        if code == pycurl.E_PARTIAL_FILE:
            return ended_early(self._position)
        return InterruptedRead(text or f"libcurl's error {code}")

    def _begin(self, sink: Sink) -> None:
        self._position = self._check(self._status, self._value, self._start)
        self._begun = True
        sink.begin(self._position)

    def _value(self, name: str) -> str | None:
        return self._headers.get(name.lower())

    def _header(self, line: bytes) -> None:
        text = line.decode("latin-1").strip()
        if text.startswith("HTTP/"):
            # An informational answer comes before the real one.
            self._headers = {}
            status = text.split(" ")[1:2]
            self._status = int(status[0]) if status and status[0].isdecimal() else 0
        else:
            name, _, value = text.partition(":")
            self._headers[name.strip().lower()] = value.strip()

    def _write(self, data: bytes) -> int | None:
        # What is raised in here libcurl would print and forget.
        try:
            sink = self._sink
            assert sink is not None
            if not self._begun:
                self._begin(sink)
            self._position += len(data)
            return None if sink.put(data) else _STOP
        except BaseException as failure:
            self._failure = failure
            return _STOP

    def interrupt(self) -> None:
        self._loop.abort(self._curl)

    def close(self) -> None:
        self._curl.close()
        self._loops.leave()


def _handle(request: Request) -> pycurl.Curl:
    curl = pycurl.Curl()
    curl.setopt(pycurl.URL, urlunsplit(request.url))
    curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTPS)
    # As the standard library's client, which asks first: no proxy of the environment, no redirect.
    curl.setopt(pycurl.PROXY, "")
    curl.setopt(pycurl.FOLLOWLOCATION, 0)
    # One connection each; with HTTP/2 a server may cap all streams of one together.
    curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    curl.setopt(pycurl.NOSIGNAL, 1)
    seconds = max(1, round(request.timeout))
    curl.setopt(pycurl.CONNECTTIMEOUT, seconds)
    curl.setopt(pycurl.LOW_SPEED_LIMIT, 1)
    curl.setopt(pycurl.LOW_SPEED_TIME, seconds)
    curl.setopt(pycurl.BUFFERSIZE, 512 << 10)
    # The wheel's OpenSSL looks for certificates where they were on the machine that built it.
    places = ssl.get_default_verify_paths()
    if places.cafile:
        curl.setopt(pycurl.CAINFO, places.cafile)
    if places.capath:
        curl.setopt(pycurl.CAPATH, places.capath)
    return curl
