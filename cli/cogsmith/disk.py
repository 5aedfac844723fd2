"""Whether there is room, asked before the first byte is fetched."""

from __future__ import annotations

import shutil
from pathlib import Path

from cogsmith.errors import UserError


def check_room(folder: Path, needed: int, purpose: str, otherwise: str) -> None:
    """See that so many bytes fit on the disk of a folder, which need not be there yet.

    Args:
        purpose: what they are for: "download x".
        otherwise: what to do besides making room.

    Raises:
        UserError: they do not.
    """
    present = folder.absolute()
    while not present.exists():
        present = present.parent
    free = shutil.disk_usage(present).free
    if needed > free:
        message = (
            f"the disk of {folder} has {free / 1e9:.2f} GB free, to {purpose} takes {needed / 1e9:.2f} GB"
        )
        raise UserError(message, f"make room, or {otherwise}")
