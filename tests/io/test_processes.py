"""Child processes: none of a tree is left when the block that started it has ended."""

import signal
import subprocess
import sys
import time

import pytest

from official_bert.io.processes import Processes
from tests.shared import has_ended

# Starts a process, prints both numbers, and waits; the second process ignores SIGTERM if the first one does.
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
    with Processes(grace_secs=1.0) as processes:
        process = processes.start(command, stdout=subprocess.PIPE, text=True)
        numbers = [int(word) for word in process.stdout.readline().split()]
        assert processes.statuses() == [None]
    assert processes.statuses() == [-signal.SIGKILL if ignores else -signal.SIGTERM]
    assert all(has_ended(number, within_secs=10) for number in numbers)
    assert time.monotonic() - begun < 60
