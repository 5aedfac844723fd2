"""Where packed weights lie: what every bucket offers, and the bucket that is a folder. Object stores: see s3.py and gs.py."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import filecmp
import os
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit

from cogsmith.errors import UserError

if TYPE_CHECKING:
    from cogsmith.layout import Layout
    from cogsmith.progress import Progress
    from cogsmith.read_files import Summed

_INCOMING = ".incoming-"
# What every store and every library writes the same way: no two spellings of one key.
_REMOTE = re.compile(r"(s3|gs)://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])((?:/[A-Za-z0-9._=+@:,()!-]+)*)/?")
REMOTE_HINT = "write s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, of plain letters, digits and ._=+@:,()!-"


@dataclass(frozen=True, slots=True)
class Stored:
    """An object in a bucket; `size` in bytes, `modified` with its time zone."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An upload that was begun and neither finished nor given up; its parts take up room, and cost money."""

    key: str
    id: str
    started: datetime


class Bucket(ABC):
    """Objects under keys without "/". All methods raise UserError.

    Attributes:
        name: the URL, as it is shown.
    """

    name: str

    @abstractmethod
    def url(self, key: str) -> str:
        """The object's URL, as it is shown: no key opens it."""

    @abstractmethod
    def readable(self, key: str) -> str:
        """A URL from which the reader of the weights can read the object. May hold a signature: never show it."""

    @abstractmethod
    def find(self, key: str) -> Stored | None:
        """The object, or None where there is none."""

    @abstractmethod
    def objects(self) -> list[Stored]:
        """All objects, by key."""

    @abstractmethod
    def read(self, key: str, start: int, end: int) -> memoryview:
        """Bytes start to end (exclusive) of an object."""

    @abstractmethod
    def add(self, key: str, data: bytes) -> bool:
        """Add a small object; False, and nothing is changed, where it is there already with the same bytes."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; none is fine too."""

    def exists(self, key: str) -> bool:
        return self.find(key) is not None

    def size(self, key: str) -> int:
        """Bytes of an object."""
        found = self.find(key)
        if found is None:
            raise UserError(f"there is no {key} in {self.name}")
        return found.size

    def list(self) -> list[str]:
        """The keys, sorted."""
        return [stored.key for stored in self.objects()]

    def damaged(self, key: str) -> UserError:
        """What is said of an object whose bytes cannot be those of its name."""
        message = f"{self.url(key)} is damaged: it is not what its name says"
        return UserError(message, "remove it and pack again")


class Store(Bucket):
    """A bucket of an object store. All methods raise UserError."""

    @abstractmethod
    def check_access(self) -> None:
        """Tell now what would stop an upload later: no credentials, wrong ones, no such bucket, no permission to write."""

    @abstractmethod
    def part_size(self, size: int) -> int:
        """Bytes of one upload part of an object of this many bytes."""

    @abstractmethod
    def send(self, key: str, plan: Layout, summed: Summed, progress: Progress | None = None) -> None:
        """Send the tar under its key, out of the files it is made of, and check what has arrived."""

    @abstractmethod
    def unfinished(self) -> tuple[Unfinished, ...]:
        """Uploads that were never finished, as far as the store tells."""

    @abstractmethod
    def give_up(self, upload: Unfinished) -> None:
        """Remove the parts of an unfinished upload."""

    def holds(self, key: str, size: int) -> bool:
        """Whether the object is there. Raises UserError where one of another size is."""
        found = self.find(key)
        if found is not None and found.size != size:
            message = (
                f"{self.url(key)} has {found.size} bytes and must have {size}: it is not what its name says"
            )
            raise UserError(message, "remove it and pack again")
        return found is not None


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


class FolderBucket(Bucket):
    """A bucket that is a folder; made when the first object comes.

    Args:
        folder: absolute path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)

    def path(self, key: str) -> Path:
        """Where the object is, or would be."""
        return self.folder / key

    def url(self, key: str) -> str:
        """file:// URL of the object, absolute and percent-encoded."""
        return self.path(key).as_uri()

    def readable(self, key: str) -> str:
        return self.url(key)

    def find(self, key: str) -> Stored | None:
        path = self.path(key)
        if not path.is_file():
            return None
        found = path.stat()
        return Stored(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def objects(self) -> list[Stored]:
        if not self.folder.is_dir():
            return []
        names = sorted(path.name for path in self.folder.iterdir() if path.name[0] != ".")
        return [stored for name in names if (stored := self.find(name)) is not None]

    def read(self, key: str, start: int, end: int) -> memoryview:
        try:
            with self.path(key).open("rb", buffering=0) as file:
                file.seek(start)
                return memoryview(file.read(end - start))
        except OSError as error:
            raise UserError(f"{self.path(key)} cannot be read ({error.strerror})") from None

    def add(self, key: str, data: bytes) -> bool:
        with self.put(len(data)) as incoming:
            incoming.file.write(data)
            return incoming.keep(key)

    def delete(self, key: str) -> None:
        with self._errors():
            self.path(key).unlink(missing_ok=True)

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


def tar_key(digest: str) -> str:
    """The key of the packed weights with this digest."""
    return f"{digest}.tar"


def index_key(digest: str) -> str:
    """The key of their index."""
    return f"{digest}.json"


def open_bucket(url: str, root: Path) -> Bucket:
    """The bucket behind a URL: s3://bucket/prefix, gs://bucket/prefix, file:///absolute/folder, or file://folder below `root`.

    Nothing is asked of an object store yet. Raises UserError for anything else.
    """
    if url.startswith(("s3://", "gs://")):
        return _open_store(url)
    hint = "use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, file:///absolute/folder, or file://folder for a folder of this project"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UserError(f"weights.bucket: {url!r} is not a URL", hint) from None
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
    return FolderBucket(folder)


def remote_parts(url: str) -> tuple[str, str, str] | None:
    """Scheme, bucket and prefix (without slashes around it) of an s3:// or gs:// URL; None where it is none that is taken."""
    match = _REMOTE.fullmatch(url)
    if match is None or {".", ".."} & set(match[3].split("/")):
        return None
    return match[1], match[2], match[3].strip("/")


def _open_store(url: str) -> Bucket:
    parts = remote_parts(url)
    if parts is None:
        # The address is not shown: somebody may have put a password into it.
        raise UserError("weights.bucket is no address of a bucket", REMOTE_HINT)
    scheme, bucket, prefix = parts
    # Their libraries take a third of a second to import.
    if scheme == "s3":
        from cogsmith.s3 import S3Bucket

        return S3Bucket(bucket, prefix)
    from cogsmith.gs import GsBucket

    return GsBucket(bucket, prefix)
