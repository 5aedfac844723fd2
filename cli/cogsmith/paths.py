"""Where things lie: the project's folders, and the user's cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cogsmith.errors import UserError


def cache_dir() -> Path:
    """What can be made again and is shared by all projects: environments, converted checkpoints, fetched weights."""
    chosen = os.environ.get("COGSMITH_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cogsmith"


@dataclass(frozen=True)
class Project:
    """A folder with models/ in it. Paths in a spec are relative to it."""

    root: Path

    @classmethod
    def here(cls) -> Project:
        """The project in the current folder.

        Raises:
            UserError: there is no models/ folder.
        """
        root = Path.cwd()
        if not (root / "models").is_dir():
            raise UserError(
                f"{root} has no models/ folder",
                "run cogsmith in the folder that holds models/NAME.yaml; `cogsmith init` makes one",
            )
        return cls(root)

    def names(self) -> list[str]:
        """The models of this project."""
        return sorted(path.stem for path in (self.root / "models").glob("*.yaml"))

    def spec_path(self, name: str) -> Path:
        """models/NAME.yaml, as it is named in messages: relative to the root.

        Raises:
            UserError: there is no such file.
        """
        plain = name.removesuffix(".yaml").removeprefix("models/")
        path = Path("models") / f"{plain}.yaml"
        if "/" in plain or not (self.root / path).is_file():
            if (self.root / path.with_suffix(".yml")).exists():
                raise UserError(f"there is no {path}", f"rename models/{plain}.yml to {plain}.yaml")
            here = ", ".join(name for name in self.names() if name != plain) or "none yet"
            said = f"{path} is no file" if plain in self.names() else f"there is no {path}"
            raise UserError(said, f"models here: {here}")
        return path

    def lock_path(self, name: str) -> Path:
        return self.root / "models" / f"{name}.lock"

    def build_dir(self, folder: str) -> Path:
        return self.root / "build" / folder

    def state_dir(self, name: str) -> Path:
        """Logs and other state of one model, outside the build context."""
        return self.root / ".cogsmith" / name
