"""Where a spec's checkpoint comes from: a folder, a .gguf file, the Hugging Face Hub, a tar behind https, a bucket's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from cogsmith import environment, gguf, hub, pickles, remote_folder, remote_tar
from cogsmith.checkpoint import Checkpoint, read_checkpoint
from cogsmith.engines import VLLM_CPU
from cogsmith.errors import MistakesError, UserError
from cogsmith.layout import Origin, fingerprint
from cogsmith.model_address import HubAddress, hub_address, scheme
from cogsmith.model_files import bins, chosen, no_weights, safetensors
from cogsmith.output import bytes_bar, step, warn
from cogsmith.paths import Project, cache_dir
from cogsmith.safetensors import DamagedError, read_header
from cogsmith.spec import Spec


@dataclass(frozen=True)
class Source:
    """A checkpoint, and where it is from.

    Attributes:
        checkpoint: what its headers say. Of a model of the Hub its folder may hold no more than those.
        origin: the address and the revision of what is packed.
        fingerprint: changes when the files do.
    """

    checkpoint: Checkpoint
    origin: Origin
    fingerprint: str
    _whole: Callable[[], Path] | None = field(default=None, repr=False)

    def whole(self) -> Checkpoint:
        """The same checkpoint with all its bytes on this machine; downloads what is not.

        Raises:
            UserError: it cannot be downloaded, or is not what its headers said.
        """
        if self._whole is None:
            return self.checkpoint
        folder = self._whole()
        for name in self.checkpoint.files:
            _check_same(self.checkpoint.folder / name, folder / name)
        return replace(self.checkpoint, folder=folder)


def read_source(spec: Spec, project: Project, locked: str | None = None) -> Source:
    """The checkpoint of a spec, its oddities told.

    Args:
        locked: the commit to take of a model of the Hub; without one, the commit that its revision is now.

    Raises:
        UserError: it is missing, incomplete, damaged or no model.
    """
    kind = scheme(spec.model)
    if kind == "hf":
        source = _from_hub(spec, project, locked)
    elif kind == "https":
        with bytes_bar("Downloading") as progress:
            tar = remote_tar.fetch_tar(spec.model, cache_dir(), progress)
        source = _from_folder(spec, project, tar.folder, Origin(spec.model, tar.sha256))
    elif kind in ("s3", "gs"):
        code = spec.trust_remote_code is not None
        with bytes_bar("Downloading") as progress:
            folder = remote_folder.fetch_folder(spec.model, cache_dir(), spec.globs, code, progress)
        source = _from_folder(spec, project, folder, Origin(spec.model.rstrip("/")))
    else:
        source = _from_folder(spec, project, project.root / spec.model, Origin())
    for oddity in source.checkpoint.warnings:
        warn(f"{spec.model}: {oddity}")
    return source


def _from_folder(spec: Spec, project: Project, folder: Path, origin: Origin) -> Source:
    if spec.trust_remote_code is not None:
        _check_revision(spec, folder, spec.trust_remote_code.revision)
    if spec.is_gguf:
        folder = gguf.convert(folder, _python(spec, project, "bfloat16"), cache_dir(), _log(spec, project))
    elif folder.is_dir():
        folder = _without_pickles(spec, project, folder)
    checkpoint = read_checkpoint(folder, spec.trust_remote_code is not None, spec.globs)
    return Source(checkpoint, origin, fingerprint(checkpoint.folder, checkpoint.files))


def _from_hub(spec: Spec, project: Project, locked: str | None) -> Source:
    address = hub_address(spec.model)
    try:
        commit = _commit(spec, address, locked)
    except hub.UnreachableError:
        # Without a network the Hub client's own cache will do: whoever downloaded the model has its files there.
        folder = hub.cached(address, locked)
        if folder is None:
            raise
        _check_commit(spec, folder.name)
        step(f"{spec.model}: taken from the cache at {folder.name[:12]}, the Hub is not asked")
        found = _from_cache(spec, project, folder)
        origin = Origin(address.url, folder.name)
        return Source(found, origin, _commit_fingerprint(origin, found.files))
    _check_commit(spec, commit.sha)
    names = _chosen(spec, commit)
    origin = Origin(
        address.url, commit.sha, {name: file.sha256 for name, file in commit.files.items() if file.sha256}
    )
    if not safetensors(names, spec.globs):
        # Only whole files tell what is in them.
        folder = _without_pickles(spec, project, _downloaded(commit, names))
        found = read_checkpoint(folder, spec.trust_remote_code is not None, spec.globs)
        return Source(found, origin, _commit_fingerprint(origin, found.files))
    folder = hub.read_headers(commit, names, cache_dir())
    found = read_checkpoint(folder, spec.trust_remote_code is not None, spec.globs)
    return Source(
        found,
        origin,
        _commit_fingerprint(origin, found.files),
        lambda: _downloaded(commit, found.files),
    )


def _commit(spec: Spec, address: HubAddress, locked: str | None) -> hub.Commit:
    """The commit to take. Where a branch moved on since the lock was written, that is said, and the locked one holds."""
    if locked is None:
        step(f"Asking the Hub for {spec.model}")
        return hub.resolve(address)
    known = hub.known_commit(address, locked, cache_dir())
    if not address.is_commit:
        try:
            now = hub.resolve(address)
        except hub.UnreachableError:
            if known is None:
                raise
        else:
            if now.sha == locked:
                return now
            warn(
                f"{spec.model} has moved on to {now.sha[:12]}; the locked {locked[:12]} is kept. `cogsmith lock {spec.name}` takes the new one"
            )
    return known or hub.resolve(address, locked)


def _chosen(spec: Spec, commit: hub.Commit) -> list[str]:
    names = chosen(commit.files, spec.globs, spec.trust_remote_code is not None)
    if not safetensors(names, spec.globs) and not bins(names, spec.globs):
        top = [name for name in commit.files if "/" not in name]
        message, hint = no_weights(top, spec.globs)
        if "GGUF" in message:
            one = next(name for name in top if name.lower().endswith(".gguf"))
            hint = f"run `hf download {commit.address.repo} {one} --local-dir weights`, and name weights/{one} in `model`"
        raise UserError(f"{commit.address.url} {message}", hint)
    return names


def _from_cache(spec: Spec, project: Project, folder: Path) -> Checkpoint:
    return read_checkpoint(
        _without_pickles(spec, project, folder), spec.trust_remote_code is not None, spec.globs
    )


def _downloaded(commit: hub.Commit, names: tuple[str, ...] | list[str]) -> Path:
    with bytes_bar("Downloading") as progress:
        return hub.download(commit, names, progress)


def _commit_fingerprint(origin: Origin, files: tuple[str, ...]) -> str:
    """A commit's files never change; which of them are packed does with the spec, and pickles with their converter."""
    parts = (str(origin.source), str(origin.revision), str(pickles.CONVERTER), *files)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _check_same(expected: Path, path: Path) -> None:
    """That a file is as long as announced, and begins with the tensors that were announced."""
    try:
        same = path.stat().st_size == expected.stat().st_size
        if same and path.suffix == ".safetensors":
            same = read_header(path) == read_header(expected)
    except DamagedError:
        same = False
    if not same:
        raise UserError(
            f"{path} is not the file that the Hub announced", "remove it, so that it is downloaded again"
        )


