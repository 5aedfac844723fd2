"""Packing to an object store: moto's S3 server, with a proxy in front that fails; the same server as Google's XML interface."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from crc32c import crc32c

from cogsmith.bucket import open_bucket
from cogsmith.crc import Crcs, combined
from cogsmith.layout import layout
from cogsmith.pack import pack
from cogsmith.read_files import read_range, sum_up
from cogsmith_runtime.weights import obtain
from s3_server import Answer, Asked, Cut, Fault, Proxy, use
from uploads import MEBIBYTE, PART, fill, hurry, keys, refusal, send, uploads


@pytest.fixture
def store(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    hurry(monkeypatch)
    return store


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("model"))


def test_combined_sums() -> None:
    data = random.Random(1).randbytes(100_000)
    for cut in (0, 1, 4096, 99_999, 100_000):
        assert combined(crc32c(data[:cut]), crc32c(data[cut:]), len(data) - cut) == crc32c(data)
    crcs = Crcs(1000, 2500)
    crcs.add(data[:1700])
    assert crcs.sums == [crc32c(data[:500]), crc32c(data[500:1500]), crc32c(data[1500:1700])]


def test_a_range_of_the_tar_is_what_is_in_the_tar(model: Path, tmp_path: Path) -> None:
    bucket = open_bucket("file://bucket", tmp_path)
    packed = send(model, f"file://{tmp_path}/bucket")
    tar = (tmp_path / "bucket" / packed.key).read_bytes()
    assert bucket.exists(packed.key)
    plan = layout(model, [path.name for path in model.iterdir()])
    generator = random.Random(2)
    edges = [0, 511, 512, plan.entries[0].offset, plan.end - 1, plan.end, plan.size - 1, plan.size]
    cuts = sorted({*edges, *(generator.randrange(plan.size) for _ in range(40))})
    for start, end in itertools.pairwise(cuts):
        assert b"".join(map(bytes, read_range(plan, start, end))) == tar[start:end], (start, end)
    summed = sum_up(plan, PART)
    assert summed.index == packed.index
    assert summed.whole == crc32c(tar)
    assert list(summed.parts) == [crc32c(tar[start : start + PART]) for start in range(0, len(tar), PART)]


def test_the_same_digest_and_bytes_as_in_a_folder(store: Proxy, model: Path, tmp_path: Path) -> None:
    packed = send(model)
    local = send(model, f"file://{tmp_path}/bucket")
    assert packed.sent
    assert (packed.index, packed.key) == (local.index, local.key)
    assert packed.url == f"s3://models/llm/{packed.key}"
    body = store.s3.get_object(Bucket="models", Key=f"llm/{packed.key}")["Body"]
    assert body.read() == (tmp_path / "bucket" / local.key).read_bytes()
    body.close()
    assert keys(store) == [f"llm/{packed.index.digest}.json", f"llm/{packed.key}"]
    assert uploads(store) == []
    assert len(store.parts) == 7
    assert all("x-amz-checksum-crc32c" in asked.headers for asked in store.parts)


def test_a_rerun_sends_nothing(store: Proxy, model: Path) -> None:
    assert send(model).sent
    there = keys(store)
    store.forget()
    assert not send(model).sent
    assert store.parts == []
    assert store.sent == 0
    assert (keys(store), uploads(store)) == (there, [])


def test_the_reader_reads_it_by_a_signed_address(store: Proxy, model: Path, tmp_path: Path) -> None:
    packed = send(model)
    (tmp_path / "weights.json").write_text(packed.index.dumps())
    address = open_bucket("s3://models/llm", tmp_path).readable(packed.key)
    assert "X-Amz-Signature" in address
    fetched = obtain(address, tmp_path / "weights.json", None, tmp_path / "cache")
    for path in model.iterdir():
        assert (fetched.folder / path.name).read_bytes() == path.read_bytes()


def test_over_https_with_a_certificate_of_ones_own(
    store: Proxy, moto_url: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "both.pem", tmp_path / "tls.crt"
    # As rustls takes it, which is in obstore.
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    name += ["-addext", "basicConstraints=critical,CA:FALSE"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *name]
    subprocess.run([*command, "-keyout", key, "-out", certificate], capture_output=True, check=True)
    key.write_text(key.read_text() + certificate.read_text())
    with Proxy(moto_url, key) as proxy:
        use(monkeypatch, proxy.url)
        assert "cannot be reached" in refusal(model)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        assert send(model).sent
        assert len(proxy.parts) == 7
        proxy.forget()
        assert not send(model).sent


def test_certificates_do_not_matter_over_http(
    store: Proxy, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", os.devnull)
    assert send(model).sent


SLOW = """
import sys
from pathlib import Path
from cogsmith import s3, upload
s3._SMALLEST_PART = 5 << 20
upload.CONNECTIONS = 1
from cogsmith.bucket import open_bucket
from cogsmith.pack import pack
model = Path(sys.argv[1])
pack(model, [path.name for path in model.iterdir()], open_bucket("s3://models/llm", model))
"""


def with_sums(store: Proxy) -> Fault:
    """Lists parts as S3 does, with their sums, which moto leaves out: those that they were sent with, but for the first part."""
    sent = {
        int(asked.query["partNumber"][0]): asked.headers["x-amz-checksum-crc32c"] for asked in store.parts
    }
    sent[1] = "AAAAAA=="

    def fault(asked: Asked) -> Answer | None:
        if asked.method != "GET" or "uploadId" not in asked.query:
            return None
        upload = uploads(store)[0]
        parts = store.s3.list_parts(Bucket="models", Key=upload["Key"], UploadId=upload["UploadId"])["Parts"]
        listed = "".join(
            f"<Part><PartNumber>{part['PartNumber']}</PartNumber><Size>{part['Size']}</Size>"
            f"<ETag>{part['ETag']}</ETag><ChecksumCRC32C>{sent[part['PartNumber']]}</ChecksumCRC32C></Part>"
            for part in parts
        )
        return Answer(
            200, text=f"<ListPartsResult><IsTruncated>false</IsTruncated>{listed}</ListPartsResult>"
        )

    return fault


@pytest.mark.parametrize("sums", [False, True], ids=["MD5 as tags", "a sum of each part"])
def test_an_upload_that_was_killed_goes_on_with_what_is_missing(
    store: Proxy, model: Path, sums: bool
) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW, str(model)])
    deadline = time.monotonic() + 60
    while store.sent < 3 * PART and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert keys(store) == []
    upload = uploads(store)[0]
    names = {"Bucket": "models", "Key": upload["Key"], "UploadId": upload["UploadId"]}
    arrived = sum(part["Size"] for part in store.s3.list_parts(**names)["Parts"])
    assert arrived >= 3 * PART
    fault = with_sums(store) if sums else store.fault
    store.forget()
    store.fault = fault
    packed = send(model)
    assert packed.sent
    assert store.sent == packed.index.size - arrived + (PART if sums else 0)
    assert uploads(store) == []


def test_a_part_of_other_bytes_is_sent_again(store: Proxy, model: Path) -> None:
    """Somebody's upload under the same key with a wrong first part, and a second one of the wrong size."""
    plan = layout(model, [path.name for path in model.iterdir()])
    key = f"llm/{sum_up(plan, PART).index.digest}.tar"
    started = store.s3.create_multipart_upload(Bucket="models", Key=key)
    names = {"Bucket": "models", "Key": key, "UploadId": started["UploadId"]}
    store.s3.upload_part(**names, PartNumber=1, Body=bytes(PART))
    store.s3.upload_part(**names, PartNumber=2, Body=b"short")
    right = b"".join(map(bytes, read_range(plan, 2 * PART, 3 * PART)))
    store.s3.upload_part(**names, PartNumber=3, Body=right)
    packed = send(model)
    assert store.sent == packed.index.size - PART
    body = store.s3.get_object(Bucket="models", Key=key)["Body"]
    assert crc32c(body.read()) == sum_up(plan, PART).whole
    body.close()


