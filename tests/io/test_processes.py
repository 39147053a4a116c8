"""Signals end a process in order, no child of a block outlives it, and a call that may block has
a limit.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from official_bert.io import processes
from official_bert.io.processes import Processes
from tests.shared import ROOT, has_ended

# Prints what it reaches, and ends with 7 if the exception is raised.
PROGRAM = """
import os, signal, sys
from official_bert.io import processes
from official_bert.io.errors import Terminated

processes.end_in_order()
me, number = os.getpid(), int(sys.argv[2])
def send(): os.kill(me, number)
try:
    if sys.argv[1] == "at once":
        send()
        print("went on")
    elif sys.argv[1] == "deferred":
        with processes.deferred() as arrived:
            print(arrived())
            send()
            print(arrived())
        print("went on")
    elif sys.argv[1] == "twice":
        with processes.deferred() as arrived:
            send()
            send()
            print("went on")
    elif sys.argv[1] == "replaced":
        import ctypes
        ctypes.CDLL(None).signal(number, ctypes.c_void_p(1))  # SIG_IGN, below Python
        send()
        print("ignored")
        processes.take_back()
        send()
        print("went on")
    elif sys.argv[1] == "held back":
        with processes.held_back():
            send()
            send()
            print("all happened")
            os.kill(me, signal.SIGINT)
        print("went on")
    elif sys.argv[1] == "error":
        with processes.deferred() as arrived:
            send()
            raise KeyError
except Terminated as end:
    print("terminated", end.number)
except KeyboardInterrupt:
    print("terminated", signal.SIGINT.value)
    sys.exit()  # outside of deferred work, each Ctrl-C counts
except KeyError:
    print("the error of the work counts")
send()  # the files of the work are being deleted: nothing disturbs that
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("case", "printed"),
    [
        ("at once", ["terminated {number}"]),
        ("deferred", ["None", "{number}", "terminated {number}"]),
        ("twice", ["terminated {number}"]),
        ("replaced", ["ignored", "terminated {number}"]),
        ("held back", ["all happened", "terminated {number}"]),
    ],
)
def test_a_signal_ends_the_work(case, printed, number):
    ended = run(case, number)
    assert ended.stdout.split("\n")[:-1] == [line.format(number=int(number)) for line in printed]


@pytest.mark.parametrize(
    ("case", "printed", "is_said"),
    [
        ("at once", ["terminated 2"], False),
        ("deferred", ["None", "2", "terminated 2"], True),
        ("twice", ["terminated 2"], True),
        ("held back", ["all happened", "terminated 2"], False),
    ],
)
def test_ctrl_c_ends_the_work_as_other_signals_do(case, printed, is_said):
    ended = run(case, signal.SIGINT)
    assert ended.stdout.split("\n")[:-1] == printed
    assert (processes.INTERRUPTED in ended.stderr) == is_said


def test_ctrl_c_is_deferred_in_the_main_thread_only():
    def work():
        with processes.deferred() as arrived:
            handlers.append(signal.getsignal(signal.SIGINT))
            assert arrived() is None

    handlers = [signal.getsignal(signal.SIGINT)]
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    assert handlers[0] == handlers[1] != handlers[2]
    assert signal.getsignal(signal.SIGINT) == handlers[0]


def test_an_error_of_the_work_is_not_hidden_by_a_signal():
    assert run("error", signal.SIGTERM).stdout == "the error of the work counts\n"


def run(case: str, number: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, case, str(int(number))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # Programs such as nohup start the tests with ignored signals.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )


# Starts a process, prints both numbers, and waits; the second process ignores SIGTERM if the first
# one does.
TREE = """
import os, signal, subprocess, sys, time
if {ignores}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("ignores", [False, True])
def test_a_block_that_ends_leaves_no_process_of_a_tree(ignores):
    command = [sys.executable, "-c", TREE.format(ignores=ignores)]
    begun = time.monotonic()
    with Processes(grace_secs=1.0) as started:
        process = started.start(command, stdout=subprocess.PIPE, text=True)
        numbers = [int(word) for word in process.stdout.readline().split()]
        assert started.statuses() == [None]
    assert started.statuses() == [-signal.SIGKILL if ignores else -signal.SIGTERM]
    assert all(has_ended(number, within_secs=10) for number in numbers)
    assert time.monotonic() - begun < 60


def test_the_result_and_the_error_of_a_call_are_its_own():
    assert processes.wait_for_result(lambda: 3, "three", limit_secs=10) == 3
    with pytest.raises(KeyError, match="lost"):
        processes.wait_for_result(lambda: {}["lost"], "nothing", limit_secs=10)


def test_messages_say_what_is_waited_for_until_the_limit(monkeypatch, caplog):
    monkeypatch.setattr(processes, "FIRST_MESSAGE_SECS", 0.01)
    monkeypatch.setattr(processes, "NEXT_MESSAGE_SECS", 0.01)
    caplog.set_level("INFO", logger="absl")
    never = threading.Event()
    start_secs = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no answer within 0\.1 s"):
        processes.wait_for_result(never.wait, "the moon", limit_secs=0.1)
    assert time.monotonic() - start_secs >= 0.09
    assert "waiting for the moon, for 0 s more at most" in caplog.text
    never.set()


# A thread, as another library has them, calls Python; the first handler that is registered runs
# last.
CALLED_AT_EXIT = """
import _thread, atexit, time
ended = []
atexit.register(lambda: print(len(ended)))
from official_bert.io import processes

def work():
    time.sleep(0.3)
    ended.append(1)

def call_twice():
    call = processes.awaited_at_exit(work)
    call()
    call()

_thread.start_new_thread(call_twice, ())
time.sleep(0.1)
"""


def test_the_exit_waits_for_the_calls_of_the_threads_of_other_libraries():
    command = [sys.executable, "-c", CALLED_AT_EXIT]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "2\n"


def test_the_exit_does_not_wait_for_a_call_without_end(monkeypatch):
    monkeypatch.setattr(processes, "MAX_IDLE_WAIT_SECS", 0.2)
    calls, never = processes.ThreadCalls(), threading.Event()
    threading.Thread(target=calls.counted(never.wait), daemon=True).start()
    start_secs = time.monotonic()
    calls.wait_until_idle()
    assert 0.2 <= time.monotonic() - start_secs < 30
    never.set()


def test_the_cpus_are_shared_out(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {8, 3, 4, 5, 6})
    assert processes.share_cpus(2) == [[3, 4], [5, 6, 8]]
    assert processes.share_cpus(1) == [[]]
    assert processes.share_cpus(6) == [[]] * 6


def test_a_pool_runs_commands_at_the_same_time_and_ends_those_that_are_left():
    wait = "import sys; sys.stdin.read() or sys.exit(int(sys.argv[1]))"
    forever = "import time; time.sleep(300)"
    with processes.CommandPool(2) as pool:
        assert pool.num_free == 2
        pool.start("first", [sys.executable, "-c", wait, "3"])
        pool.start("left", [sys.executable, "-c", forever])
        assert (pool.num_free, pool.running) == (0, ["first", "left"])
        assert pool.wait() == ("first", 3)
        assert (pool.num_free, pool.running) == (1, ["left"])
        pool.start("second", [sys.executable, "-c", wait, "0"])
        assert pool.wait() == ("second", 0)
        process, _ = pool._running["left"]
        assert process.poll() is None
    assert process.poll() == -signal.SIGTERM
