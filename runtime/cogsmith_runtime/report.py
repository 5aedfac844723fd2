"""Lines for the container's log."""

import sys


def say(line: str) -> None:
    """Write one line to stdout, at once: Cog keeps what is written during setup in `setup.logs`."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
