"""An object to a folder that is either whole and right, or not there."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .check import bad_granules, check_file, sizes_problem, verify
from .disk import disk_errors
from .errors import DAMAGED, WeightsError
from .index import Index
from .journal import Journal
from .plan import granules, parts
from .sources import Limits, Source
from .target import Target
from .transfer import Transfer

_log = logging.getLogger(__name__)
_SECONDS_BETWEEN_REPORTS = 0.25
_PARTS_EACH = 4

Progress = Callable[[int, int], None]
Key = tuple[int, int]


@dataclass(slots=True)
class Fetched:
    """A folder that holds what an index says, and what it took.

    Attributes:
        folder: where the files are.
        received: bytes of files that came from the source.
        fetch: seconds of that.
        verify: seconds in which files on the disk were read and held to the index.
        connections: to the source, at most at once.
        retries: how often something was asked for again.
    """

    folder: Path
    received: int = 0
    fetch: float = 0.0
    verify: float = 0.0
    connections: int = 0
    retries: int = 0

    def summary(self) -> str:
        """One line for a log."""
        if not self.received:
            return f"fetch: nothing to fetch; verify: {self.verify:.2f} s"
        rate = self.received / max(self.fetch, 1e-9) / 1e9
        return (
            f"fetch: {self.received / 1e9:.3f} GB in {self.fetch:.2f} s ({rate:.2f} GB/s), {self.connections} connections, "
            f"{self.retries} retries; verify: {self.verify:.2f} s"
        )


def fetch(
    index: Index,
    source: Source,
    cache: Path,
    progress: Progress | None = None,
    limits: Limits | None = None,
) -> Fetched:
    """Make the folder <cache>/<digest> from the source, unless it is there already.

    Args:
        index: what the object holds; its digest names the folder.
        cache: made if it is not there. Two fetches into one cache fetch once.
        progress: called a few times a second with (bytes that are there, bytes of all files).

    Raises:
        WeightsError: nothing is left under the folder's name then; what arrived right is kept for the next try.
    """
    job = _Fetch(index, cache, progress or (lambda done, total: None))
    if job.is_trusted():
        return job.done
    with disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{index.digest}.lock"):
        if not job.is_trusted() and not job.is_right():
            job.run(source, limits or Limits())
    return job.done


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with disk_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.warning("Another process fetches these weights; waiting for it.")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class _Fetch:
    def __init__(self, index: Index, cache: Path, progress: Progress) -> None:
        self._index = index
        self._digest = index.digest
        self._report = progress
        self.final = cache / self._digest
        self.done = Fetched(self.final)
        self._partial = cache / f"{self._digest}.partial"
        self._journal_path = cache / f"{self._digest}.journal"
        self._granules = {(granule.file, granule.number): granule for granule in granules(index)}

    def _journal(self) -> Journal:
        return Journal(self._journal_path, self._digest)

    def is_trusted(self) -> bool:
        """Whether the folder was found whole since this machine started."""
        journal = self._journal()
        believed = journal.same_boot and journal.claims >= self._granules.keys()
        return believed and self._is_folder() and sizes_problem(self._index, self.final) is None

    def _is_folder(self) -> bool:
        return self.final.is_dir() and not self.final.is_symlink()

    def is_right(self) -> bool:
        """Read a folder through that this boot knows nothing of; a damaged one is set aside to be mended.

        A folder is renamed without waiting for the disk, so after a crash its name proves nothing. Reading it
        costs little: the engine is about to read the same bytes, from memory then.
        """
        if not self._is_folder():
            with disk_errors(self.final):
                self.final.unlink(missing_ok=True)
            return False
        counter = _Counter(self._report, 0, self._index.content)
        with self._verifying():
            problems = verify(self._index, self.final, sha_of_tensors=False, count=counter.add)
        if not problems:
            # A cache that cannot be written is read through at every start.
            with contextlib.suppress(OSError):
                self._claim_everything(trusted=True)
            return True
        _log.warning(
            "The weights in %s are not as they were packed (%s); mending them.", self.final, problems[0]
        )
        with disk_errors(self.final):
            _remove(self._partial)
            self._claim_everything(trusted=False)
            self.final.rename(self._partial)
        return False

    def _claim_everything(self, *, trusted: bool) -> None:
        journal = self._journal()
        journal.begin(set(self._granules), trusted=trusted)
        journal.close()

    def run(self, source: Source, limits: Limits) -> None:
        """Fetch what is missing, check it, and give the folder its name."""
        with Target(self._partial, self._index) as target:
            journal = self._journal()
            with self._verifying():
                believed = self._believed(journal, target)
            with disk_errors(self._journal_path):
                journal.begin(believed)
            try:
                self._transfer(Transfer(source, target, journal, limits), believed, limits)
            finally:
                journal.close()
            with self._verifying():
                self._check_behaviour(target)
        with disk_errors(self.final):
            self._partial.rename(self.final)

    @contextlib.contextmanager
    def _verifying(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.done.verify += time.monotonic() - began

    def _believed(self, journal: Journal, target: Target) -> set[Key]:
        """The claims of an earlier fetch that hold: those of this boot, and those whose crc is right."""
        claims = {key for key in journal.claims if key in self._granules and key[0] not in target.fresh}
        if journal.same_boot or not claims:
            return claims
        files = sorted({file for file, _ in claims})
        counter = _Counter(self._report, 0, self._index.content)

        def bad(file: int) -> set[Key]:
            member = self._index.files[file]
            right = [number for other, number in claims if other == file]
            numbers = bad_granules(target.descriptor(file), member, self._index.granule, right, counter.add)
            return {(file, number) for number in numbers}

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return claims.difference(*pool.map(bad, files))

    def _transfer(self, transfer: Transfer, believed: set[Key], limits: Limits) -> None:
        missing = [granule for key, granule in self._granules.items() if key not in believed]
        total = self._index.content
        there = total - sum(granule.size for granule in missing)
        began = time.monotonic()
        if missing:
            # Without ranges the object comes as one stream, which is one part.
            ranged = transfer.probe(self._index.size)
            # At the end some connections have nothing to do: for a part's time, which is short if each has had several.
            even = max(self._index.granule, (total - there) // (limits.connections * _PARTS_EACH))
            work = parts(missing, min(limits.part, even)) if ranged else [tuple(missing)]
            transfer.run(work, lambda received: self._report(there + received, total))
        self._report(total, total)
        done = self.done
        done.fetch = time.monotonic() - began
        done.received, done.retries = transfer.received, transfer.retries
        done.connections = transfer.connections

    def _check_behaviour(self, target: Target) -> None:
        """crc32c finds damage, not tampering: what decides how the model behaves is held to its sha256."""
        for number, member in enumerate(self._index.files):
            if member.is_tensors:
                continue
            with disk_errors(self._partial):
                _, right = check_file(target.descriptor(number), member, self._index.granule, sha=True)
            if not right:
                # Every granule had the crc of the index, so a new try would end the same way from here.
                self._journal().forget()
                message = f"{member.path} does not have the sha256 of the index"
                raise WeightsError(
                    DAMAGED, message, "Pack the model again; somebody may have changed the object."
                )


class _Counter:
    """Adds up bytes of several threads, and reports a few times a second."""

    def __init__(self, report: Progress, done: int, total: int) -> None:
        self._report = report
        self._done = done
        self._total = total
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            if time.monotonic() - self._last >= _SECONDS_BETWEEN_REPORTS:
                self._last = time.monotonic()
                self._report(self._done, self._total)


def _remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
