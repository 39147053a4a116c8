"""Locks, processes and files on the systems that differ from this one, as far as fakes show it."""

import errno
import os
import signal
import subprocess
import sys
import types

import pytest

from official_bert.io import files, folder_lock, operating_system
from official_bert.io.errors import InputError
from tests.scripts import run_interpreter
from tests.shared import ROOT

pytest.importorskip("fcntl")  # the locks of POSIX, of which the fakes are made

# A module with the locks of Windows, made of the locks of POSIX that belong to a process.
FAKE_MSVCRT = """
import fcntl, os, subprocess, sys, types
def locking(descriptor, mode, count):
    assert mode == 2
    start = os.lseek(descriptor, 0, os.SEEK_CUR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, start)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
sys.modules["fcntl"] = None
from official_bert.io import folder_lock, operating_system
operating_system.DELETES_OPEN_FILES = False
"""
# Locks a folder and waits for a line of its standard input.
HOLD = "with folder_lock.locked(sys.argv[1]): print('locked', flush=True); sys.stdin.readline()"
# Says who has locked a folder, and locks it when the other one has ended.
WAIT = """
from official_bert.io.errors import InputError
try:
    with folder_lock.locked(sys.argv[1]):
        print("free")
except InputError as error:
    print(error)
"""


def start_holder(folder: str) -> subprocess.Popen:
    holder = subprocess.Popen(
        [sys.executable, "-c", FAKE_MSVCRT + HOLD, folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "locked\n"
    return holder


def say_state(folder: str) -> str:
    ended = run_interpreter("-c", FAKE_MSVCRT + WAIT, folder, PYTHONPATH=str(ROOT))
    return ended.stdout


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_locks_of_windows_name_their_owner_and_end_with_the_process(tmp_path, is_killed):
    folder = str(tmp_path / "output")
    holder = start_holder(folder)
    try:
        sentence = say_state(folder)
        assert sentence.startswith(f"{folder}: process {holder.pid} of host ")
        assert "works in it; wait for its end, or name another folder" in sentence
        if is_killed:
            holder.kill()
            holder.wait(60)
        else:
            holder.communicate("\n", timeout=60)
            assert not os.path.exists(folder), "the lock and the new folder are removed"
        assert say_state(folder) == "free\n"
    finally:
        holder.kill()
        holder.communicate()


def test_a_lock_of_windows_is_waited_for(monkeypatch):
    attempts = []

    def locking(descriptor, mode, count):
        attempts.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if len(attempts) < 3:
            raise PermissionError(errno.EACCES, "locked")

    monkeypatch.setitem(sys.modules, "fcntl", None)
    fake = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setattr(operating_system, "_POLL_SECS", 0.001)
    descriptor = os.memfd_create("lock")
    operating_system.lock_file(descriptor, waits=True)
    assert attempts == [1 << 20] * 3
    attempts.clear()
    with pytest.raises(PermissionError):
        operating_system.lock_file(descriptor, waits=False)
    os.close(descriptor)


def test_a_system_without_locks_warns(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    with folder_lock.locked(str(tmp_path / "output")):
        assert "this file system has no locks; start only one run here" in caplog.text


def test_the_locks_of_this_system_exclude_each_other(tmp_path):
    folder = str(tmp_path / "output")
    with (
        folder_lock.locked(folder),
        pytest.raises(InputError, match=f"process {os.getpid()} of host"),
        folder_lock.locked(folder),
    ):
        pass
    assert not os.path.exists(folder)


def test_a_process_is_asked_to_end_and_killed_without_groups(monkeypatch):
    sent = []
    monkeypatch.setattr(signal, "CTRL_BREAK_EVENT", 1, raising=False)
    monkeypatch.setattr(os, "kill", lambda process_id, number: sent.append((process_id, number)))
    monkeypatch.setattr(operating_system, "_HAS_GROUPS", False)
    process = types.SimpleNamespace(pid=71, kill=lambda: sent.append("killed"))
    operating_system.ask_to_end(process)
    operating_system.kill_group(process)
    assert sent == [(71, 1), "killed"]
    assert operating_system.group_settings() == {"creationflags": 0}
    assert operating_system.is_running(71)
    assert sent == [(71, 1), "killed"], "on Windows any signal would end the process"


def test_a_process_that_has_ended_does_not_run():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(60)
    assert not operating_system.is_running(ended.pid)
    assert not operating_system.is_running(1 << 80)
    assert operating_system.is_running(os.getpid())


def test_windows_does_not_say_what_cannot_be_found(monkeypatch):
    def refuse(*_):
        raise OSError(10038, "not a socket")

    monkeypatch.setattr(operating_system.select, "select", refuse)
    assert not operating_system.has_input(0)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert operating_system.peak_memory_bytes() is None


def test_a_backslash_parts_the_folders_of_windows(monkeypatch):
    assert files.to_python_glob(r"a\*[^b]") == "a[*][!b]"
    monkeypatch.setattr(operating_system, "HAS_BACKSLASH_PATHS", True)
    assert files.to_python_glob(r"C:\data\*[^b].tsv") == r"C:\data\*[!b].tsv"
