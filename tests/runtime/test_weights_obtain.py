"""Where the weights come from, and the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cogsmith_runtime.weights import WeightsError, obtain

from .packed import Object, packed
from .range_server import RangeServer

OBJECT = packed({"config.json": 700, "model.safetensors": 200_000})


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    return OBJECT.write(tmp_path / "a bucket")


def unpacked(folder: Path, content: Object = OBJECT) -> Path:
    folder.mkdir()
    for name, data in content.files.items():
        (folder / name).write_bytes(data)
    return folder


def test_what_the_host_says_goes_before_the_url(tar: Path, tmp_path: Path) -> None:
    folder = obtain(
        tar.as_uri(), tar.with_name("weights.json"), "http://127.0.0.1:1/x", tmp_path / "cache"
    ).folder
    assert OBJECT.is_in(folder)


def test_the_url_of_the_image(tar: Path, tmp_path: Path) -> None:
    with RangeServer(OBJECT.content) as server:
        assert OBJECT.is_in(
            obtain(None, tar.with_name("weights.json"), server.url, tmp_path / "cache").folder
        )


@pytest.mark.parametrize("as_url", [False, True])
@pytest.mark.parametrize("with_index", [False, True])
def test_a_folder_is_used_where_it_is(tar: Path, tmp_path: Path, as_url: bool, with_index: bool) -> None:
    folder = unpacked(tmp_path / "a model")
    index = tar.with_name("weights.json") if with_index else tmp_path / "none.json"
    assert (
        obtain(folder.as_uri() if as_url else str(folder), index, None, tmp_path / "cache").folder == folder
    )
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("config.json", "has 3 bytes"), ("model.safetensors", "is not there")]
)
def test_a_folder_of_another_model(tar: Path, tmp_path: Path, name: str, reason: str) -> None:
    folder = unpacked(tmp_path / "model")
    (folder / name).unlink()
    if name == "config.json":
        (folder / name).write_text("{ }")
    with pytest.raises(
        WeightsError, match=f"E2207 OtherObject: the folder .* holds other weights: {name} {reason}"
    ):
        obtain(str(folder), tar.with_name("weights.json"), None, tmp_path / "cache")


@pytest.mark.parametrize("weights", [None, ""])
def test_nothing_says_where(tar: Path, tmp_path: Path, weights: str | None) -> None:
    with pytest.raises(WeightsError, match=r"E2201 NoWeights: .*COG_WEIGHTS"):
        obtain(weights, tar.with_name("weights.json"), None, tmp_path)


def test_not_packed_yet(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"E2203 NoIndex: .*Pack the model first"):
        obtain(str(tar), tmp_path / "none.json", None, tmp_path)


def test_no_such_file(tar: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="E2206 NotFound: there is no file /nowhere"):
        obtain("/nowhere/x.tar", tar.with_name("weights.json"), None, tmp_path)


def test_a_tar_of_another_model(tar: Path, tmp_path: Path) -> None:
    tar.write_bytes(OBJECT.content[:-512])
    with pytest.raises(WeightsError, match="E2207 OtherObject"):
        obtain(str(tar), tar.with_name("weights.json"), None, tmp_path / "cache")


def test_a_damaged_tar(tar: Path, tmp_path: Path) -> None:
    tar.write_bytes(OBJECT.content.replace(OBJECT.files["config.json"][:8], b"\0damage\0"))
    with pytest.raises(WeightsError, match=r"E2208 Damaged: config\.json"):
        obtain(str(tar), tar.with_name("weights.json"), None, tmp_path / "cache")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cogsmith_runtime.weights", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_fetch_and_verify_by_hand(tar: Path, tmp_path: Path) -> None:
    index = tar.with_name("weights.json")
    done = run("--index", index, "--url", tar, "--to", tmp_path / "cache")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'cache' / OBJECT.index.digest}\n")
    folder = Path(done.stdout.strip())
    done = run("--index", index, "--verify", folder)
    assert (done.returncode, done.stdout) == (0, "")
    (folder / "config.json").unlink()
    (folder / "modeling.py").touch()
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(70_000)
        file.write(b"\0damage\0")
    done = run("--index", index, "--verify", folder)
    assert done.returncode == 6
    assert done.stdout.splitlines() == [
        "config.json: is not there",
        "model.safetensors: damaged between bytes 65536 and 131072",
        "modeling.py: is not in the index",
    ]


def test_exit_status(tar: Path, tmp_path: Path) -> None:
    index = tar.with_name("weights.json")
    done = run("--index", index, "--url", "/nowhere.tar", "--to", tmp_path)
    assert done.returncode == 4
    assert done.stderr.startswith("E2206 NotFound: there is no file /nowhere.tar")
    assert run("--index", "/nowhere.json", "--url", tar, "--to", tmp_path).returncode == 9
    assert "Exit status:\n  0  done" in run("--help").stdout
    assert run("--index", index, "--url", tar).returncode == 2
    assert run("--index", index, "--url", tar, "--to", tmp_path, "--connections", "0").returncode == 2
