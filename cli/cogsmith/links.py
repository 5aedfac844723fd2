"""Which links in a model's folder are followed: what they lead to is published under their name."""

from __future__ import annotations

from pathlib import Path


def may_follow(folder: Path, path: Path) -> bool:
    """Whether a path stays in its folder, all links followed, or leads to the `blobs` folder two levels up.

    The cache of the Hugging Face client is made of such links: snapshots/<revision>/config.json -> ../../blobs/<hash>.
    Anything else could be a file that was never meant to leave the machine. Raises OSError or RuntimeError where it leads nowhere.
    """
    target = path.resolve(strict=True)
    home = folder.resolve()
    return target.is_relative_to(home) or target.parent == home.parent.parent / "blobs"
