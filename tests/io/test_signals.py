"""Signals end a process at once, or where the work in it says; each case is a process."""

import signal
import subprocess
import sys

import pytest

from tests.shared import ROOT

# Prints what it reaches, and ends with 7 if the exception is raised.
PROGRAM = """
import os, signal, sys
from official_bert.io import signals
from official_bert.io.errors import Terminated

signals.end_in_order()
me, number = os.getpid(), int(sys.argv[2])
def send(): os.kill(me, number)
try:
    if sys.argv[1] == "at once":
        send()
        print("went on")
    elif sys.argv[1] == "deferred":
        with signals.deferred() as arrived:
            print(arrived())
            send()
            print(arrived())
        print("went on")
    elif sys.argv[1] == "twice":
        with signals.deferred() as arrived:
            send()
            send()
            print("went on")
    elif sys.argv[1] == "replaced":
        import ctypes
        ctypes.CDLL(None).signal(number, ctypes.c_void_p(1))  # SIG_IGN, below Python
        send()
        print("ignored")
        signals.take_back()
        send()
        print("went on")
    elif sys.argv[1] == "held back":
        with signals.held_back():
            send()
            send()
            print("all happened")
            os.kill(me, signal.SIGINT)
        print("went on")
    elif sys.argv[1] == "while taken back":
        install = signal.signal
        def interrupt(number, handler):  # the first handler that is put back is interrupted
            signal.signal = install
            os.kill(me, signal.SIGINT)
        try:
            with signals.held_back():
                signal.signal = interrupt
        except KeyboardInterrupt:
            print("interrupted")
        send()
    elif sys.argv[1] == "another thread":
        import threading
        def work():
            with signals.held_back(): print("unchanged", signal.getsignal(number) == signals._terminate)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        send()
    elif sys.argv[1] == "error":
        with signals.deferred() as arrived:
            send()
            raise KeyError
except Terminated as end:
    print("terminated", end.number)
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
        ("while taken back", ["interrupted", "terminated {number}"]),
        ("another thread", ["unchanged True", "terminated {number}"]),
    ],
)
def test_a_signal_ends_the_work(case, printed, number):
    ended = run(case, number)
    assert ended.stdout.split("\n")[:-1] == [line.format(number=int(number)) for line in printed]
    print(f"{case}: {ended.stdout!r}, status {ended.returncode}")


def test_an_error_of_the_work_is_not_hidden_by_a_signal():
    assert run("error", signal.SIGTERM).stdout == "the error of the work counts\n"


def run(case: str, number: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, case, str(int(number))],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # which nohup, for one, has ignored
    )  # fmt: skip
