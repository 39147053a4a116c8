"""Processes of steps: their log and CPUs, their end, and what a killed starter left."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from official_bert.io.errors import Terminated
from official_bert.jobs.experiments.child import Child, end_all, last_lines, own_cpus, shares
from tests.shared import ROOT


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def started(code: str, folder: pathlib.Path, cpus=()) -> Child:
    child = Child(python(code), str(folder), cpus)
    child.start()
    return child


def wait_for(condition, secs: float = 60.0):
    deadline = time.monotonic() + secs
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("cpus", "count", "expected"),
    [
        ([0, 1], 2, [[0], [1]]),
        ([3, 5, 7], 2, [[3], [5, 7]]),
        ([0, 1, 2, 3], 1, [[0, 1, 2, 3]]),
        ([0, 1], 3, [[], [], []]),
        ([], 2, [[], []]),
    ],
)
def test_cpus_are_divided(cpus, count, expected):
    assert shares(cpus, count) == expected


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity of processes")
def test_output_goes_to_the_log_and_the_process_keeps_to_its_cpus(tmp_path):
    cpu = own_cpus()[-1]
    # The child waits for its share, which it gets just after its start.
    waiting = f"import os, time\nwhile os.sched_getaffinity(0) != {{{cpu}}}: time.sleep(0.01)\n"
    code = f"{waiting}print('kept')\nraise SystemExit(3)"
    child = started(code, tmp_path / "step", [cpu])
    wait_for(lambda: child.status is not None)
    assert child.status == 3
    assert last_lines(child.log_file) == "kept"


def test_the_end_of_a_log(tmp_path):
    (tmp_path / "log.txt").write_text("".join(f"line {number}\n" for number in range(5000)))
    assert last_lines(str(tmp_path / "log.txt"), 2) == "line 4998\nline 4999"


def test_children_are_ended_with_those_that_they_have_started(tmp_path):
    code = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    )
    child = started(code, tmp_path)
    wait_for(lambda: last_lines(child.log_file))
    grandchild = int(last_lines(child.log_file))
    end_all([child])
    assert child.status == -signal.SIGTERM
    wait_for(lambda: not is_running(grandchild))


def is_running(process: int) -> bool:
    """Whether a process is there and has not only its parent's attention left to get."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_in_the_middle_of_a_start_leaves_nothing_running(tmp_path, monkeypatch, number, raised):
    """The signal arrives when the process has started and its number is not written yet."""

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            os.kill(os.getpid(), number)

    def terminate(number, _):
        raise Terminated(number)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGTERM, terminate)
    child = Child(python("import time; time.sleep(600)"), str(tmp_path), [])
    try:
        with pytest.raises(raised):
            child.start()
    finally:
        signal.signal(signal.SIGTERM, before)
    process = int((tmp_path / ".running").read_text())
    assert is_running(process)
    end_all([child, Child([], str(tmp_path), [])])  # the second one was never started
    assert child.status == -signal.SIGTERM
    assert not is_running(process)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the test reads /proc")
def test_what_a_killed_starter_left_is_ended(tmp_path):
    starter = (
        "import sys, time; from official_bert.jobs.experiments.child import Child\n"
        "child = Child([sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'], "
        f"{str(tmp_path)!r}, [])\nchild.start()\ntime.sleep(600)"
    )
    process = subprocess.Popen(python(starter), cwd=ROOT)
    log = tmp_path / "log.txt"
    wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
    left = int(log.read_text())
    process.kill()
    process.wait()
    assert is_running(left)
    child = started("print('second')", tmp_path)
    assert not is_running(left)
    wait_for(lambda: child.status is not None)
    assert last_lines(str(log)).splitlines() == [str(left), "second"]