def test_failures_that_pass(store: Proxy, model: Path) -> None:
    def fault(asked: Asked) -> Answer | Cut | None:
        if not asked.is_part:
            return None
        return {1: Answer(503, "SlowDown"), 3: Cut(100_000), 4: Answer(400, "RequestTimeout"), 5: Cut(0)}.get(
            len(store.parts)
        )

    store.fault = fault
    calls: list[tuple[int, int]] = []
    files = [path.name for path in model.iterdir()]
    packed = pack(
        model,
        files,
        open_bucket("s3://models/llm", model),
        bar=lambda _: nullcontext(lambda *call: calls.append(call)),
    )
    assert len(store.parts) == 7 + 4
    assert store.sent == packed.index.size
    assert calls[-1] == (packed.index.size, packed.index.size)


def test_a_store_that_stays_down(store: Proxy, model: Path) -> None:
    store.fault = lambda asked: Answer(503, "SlowDown") if asked.is_part else None
    assert "s3://models answers SlowDown again and again to writing" in refusal(model)
    assert len(uploads(store)) == 1  # for the next try
    store.forget()
    assert send(model).sent
    assert uploads(store) == []


def test_an_object_of_another_size_is_never_replaced(store: Proxy, model: Path) -> None:
    key = send(model).key
    store.s3.put_object(Bucket="models", Key=f"llm/{key}", Body=b"other")
    store.forget()
    said = refusal(model)
    assert f"s3://models/llm/{key} has 5 bytes and must have " in said
    assert store.parts == []
    assert store.s3.head_object(Bucket="models", Key=f"llm/{key}")["ContentLength"] == 5


