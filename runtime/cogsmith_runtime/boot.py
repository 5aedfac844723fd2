"""What a boot was made of: a line in the log for each phase, then all of it as one line of JSON and as a file."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .report import say
from .weights import Fetched

MARK = "cogsmith boot report: "
FILE = "boot.json"


class Boot:
    """The phases of one setup, from now on. Seconds count from here."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._phases: list[dict[str, Any]] = []

    def now(self) -> float:
        """Seconds since the setup began."""
        return time.monotonic() - self._began

    def add(self, phase: str, start: float, seconds: float, note: str = "", **figures: float) -> None:
        """A phase that has ended.

        phase: its name. start, seconds: when it began and how long it took. note: for the log's line.
        figures: numbers that go into the report beside them.
        """
        say(f"cogsmith boot: {phase.replace('_', ' ')} {seconds:.2f} s{note and ', ' + note}")
        times = {"phase": phase, "start": round(start, 3), "seconds": round(seconds, 3)}
        self._phases.append({**times, **figures})

    def fetched(self, fetched: Fetched, start: float) -> None:
        """The phases of having the weights: what came over the network, and what was read back from the disk."""
        figures: Mapping[str, float] = {"bytes": fetched.received}
        note = "nothing to fetch"
        if fetched.received:
            rate = fetched.received / max(fetched.fetch, 1e-9)
            figures = {
                "bytes": fetched.received,
                "bytes_per_second": round(rate),
                "connections": fetched.connections,
                "retries": fetched.retries,
            }
            note = (
                f"{fetched.received / 1e9:.3f} GB, {rate / 1e9:.2f} GB/s, {fetched.connections} connections, "
                f"{fetched.retries} retries"
            )
        # Between the two are only locks and renames.
        self.add("fetch", start, self.now() - start - fetched.verify, note, **figures)
        self.add("verify", self.now() - fetched.verify, fetched.verify)

    def report(self, folder: Path) -> None:
        """Say that setup is over, and leave boot.json in this folder."""
        whole = {"seconds": round(self.now(), 3), "phases": self._phases}
        say(f"cogsmith boot: ready after {whole['seconds']:.2f} s")
        text = json.dumps(whole)
        say(MARK + text)
        (folder / FILE).write_text(text + "\n")
