"""Writing files of a project: whole or not at all, and only where something changes."""

from __future__ import annotations

from pathlib import Path


def write_changed(path: Path, text: str) -> bool:
    """Bring a file to hold this text, and say whether it did not already.

    Raises OSError; the file is then as it was, and nothing else is left.
    """
    content = text.encode()
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True
