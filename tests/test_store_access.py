"""A store that cannot be reached or does not let one in: what is said, and that it is said in time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cogsmith.bucket import open_bucket
from cogsmith.errors import UserError
from s3_server import KEY, SECRET, Answer, Asked, Proxy
from uploads import fill, hurry, refusal, send


@pytest.fixture
def store(store: Proxy, monkeypatch: pytest.MonkeyPatch) -> Proxy:
    hurry(monkeypatch)
    return store


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("model"))


def test_a_bucket_that_is_not_there(store: Proxy, model: Path) -> None:
    assert "there is no bucket s3://absent" in refusal(model, "s3://absent/x")
    assert store.parts == []


def test_a_bucket_that_vanishes_midway(store: Proxy, model: Path) -> None:
    def fault(asked: Asked) -> None:
        if asked.is_part and len(store.parts) == 3:
            store.s3.delete_bucket(Bucket="models")

    store.fault = fault
    assert "there is no bucket s3://models" in refusal(model)


def test_an_upload_that_is_removed_midway(store: Proxy, model: Path) -> None:
    # moto itself would answer 500.
    store.fault = lambda asked: (
        Answer(404, "NoSuchUpload") if asked.is_part and len(store.parts) >= 3 else None
    )
    assert "the upload to s3://models was removed meanwhile" in refusal(model)


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"])
def test_wrong_credentials_are_told_before_a_file_is_read(
    store: Proxy, model: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.fault = lambda asked: Answer(403, code)
    monkeypatch.setattr("cogsmith.pack.sum_up", None)
    said = refusal(model)
    assert f"s3://models refuses the credentials ({code})" in said
    assert "AWS_PROFILE" in said


def test_no_credentials(store: Proxy, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "there are no credentials for s3://models" in refusal(model)
    assert store.asked == []
    monkeypatch.setenv("AWS_PROFILE", "absent")
    assert "AWS_PROFILE names a profile that is not configured" in refusal(model)


def test_a_profile_gives_credentials_and_region(
    store: Proxy, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    folder = Path(os.environ["HOME"]) / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(f"[work]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
    (folder / "config").write_text("[profile work]\nregion=eu-north-1\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert send(model).sent
    signed = [asked.headers.get("authorization", "") + asked.path for asked in store.asked]
    assert all("eu-north-1" in text for text in signed)


def test_no_permission_to_write(store: Proxy, model: Path) -> None:
    store.fault = lambda asked: Answer(403, "AccessDenied") if asked.method == "POST" else None
    said = refusal(model)
    assert "s3://models does not allow writing (AccessDenied)" in said
    assert store.parts == []


def test_no_permission_to_list(store: Proxy, model: Path) -> None:
    """S3 then answers 403 for an object that is not there; looking for it and sending work all the same."""
    there: set[str] = set()

    def fault(asked: Asked) -> Answer | None:
        path = asked.path.partition("?")[0]
        if path == "/models" or (asked.method == "GET" and "uploads" in asked.query):
            return Answer(403, "AccessDenied")
        if asked.is_complete:
            there.add(path)
        if asked.method in ("GET", "HEAD") and not there and "uploadId" not in asked.query:
            return Answer(403, "AccessDenied")
        return None

    store.fault = fault
    assert send(model).sent
    assert not send(model).sent
    with pytest.raises(UserError, match="does not allow listing"):
        open_bucket("s3://models/llm", model).objects()


def test_wrong_credentials_do_not_pass_for_no_object(store: Proxy, tmp_path: Path) -> None:
    store.fault = lambda asked: Answer(403, "SignatureDoesNotMatch" if asked.method == "GET" else "")
    with pytest.raises(UserError, match="refuses the credentials"):
        open_bucket("s3://models/llm", tmp_path).find("x")


def test_nobody_answers(model: Path, store: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:geheim@127.0.0.1:9")
    said = refusal(model)
    assert "s3://models cannot be reached at http://127.0.0.1:9" in said
    assert "AWS_ENDPOINT_URL" in said
    assert "geheim" not in said


def test_another_region(store: Proxy, model: Path) -> None:
    store.fault = lambda asked: Answer(400, "AuthorizationHeaderMalformed")
    said = refusal(model)
    assert "s3://models is in another region than the one that is asked" in said
    assert "set AWS_REGION" in said


def test_google_errors(store: Proxy, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store.url.removeprefix("http://"))
    assert "there is no bucket gs://absent" in refusal(model, "gs://absent")
    store.fault = lambda asked: Answer(401)
    assert "gs://models refuses the credentials" in refusal(model, "gs://models")
    store.fault = lambda asked: Answer(403, "AccessDenied") if asked.method in ("POST", "PUT") else None
    assert "gs://models does not allow writing" in refusal(model, "gs://models")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")
    assert "gs://models cannot be reached at http://127.0.0.1:9" in refusal(model, "gs://models")
