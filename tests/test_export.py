"""Packed weights -> a folder for Cog's managed weights. `cog` itself takes it where there is one."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cogsmith.errors import UserError
from cogsmith.managed_weights import export as export_files
from cogsmith.managed_weights import rendered, set_digest
from cogsmith.paths import Project
from cogsmith.progress import Progress
from cogsmith.verbs.export import export
from cogsmith.verbs.lock import lock
from cogsmith.verbs.pack import pack
from cogsmith.verbs.render import planned
from cogsmith_runtime.weights import Index, obtain
from projects import SPEC, make_project
from s3_server import client, moto, use

GOLDEN = Path(__file__).parent / "golden" / "managed"
OWN = ("cog.yaml", ".dockerignore", "README.md")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With weights that are packed, and a variable of its own in the spec."""
    made = make_project(tmp_path, monkeypatch, SPEC + "environment: {VLLM_LOGGING_LEVEL: INFO}\n")
    pack(made, "tiny")
    return made


def run(project: Project, to: Path | None = None) -> Path:
    export(project, planned(project, "tiny"), to, as_json=False)
    return project.build_dir("tiny@managed") if to is None else to


def refusal(project: Project, to: Path | None = None) -> str:
    """What is said; nothing is made and nothing changes then."""
    before = everything(project.root)
    with pytest.raises(UserError) as caught:
        run(project, to)
    assert everything(project.root) - {project.root / "build"} == before - {project.root / "build"}
    hint = caught.value.hint or ""
    assert hint
    assert not hint.endswith(".")
    return "\n".join(caught.value.lines())


def everything(root: Path) -> set[Path]:
    return set(root.rglob("*"))


def tar_of(project: Project) -> Path:
    [tar] = (project.root / ".bucket").glob("*.tar")
    return tar


