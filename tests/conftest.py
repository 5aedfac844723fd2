"""What every test gets: a home and a cache of its own, golden files, and an S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from s3_server import Proxy, empty_store, moto

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing with them"
    )


@pytest.fixture(autouse=True)
def isolated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing of the user's reaches a test, and no test reaches the user's: except the real ones, which share the engine's environment."""
    # The marker alone: the keywords of a test have the names of its folders too, and a checkout may be called "real".
    if request.node.get_closest_marker("real") is not None:
        return
    home = tmp_path_factory.mktemp("home")
    patch = pytest.MonkeyPatch()
    request.addfinalizer(patch.undo)
    patch.setenv("HOME", str(home))
    for name in (
        "XDG_CACHE_HOME",
        "COGSMITH_CACHE",
        "COG_WEIGHTS",
        "HF_TOKEN",
        "HF_HOME",
        "HF_ENDPOINT",
        "HF_HUB_OFFLINE",
    ):
        patch.delenv(name, raising=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a committed file, byte for byte; `--update-golden` writes it."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing: run `make golden` and read the diff"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """moto's S3 server."""
    with moto() as url:
        yield url


@pytest.fixture
def store(moto_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of that server, which has one empty bucket, models."""
    with empty_store(moto_url, monkeypatch) as proxy:
        yield proxy