def test_an_index_of_other_bytes_is_never_replaced(store: Proxy, model: Path) -> None:
    digest = send(model).index.digest
    store.s3.put_object(Bucket="models", Key=f"llm/{digest}.json", Body=b"other")
    assert f"s3://models/llm/{digest}.json is damaged: it is not what its name says" in refusal(model)


def test_an_object_that_another_process_finishes_first(store: Proxy, model: Path) -> None:
    plan = layout(model, [path.name for path in model.iterdir()])
    tar = b"".join(map(bytes, read_range(plan, 0, plan.size)))

    def fault(asked: Asked) -> None:
        if asked.is_complete:
            store.s3.put_object(
                Bucket="models", Key=asked.path.partition("?")[0].removeprefix("/models/"), Body=tar
            )

    store.fault = fault
    assert send(model).sent
    assert uploads(store) == []


def test_what_arrives_is_checked(store: Proxy, model: Path) -> None:
    """Another process finishes first, with other bytes of the same size."""
    size = layout(model, [path.name for path in model.iterdir()]).size

    def fault(asked: Asked) -> None:
        if asked.is_complete:
            path = asked.path.partition("?")[0].removeprefix("/models/")
            store.s3.put_object(Bucket="models", Key=path, Body=bytes(size))

    store.fault = fault
    assert "is damaged" in refusal(model)
    assert not [key for key in keys(store) if key.endswith(".json")]


def test_a_file_that_changes_between_the_passes(store: Proxy, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for path in model.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())

    def fault(asked: Asked) -> None:
        if asked.is_part and len(store.parts) == 1:
            with (folder / "b.safetensors").open("r+b") as file:
                file.seek(12 * MEBIBYTE)
                file.write(b"new")

    store.fault = fault
    monkey = pytest.MonkeyPatch()
    monkey.setattr("cogsmith.upload.CONNECTIONS", 1)
    try:
        assert "b.safetensors changed while it was packed" in refusal(folder)
    finally:
        monkey.undo()
    assert keys(store) == []
    assert uploads(store) == []


@pytest.mark.parametrize("unknown", ["checksums", "condition"])
def test_a_store_that_knows_less(store: Proxy, model: Path, unknown: str) -> None:
    def fault(asked: Asked) -> Answer | None:
        refused = "x-amz-checksum-algorithm" if unknown == "checksums" else "if-none-match"
        if asked.method == "POST" and refused in asked.headers:
            return Answer(501, "NotImplemented")
        return None

    store.fault = fault
    assert send(model).sent
    store.forget()
    assert not send(model).sent


def test_google(store: Proxy, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not Google's server: obstore speaks its XML interface, which moto's S3 server understands as far as it is used here."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store.url)
    packed = send(model, "gs://models/llm")
    assert packed.sent
    assert packed.key == send(model, f"file://{tmp_path}/b").key
    assert keys(store) == [f"llm/{packed.index.digest}.json", f"llm/{packed.key}"]
    store.forget()
    assert not send(model, "gs://models/llm").sent
    assert store.parts == []
    bucket = open_bucket("gs://models/llm", tmp_path)
    assert bucket.list() == [f"{packed.index.digest}.json", packed.key]
    bucket.delete(packed.key)
    assert not bucket.exists(packed.key)