def cogsmith(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cogsmith", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_files_are_those_that_were_packed(project: Project) -> None:
    folder = run(project)
    model = project.root / "weights" / "tiny"
    names = sorted(path.name for path in (folder / "weights").iterdir())
    assert names == sorted(member.path for member in Index.load(folder / "weights.json").files)
    for name in names:
        assert (folder / "weights" / name).read_bytes() == (model / name).read_bytes()
    # Cog refuses what is not a plain file.
    assert not any(path.is_symlink() for path in everything(folder))
    assert sorted(path.name for path in (project.root / "build").iterdir()) == ["tiny@managed"]
    index = planned(project, "tiny").index
    assert index is not None
    assert Index.load(folder / "weights.json").digest == index.digest == tar_of(project).stem


def test_what_is_rendered_is_as_reviewed(project: Project, golden: Callable[[Path, str], None]) -> None:
    folder = run(project)
    for name in OWN:
        golden(GOLDEN / name, (folder / name).read_text())


def test_the_rest_is_what_render_writes(project: Project) -> None:
    folder = run(project)
    assert cogsmith("render", "tiny").returncode == 0
    for path in everything(project.build_dir("tiny")):
        name = path.relative_to(project.build_dir("tiny")).as_posix()
        if path.is_file() and name not in OWN:
            assert (folder / name).read_bytes() == path.read_bytes()
    assert yaml.safe_load((folder / "cog.yaml").read_text()) == {
        **yaml.safe_load((project.build_dir("tiny") / "cog.yaml").read_text()),
        "environment": ["COG_WEIGHTS=/src/weights", "VLLM_LOGGING_LEVEL=INFO"],
        "model": "tiny",
        "weights": [{"name": "tiny", "target": "/src/weights", "source": {"uri": "file://./weights"}}],
    }


def test_the_container_takes_the_folder_as_it_is(project: Project, tmp_path: Path) -> None:
    folder = run(project)
    files, cache = folder / "weights", tmp_path / "cache"
    files.chmod(0o555)
    done = obtain(str(files), folder / "weights.json", None, cache)
    assert (done.folder, done.received, cache.exists()) == (files, 0, False)
    command = [
        sys.executable,
        "-m",
        "cogsmith_runtime.weights",
        "--index",
        "weights.json",
        "--verify",
        "weights",
    ]
    assert subprocess.run(command, cwd=folder, check=False, timeout=60).returncode == 0
    files.chmod(0o755)


def test_the_set_digest_is_of_what_sha256sum_says(project: Project) -> None:
    folder = run(project)
    said = subprocess.run(
        "sha256sum * | sort", cwd=folder / "weights", shell=True, capture_output=True, check=True
    )
    digest = hashlib.sha256(said.stdout.rstrip(b"\n")).hexdigest()
    assert set_digest(Index.load(folder / "weights.json")) == f"sha256:{digest}"


def test_one_object_of_json(project: Project, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = cogsmith("weights", "export", "tiny", "--to", "out", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    index = planned(project, "tiny").index
    assert index is not None
    assert json.loads(done.stdout) == {
        "model": "tiny",
        "folder": str(tmp_path / "out"),
        "digest": index.digest,
        "set_digest": set_digest(index),
        "files": len(index.files),
        "size": index.content,
    }
    assert (tmp_path / "out" / "weights" / "config.json").exists()


def test_one_of_several_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = "model: weights/tiny\nbackend: [vllm, tensorrt-llm]\nhardware: l40s\n"
    pack(make_project(tmp_path, monkeypatch, spec), "tiny")
    done = cogsmith("weights", "export", "tiny", "--backend", "vllm")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "build/tiny@vllm@managed/weights/config.json").exists()
    assert "--backend" in cogsmith("weights", "export", "tiny").stderr


def test_from_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with moto() as url:
        use(monkeypatch, url)
        with contextlib.closing(client(url)) as s3:
            s3.create_bucket(Bucket="models")
            made = make_project(tmp_path, monkeypatch, SPEC + "weights: {bucket: 's3://models/llm'}\n")
            pack(made, "tiny")
            folder = run(made)
            assert (folder / "weights" / "config.json").exists()
            assert "Signature" not in "".join(path.read_text() for path in map(folder.joinpath, OWN))
            for stored in s3.list_objects_v2(Bucket="models")["Contents"]:
                s3.delete_object(Bucket="models", Key=stored["Key"])
        assert "are not in s3://models/llm" in refusal(made, tmp_path / "again")


def test_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_project(tmp_path, monkeypatch)
    assert "models/tiny.lock is missing" in refusal(made)
    lock(made, "tiny")
    assert "the weights of tiny are not packed\nHint: run `cogsmith pack tiny`" in refusal(made)


def test_no_object(project: Project) -> None:
    tar_of(project).unlink()
    assert re.search(r"the packed weights \w{16}… are not in file://\.bucket", refusal(project))


def test_a_cut_object(project: Project) -> None:
    with tar_of(project).open("r+b") as tar:
        tar.truncate(4096)
    assert "are not in file://.bucket" in refusal(project)


def test_a_folder_that_is_taken(project: Project, tmp_path: Path) -> None:
    assert "weights is not empty\nHint: remove it, or name another folder" in refusal(
        project, tmp_path / "weights"
    )
    (tmp_path / "file").write_text("x")
    assert "file is not a folder" in refusal(project, tmp_path / "file")
    run(project, tmp_path / "out")
    assert "out is not empty" in refusal(project, tmp_path / "out")


def test_no_room(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1000))
    assert "to export tiny takes 0.00 GB\nHint: make room, or name a folder on a larger disk" in refusal(
        project
    )


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_object(project: Project, name: str) -> None:
    index = planned(project, "tiny").index
    assert index is not None
    [member] = [member for member in index.files if member.path == name]
    with tar_of(project).open("r+b") as tar:
        tar.seek(member.offset + member.size - 1)
        tar.write(b"!")
    assert f"{name} is damaged in " in refusal(project)


def test_tensors_that_somebody_changed(project: Project, tmp_path: Path) -> None:
    """With the right crc32c, which the reader alone would believe."""
    plan = planned(project, "tiny")
    assert plan.index is not None
    members = [
        dataclasses.replace(member, sha256="0" * 64) if member.is_tensors else member
        for member in plan.index.files
    ]
    index = dataclasses.replace(plan.index, files=tuple(members))
    before = everything(tmp_path)
    with pytest.raises(UserError, match=r"is damaged: model\.safetensors: has another sha256"):
        export_files(plan, index, str(tar_of(project)), tmp_path / "out")
    assert everything(tmp_path) == before


def test_nothing_is_left_when_it_is_interrupted(project: Project, tmp_path: Path) -> None:
    @contextlib.contextmanager
    def bar(title: str) -> Iterator[Progress]:
        def stop(done: int, total: int) -> None:
            if title == "Verifying":
                raise KeyboardInterrupt

        yield stop

    plan = planned(project, "tiny")
    assert plan.index is not None
    before = everything(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        export_files(plan, plan.index, str(tar_of(project)), tmp_path / "out", bar)
    assert everything(tmp_path) == before


def test_a_read_url_is_still_rendered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPEC + "weights: {url: 'https://weights.example.com'}\n"
    made = make_project(tmp_path, monkeypatch, spec)
    lock(made, "tiny")
    plan = planned(made, "tiny")
    index = Index(source=None, revision=None, size=0, granule=4096, files=())
    assert "COG_WEIGHTS=/src/weights" in rendered(plan, index)["cog.yaml"]


@pytest.fixture
def cog() -> str:
    """Cog's program: Go, with releases of its own; the Python package of that name has none."""
    found = shutil.which("cog")
    if (
        found is None
        or subprocess.run([found, "weights", "import", "--help"], capture_output=True).returncode
    ):
        pytest.skip("there is no cog 0.20 or newer on PATH")
    return found


def test_cog_imports_it(project: Project, cog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to its lock: that is written before anything is pushed, and there is no registry here."""
    folder = run(project)
    monkeypatch.setenv("COG_MODEL", "127.0.0.1:1/nobody/tiny")
    monkeypatch.setenv("COG_NO_UPDATE_CHECK", "1")
    path = folder / "weights.lock"
    with subprocess.Popen(
        [cog, "weights", "import"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        until = time.monotonic() + 30
        while not path.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
        said = process.communicate()[0]
    assert path.exists(), said
    [weights] = json.loads(path.read_text())["weights"]
    index = Index.load(folder / "weights.json")
    assert facts(weights) == {
        "name": "tiny",
        "target": "/src/weights",
        "setDigest": set_digest(index),
        "size": index.content,
        "files": {member.path: (member.size, f"sha256:{member.sha256}") for member in index.files},
    }


def facts(weights: dict[str, Any]) -> dict[str, Any]:
    files = {file["path"]: (file["size"], file["digest"]) for file in weights["files"]}
    return {key: weights[key] for key in ("name", "target", "setDigest", "size")} | {"files": files}
