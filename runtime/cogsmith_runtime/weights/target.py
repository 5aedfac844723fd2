"""The folder that is being filled. Nothing is written outside it, whatever was planted in it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import threading
from pathlib import Path

from .disk import disk_errors, no_space
from .index import Index

_CANNOT_ALLOCATE = {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}


class Target:
    """The files of an index, open and at their full size. `write` may be called from several threads.

    Args:
        folder: made if it is not there; whatever in it is not a plain file of the index is removed.
        index: what the folder will hold.
    """

    def __init__(self, folder: Path, index: Index) -> None:
        self._folder = folder
        self._index = index
        self._descriptors: list[int] = []
        self._locks: list[threading.Lock] = []
        self._closed = False
        self.fresh: set[int] = set()

    def __enter__(self) -> Target:
        try:
            with disk_errors(self._folder):
                self._prepare()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        if self._folder.is_symlink() or (self._folder.exists() and not self._folder.is_dir()):
            self._folder.unlink()
        self._folder.mkdir(parents=True, exist_ok=True)
        there = self._clean()
        needed = self._index.content - sum(there.values())
        if needed > shutil.disk_usage(self._folder).free:
            raise no_space(self._folder, needed)
        in_memory = _in_memory(self._folder)
        for number, member in enumerate(self._index.files):
            descriptor = self._open(member.path)
            self._descriptors.append(descriptor)
            self._locks.append(threading.Lock())
            if os.fstat(descriptor).st_size != member.size:
                self.fresh.add(number)
                _allocate(descriptor, member.size, in_memory)

    def _clean(self) -> dict[str, int]:
        """Remove what is not ours; the bytes that each file of ours has on the disk already."""
        ours = {member.path: member.size for member in self._index.files}
        there = {}
        for base, folders, files in os.walk(self._folder, topdown=False):
            for name in files + folders:
                path = Path(base, name)
                found = path.lstat()
                if stat.S_ISDIR(found.st_mode):
                    # A folder with nothing of ours in it is empty by now; the others stay.
                    with contextlib.suppress(OSError):
                        path.rmdir()
                    continue
                relative = path.relative_to(self._folder).as_posix()
                # A second link to a file would carry what is written here to another place.
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 and relative in ours:
                    there[relative] = min(found.st_blocks * 512, ours[relative])
                else:
                    path.unlink()
        return there

    def _open(self, path: str) -> int:
        *parents, name = path.split("/")
        flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(self._folder, flags)
        try:
            for parent in parents:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=folder)
                inner = os.open(parent, flags, dir_fd=folder)
                os.close(folder)
                folder = inner
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
        finally:
            os.close(folder)

    def write(self, file: int, view: memoryview, position: int) -> bool:
        """Write the whole view at this position of the file; False once the target is closed.

        Writers of one file would spin in the kernel, so they wait here.
        """
        with self._locks[file], disk_errors(self._folder):
            if self._closed:
                return False
            while view:
                count = os.pwrite(self._descriptors[file], view, position)
                view, position = view[count:], position + count
        return True

    def path_of(self, file: int) -> str:
        return self._index.files[file].path

    def descriptor(self, file: int) -> int:
        """Of the open file with this number, to read from by pread."""
        return self._descriptors[file]

    def close(self) -> None:
        """Close every file, once no thread writes into it any more."""
        for lock in self._locks:
            lock.acquire()
        self._closed = True
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        for lock in self._locks:
            lock.release()


def _in_memory(folder: Path) -> bool:
    """Whether a tmpfs holds the folder."""
    device = folder.stat().st_dev
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields = line.split()
            if fields[2] == f"{os.major(device)}:{os.minor(device)}":
                return fields[fields.index("-") + 1] == "tmpfs"
    return False


def _allocate(descriptor: int, size: int, in_memory: bool) -> None:
    # In memory that is half of the work of writing, which many threads do in less time than one.
    if size and not in_memory:
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
    os.ftruncate(descriptor, size)
