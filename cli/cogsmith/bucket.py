"""The only file that talks to object storage. So far a bucket is a folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from cogsmith.errors import UserError

_INCOMING = ".incoming-"


class Incoming:
    """An object on its way in: written to `file`, then kept under its key by `keep`, or gone.

    Attributes:
        file: open for writing, from its start.
    """

    def __init__(self, folder: Path, path: Path, file: BinaryIO) -> None:
        self._folder = folder
        self._path = path
        self.file = file

    def keep(self, key: str) -> bool:
        """Give the object its key; False, and nothing is changed, where it is there already.

        Raises UserError where other bytes are there under that key.
        """
        self.file.flush()
        os.fsync(self.file.fileno())
        target = self._folder / key
        try:
            # A link, unlike a rename, never replaces what is there.
            target.hardlink_to(self._path)
        except FileExistsError:
            return self._same(target)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            if target.exists():
                return self._same(target)
            self._path.rename(target)
        return True

    def _same(self, target: Path) -> bool:
        if not filecmp.cmp(self._path, target, shallow=False):
            raise UserError(f"{target} is damaged: it is not what its name says", "remove it and pack again")
        return False


class Bucket:
    """A bucket that is a folder; made when the first object comes.

    Args:
        folder: absolute path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where the object is, or would be."""
        return self.folder / key

    def url(self, key: str) -> str:
        """file:// URL of the object, absolute and percent-encoded."""
        return self.path(key).as_uri()

    def exists(self, key: str) -> bool:
        return self.path(key).is_file()

    def size(self, key: str) -> int:
        """Bytes of an object. Raises UserError if it is not there."""
        if not self.exists(key):
            raise UserError(f"there is no {key} in {self.folder}")
        return self.path(key).stat().st_size

    def list(self) -> list[str]:
        """The keys, sorted."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_file() and path.name[0] != ".")

    @contextlib.contextmanager
    def put(self, size: int) -> Iterator[Incoming]:
        """Take in one object of this many bytes. Unless it is kept, nothing of it stays.

        Raises UserError if the folder cannot be written or its disk has too little room.
        """
        with self._errors():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._clean()
            free = shutil.disk_usage(self.folder).free
        if free < size:
            message = (
                f"the disk of {self.folder} has {free / 1e9:.2f} GB free, {size / 1e9:.2f} GB are needed"
            )
            raise UserError(message, "make room, or give weights.bucket a folder on a larger disk")
        with self._errors():
            path, file = self._create()
            try:
                with file:
                    yield Incoming(self.folder, path, file)
            finally:
                path.unlink(missing_ok=True)

    def _create(self) -> tuple[Path, BinaryIO]:
        while True:
            path = self.folder / f"{_INCOMING}{os.getpid()}-{secrets.token_hex(4)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            file = os.fdopen(descriptor, "w+b", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Another process may clean up between the two calls, and take this for abandoned.
            if path.exists():
                return path, file
            file.close()

    def _clean(self) -> None:
        """Remove what a killed writer left: a living one holds a lock on its file."""
        for path in self.folder.glob(f"{_INCOMING}*"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            message = f"the bucket {self.folder} cannot be written ({error.strerror})"
            raise UserError(message, "check weights.bucket, the disk and the permissions") from error


def open_bucket(url: str, root: Path) -> Bucket:
    """The bucket behind a URL: file:///absolute/folder, or file://folder, which is below `root`.

    Raises UserError for anything else.
    """
    hint = "use file:///absolute/folder, or file://folder for a folder of this project"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UserError(f"weights.bucket: {url!r} is not a URL", hint) from None
    if parts.scheme in ("s3", "gs"):
        raise UserError(f"weights.bucket: {parts.scheme}:// is not supported yet", f"for now, {hint}")
    if parts.scheme != "file" or not url.lower().startswith("file://"):
        raise UserError(f"weights.bucket: {url!r} is not a URL of a bucket", hint)
    if parts.query or parts.fragment:
        raise UserError(f"weights.bucket: {url!r} has a query or a fragment", "write ? as %3F and # as %23")
    place = unquote(("" if parts.netloc == "localhost" else parts.netloc) + parts.path)
    if not place or place.startswith("~") or not place.isprintable():
        raise UserError(f"weights.bucket: {url!r} does not name a folder", hint)
    folder = Path(os.path.normpath(root.absolute() / place))
    if folder.exists() and not folder.is_dir():
        raise UserError(f"weights.bucket: {folder} is not a folder", hint)
    return Bucket(folder)