def _check_commit(spec: Spec, sha: str) -> None:
    code = spec.trust_remote_code
    if code is not None and code.revision != sha:
        message = f"is {code.revision}, but {spec.model} is at {sha}"
        hint = "put the commit whose code you have read after @ in `model`"
        raise MistakesError([spec.mistake("trust_remote_code.revision", message, hint)])


def _check_revision(spec: Spec, folder: Path, revision: str) -> None:
    """That the code is of the commit that the spec trusts, by what `hf download` notes beside what it fetches."""
    code = sorted(folder.glob("*.py")) if folder.is_dir() else []
    if folder.is_dir() and not code:
        raise MistakesError(
            [spec.mistake("trust_remote_code", f"is set, but {spec.model} holds no Python file", "remove it")]
        )
    for path in code:
        note = folder / ".cache" / "huggingface" / "download" / f"{path.name}.metadata"
        lines = note.read_text(errors="replace").splitlines() if note.is_file() else []
        if not lines:
            warn(
                f"{spec.model}/{path.name}: nothing says of which commit it is; read it before you publish it"
            )
        elif lines[0] != revision:
            raise MistakesError(
                [
                    spec.mistake(
                        "trust_remote_code.revision",
                        f"is {revision}, but {path.name} was downloaded at {lines[0][:40]}",
                        "download that revision, or read the code of this one and name it",
                    )
                ]
            )


def _without_pickles(spec: Spec, project: Project, folder: Path) -> Path:
    """The folder itself, or one with the same weights in safetensors where it has only pickles."""
    if not pickles.only_pickles((path.name for path in folder.iterdir()), spec.globs):
        return folder
    code = spec.trust_remote_code is not None
    python = _python(spec, project, "its own types")
    return pickles.convert(folder, spec.globs, code, python, cache_dir(), _log(spec, project))


def _log(spec: Spec, project: Project) -> Path:
    return project.state_dir(spec.name) / "convert.log"


def _python(spec: Spec, project: Project, dtype: str) -> Callable[[], Path]:
    def python() -> Path:
        # The CPU build converts for every engine: it has torch and transformers, and needs no GPU.
        made = environment.ensure(VLLM_CPU, (), spec.cog)
        log = _log(spec, project).relative_to(project.root)
        step(f"Converting {spec.model} to safetensors in {dtype}; log in {log}")
        return made

    return python
