"""Nothing that runs under a lifeline outlives it or its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cogsmith_runtime import lifeline

# Says that it runs, then starts: a child in its group, one in a session of its own, and one that is orphaned.
FAMILY = """
import os, subprocess, sys, time
mark = sys.argv[1]
nap = [sys.executable, "-S", "-c", "import time; time.sleep(100)", mark]
subprocess.Popen(nap)
subprocess.Popen(nap, start_new_session=True)
subprocess.Popen([sys.executable, "-S", "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:], "
                  "start_new_session=True)", *nap]).wait()
print("up", flush=True)
EXTRA
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(100)"


def family(mark: Path, extra: str = "time.sleep(100)") -> list[str]:
    return [sys.executable, "-S", "-c", FAMILY.replace("EXTRA", extra), str(mark)]


def alive(mark: Path) -> int:
    count = 0
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += str(mark) in entry.read_text()
        except OSError:
            continue
    return count


def stopped(mark: Path) -> bool:
    """Whether one of them is frozen."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state == "T" and str(mark) in (entry / "cmdline").read_text():
                return True
        except OSError:
            continue
    return False


def until_gone(mark: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while alive(mark):
        assert time.monotonic() < deadline, f"{alive(mark)} left"
        time.sleep(0.02)


def started(mark: Path, extra: str = "time.sleep(100)", grace: float = 0.5) -> subprocess.Popen[bytes]:
    process = lifeline.start(family(mark, extra), grace=grace, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"up\n"
    assert alive(mark) == 5
    return process


def test_stop_ends_all(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert lifeline.stop(process) == 128 + signal.SIGTERM
    assert alive(tmp_path) == 0


def test_what_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    process = started(tmp_path, STUBBORN)
    began = time.monotonic()
    assert lifeline.stop(process) == 128 + signal.SIGKILL
    assert 0.4 < time.monotonic() - began < 3
    assert alive(tmp_path) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all(tmp_path: Path, number: signal.Signals) -> None:
    process = started(tmp_path)
    process.send_signal(number)
    assert process.wait(5) == 128 + signal.SIGTERM
    assert alive(tmp_path) == 0
    lifeline.stop(process)


def test_stragglers_are_ended_when_the_program_exits(tmp_path: Path) -> None:
    process = lifeline.start(family(tmp_path, "sys.exit(3)"), grace=0.5, stdout=subprocess.DEVNULL)
    assert process.wait(10) == 3
    assert alive(tmp_path) == 0
    lifeline.stop(process)


def test_all_ends_when_the_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from cogsmith_runtime import lifeline; "
        "lifeline.start(sys.argv[1:], grace=0.5); time.sleep(100)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, *family(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent.stdout:
        assert parent.stdout.readline() == b"up\n"
    parent.kill()
    parent.wait()
    until_gone(tmp_path, 5)


def test_a_frozen_program_is_ended(tmp_path: Path) -> None:
    process = started(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    deadline = time.monotonic() + 10
    while not stopped(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert lifeline.stop(process) == 128 + signal.SIGKILL
    assert alive(tmp_path) == 0


def test_the_program_dies_with_its_lifeline(tmp_path: Path) -> None:
    program = [
        sys.executable,
        "-S",
        "-c",
        "import time; print('up', flush=True); time.sleep(100)",
        str(tmp_path),
    ]
    process = lifeline.start(program, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
    process.kill()
    lifeline.stop(process)
    until_gone(tmp_path, 5)


@pytest.mark.parametrize(
    ("program", "status"),
    [("sys.exit(0)", 0), ("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("os.abort()", 134)],
)
def test_exit_status(program: str, status: int) -> None:
    process = lifeline.start([sys.executable, "-S", "-c", f"import os, sys; {program}"])
    assert process.wait(10) == status
    lifeline.stop(process)


def test_a_program_that_is_not_there() -> None:
    process = lifeline.start([f"/no/such/{os.getpid()}"], stderr=subprocess.PIPE)
    assert process.stderr is not None
    with process.stderr:
        assert b"lifeline: cannot start /no/such/" in process.stderr.read()
    assert process.wait(5) == 127
    lifeline.stop(process)
