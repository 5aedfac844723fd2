"""What a disk may answer, as a sentence."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from .errors import DISK, NO_SPACE, WeightsError

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the disk answers into a coded error that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise no_space(path, None) from None
        message = f"{path} cannot be written ({error.strerror})"
        raise WeightsError(DISK, message, "Check the disk and the permissions.") from error


def no_space(path: Path, needed: int | None) -> WeightsError:
    """The disk is full, or would be."""
    free = shutil.disk_usage(path).free if path.exists() else 0
    needs = f"{needed / 1e9:.2f} GB are needed" if needed is not None else "it ran full"
    message = f"the disk of {path} has {free / 1e9:.2f} GB free, {needs}"
    return WeightsError(NO_SPACE, message, "Make room, or set COGSMITH_CACHE to a folder on a larger disk.")
