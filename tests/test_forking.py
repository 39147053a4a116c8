"""The forked interpreter ends, prints, and reacts to signals as Python does, and starts with
TensorFlow imported.
"""

import os
import signal
import subprocess
import sys

import pytest

from tests.forking import forked_python
from tests.scripts import run_interpreter, run_python
from tests.shared import ROOT, has_ended

LIMIT_SECS = 60


def start(program: str) -> subprocess.Popen:
    return subprocess.Popen(
        [forked_python(), "-u", "-c", program], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("print('one')", 0),
        ("import sys; print(sys.argv[1:]); sys.exit(3)", 3),
        ("import sys; sys.exit('a sentence')", 1),
        ("import atexit, sys; atexit.register(print, 'the end'); sys.exit(True)", 1),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("import threading; threading.Timer(0.1, print, ['late']).start()", 0),
    ],
)
def test_a_program_ends_as_in_a_new_interpreter(program, status):
    forked, started = (
        run("-c", program, "a b", status=status) for run in (run_python, run_interpreter)
    )
    assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)


def test_an_error_has_its_traceback():
    assert run_python("-c", "1 / 0", status=1).stderr.endswith(
        "\nZeroDivisionError: division by zero\n"
    )
    interrupted = run_python("-c", "raise KeyboardInterrupt", status=-signal.SIGINT)
    assert interrupted.stderr.endswith("\nKeyboardInterrupt\n")


def test_a_program_has_the_folder_the_environment_and_the_path_of_its_start(tmp_path):
    (tmp_path / "beside.py").write_text("value = 5")
    script = tmp_path / "script.py"
    script.write_text(
        "import beside, os, sys\nprint(beside.value, os.getcwd(), os.environ.get('COLOUR'), 'PATH' "
        "in os.environ, sys.argv[1:])\n"
    )
    command = [forked_python(), script, "--flag"]
    for environment, printed in (
        ({"PATH": os.environ["PATH"], "COLOUR": "green"}, "green True"),
        ({}, "None False"),
    ):
        ran = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECS,
        )
        assert ran.stdout == f"5 {tmp_path} {printed} ['--flag']\n", ran.stderr


def test_tensorflow_is_imported_and_computes_and_nothing_is_left_of_other_programs():
    program = (
        "import sys; print('tensorflow' in sys.modules, hasattr(sys, 'mark')); sys.mark = 1\n"
        "import tensorflow as tf; print(float(tf.add(1.0, 2.0)))"
    )
    for _ in range(2):
        assert run_python("-c", program).stdout == "True False\n3.0\n"


def test_programs_draw_other_numbers():
    program = "import random, numpy; print(random.random(), numpy.random.random())"
    first, second = (run_python("-c", program).stdout.split() for _ in range(2))
    assert first[0] != second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_program(number):
    program = f"""
import signal, sys, time
signal.signal({int(number)}, lambda *_: sys.exit(7))
print("ready")
while True:  # a signal just before a sleep does not end it, and its handler runs after it
    time.sleep(0.1)
"""
    process = start(program)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(LIMIT_SECS) == 7
    process.stdout.close()


def test_the_program_dies_with_an_interpreter_that_is_killed():
    process = start(f"import os, time; print(os.getpid()); time.sleep({LIMIT_SECS})")
    process_id = int(process.stdout.readline())
    process.kill()
    assert process.wait(LIMIT_SECS) == -signal.SIGKILL
    assert has_ended(process_id, within_secs=LIMIT_SECS)
    process.stdout.close()


def test_programs_end_with_the_process_that_started_the_server():
    """That process is killed, which it cannot tell the server and the program."""
    program = f"""
import subprocess, time
from tests import forking
sleeper = "import os, time; print(os.getpid()); time.sleep({LIMIT_SECS})"
child = subprocess.Popen([forking.forked_python(), "-u", "-c", sleeper])
print(forking._SERVERS[0].pid, flush=True)
time.sleep({LIMIT_SECS})
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    process_ids = [int(process.stdout.readline()) for _ in range(2)]
    process.kill()
    process.wait(LIMIT_SECS)
    assert all(has_ended(process_id, within_secs=LIMIT_SECS / 2) for process_id in process_ids)
    process.stdout.close()
