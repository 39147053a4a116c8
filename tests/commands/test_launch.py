"""The launcher, with commands that need no TensorFlow: names of lines, restarts, ends, and
shares of the machine.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from official_bert.commands import launch
from official_bert.io.errors import InputError
from official_bert.options.running import LaunchOptions
from tests.scripts import command_line, run_script
from tests.shared import ROOT

IS_SECOND = "json.loads(os.environ['TF_CONFIG'])['task']['index'] == 1"


def launched(program: str, *flags: str, status: int = 0, **environment: str):
    """Runs a Python program on two workers."""
    flags = (
        "--num_workers=2",
        *flags,
        "--",
        sys.executable,
        "-c",
        f"import json, os, sys, time\n{program}",
    )
    return run_script("launch", *flags, status=status, timeout_secs=120, **environment)


def test_lines_have_the_names_of_their_workers_and_workers_know_each_other():
    ran = launched(
        "print(os.environ['TF_CONFIG']); print('to the log', file=sys.stderr); print(sys.argv)"
    )
    lines = sorted(ran.stdout.splitlines())
    assert [line for line in lines if "to the log" in line] == [
        "[worker 0] to the log",
        "[worker 1] to the log",
    ]
    configs = []
    for line in lines:
        if "cluster" in line:
            _, _, config = line.partition("] ")
            configs.append(json.loads(config))
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": index} for index in (0, 1)
    ]
    (hosts,) = {tuple(config["cluster"]["worker"]) for config in configs}
    assert len(set(hosts)) == 2
    assert all(host.startswith("localhost:") for host in hosts)
    assert "[worker 0] ['-c', '--distribution_strategy=multi_worker_mirrored']" in lines


def test_a_failure_starts_all_again(tmp_path):
    """The second worker fails once; the first, which waits for it, is ended and started again,
    too.
    """
    program = f"""
if {IS_SECOND}:
    time.sleep(2)
    sys.exit(0 if len(os.listdir({str(tmp_path)!r})) > 1 else 1)
starts = len(os.listdir({str(tmp_path)!r}))
open({str(tmp_path)!r} + f'/first{{starts}}', 'w').close()
if starts == 0:
    sys.exit(75)
"""
    ran = launched(program)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first0", "first1"]
    assert "The workers ended: worker 0 with status 75, worker 1 with status 1" in ran.stderr
    assert "Starting all workers again (restart 1 of 3)" in ran.stderr


def test_it_gives_up_with_the_status_of_the_failure(tmp_path):
    program = (
        f"open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w'); sys.exit(9 if {IS_SECOND} else 0)"
    )
    ran = launched(program, "--max_restarts=1", status=9)
    assert len(list(tmp_path.iterdir())) == 4, "two workers, twice"
    assert "restart 1 of 1" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_launcher_ends_the_workers_with_time_to_save(tmp_path, number):
    program = f"""
import signal, os, sys, time
def save(*_):
    time.sleep(1)
    open({str(tmp_path)!r} + f'/saved{{os.getpid()}}', 'w').close()
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
while True:  # a signal just before a sleep does not end it, and its handler runs after it
    time.sleep(0.1)
"""
    command = [
        sys.executable,
        *command_line("launch"),
        "--num_workers=2",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    for _ in range(2):
        assert process.stdout.readline().endswith("ready\n")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Starting all workers again" not in stderr
    assert len(list(tmp_path.iterdir())) == 2


def test_a_worker_that_ignores_sigterm_is_killed(monkeypatch):
    monkeypatch.setattr(launch, "PATIENCE_SECS", 0.5)
    monkeypatch.setattr(launch, "GRACE_SECS", 0.5)
    program = f"""
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(100 if not {IS_SECOND} else 1)
sys.exit(5)
"""
    options = LaunchOptions(num_workers=2, command=(sys.executable, "-c", program))
    assert launch.run_workers(list(options.command), options) == [-signal.SIGKILL, 5]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU cannot be shared")
def test_cpus_and_gpus_are_shared():
    show = (
        "time.sleep(1); print(sorted(os.sched_getaffinity(0)), "
        "os.environ.get('CUDA_VISIBLE_DEVICES'))"
    )
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    ran = launched(show, CUDA_VISIBLE_DEVICES="4,5,6,7")
    first_half = cpus[:half]
    second_half = cpus[half : 2 * half]
    assert sorted(ran.stdout.splitlines()) == [
        f"[worker 0] {first_half} 4,5",
        f"[worker 1] {second_half} 6,7",
    ]


def test_a_script_is_named_before_anything_starts():
    with pytest.raises(InputError, match=r"run_pretrainin.py: no such file"):
        launch.run(LaunchOptions(num_workers=2, command=("run_pretrainin.py",)))


def test_the_command_is_behind_dashes_and_may_be_one_of_official_bert():
    ended = run_script("launch", "--num_workers=2", "run_pretraining.py", status=1)
    assert (
        "official-bert launch: the word 'run_pretraining.py' belongs to no flag; write -- before "
        "the command" in ended.stderr
    )
    for words in (("official-bert", "run_pretrainin"), ("run_pretrainin",)):
        ended = run_script("launch", "--num_workers=2", "--", *words, status=1)
        asked = "official-bert: there is no command 'run_pretrainin'; did you mean run_pretraining?"
        assert sorted(ended.stdout.splitlines()) == [
            f"[worker {index}] {asked}" for index in (0, 1)
        ]


def test_flags_of_the_command_are_not_the_launchers():
    ran = launched("print('--num_workers=9' in sys.argv)\n#", "--max_restarts=0")
    assert "[worker 0] False" in ran.stdout
    command = launch.make_command(
        LaunchOptions(
            num_workers=2, command=("run_ner.py", "--help", "--distribution_strategy=mirrored")
        )
    )
    assert command == [
        sys.executable,
        "-u",
        "run_ner.py",
        "--help",
        "--distribution_strategy=mirrored",
    ]
    words = ("run_ner.py", "--distribution_strategy", "mirrored")
    assert launch.make_command(LaunchOptions(num_workers=2, command=words))[2:] == list(words)
