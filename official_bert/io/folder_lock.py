"""Locks a folder of results for one process at a time.

A lock file contains the host and the id of the process. The lock itself is the operating system's
lock of that file. The system releases it when the process ends, even if the process is killed. A
lock file that a killed process leaves behind therefore blocks no other process.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

from absl import logging

from official_bert.io import files, operating_system
from official_bert.io.errors import InputError

LOCK_FILE = ".lock"
_NOT_SUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def locked(folder: str, waits: bool = False) -> Iterator[None]:
    """Creates a folder and locks it for this process, as a context manager.

    A new folder that stays empty is removed at the end. Remote folders are not locked, and neither
    are folders on a file system without locks.

    Args:
        folder: the folder to lock.
        waits: whether to wait while another process has locked the folder.

    Raises:
        InputError: another process has locked the folder, and `waits` is False.
    """
    is_new = not os.path.exists(folder)
    files.make_folder(folder)
    path = os.path.join(folder, LOCK_FILE)
    lock = None if files.is_remote(folder) else _lock(path, waits)
    if lock is None:
        yield
        return
    try:
        yield
    finally:
        # Remove the file before it is unlocked, so that the next process creates a new one. Windows
        # does not remove it while it is open, neither here nor in another process.
        if operating_system.DELETES_OPEN_FILES:
            _remove(path, is_new)
        os.close(lock)
        if not operating_system.DELETES_OPEN_FILES:
            _remove(path, is_new)


def _remove(path: str, is_folder_new: bool):
    """Removes the lock file, and its folder if this process created it and it is empty."""
    with contextlib.suppress(OSError):
        os.remove(path)
        if is_folder_new:
            os.rmdir(os.path.dirname(path))  # This fails if the folder contains anything.


def _lock(path: str, waits: bool) -> int | None:
    """Returns the open lock file, or None if the file system has no locks."""
    folder = os.path.dirname(path)
    waits_now = False
    while True:
        files.make_folder(folder)  # Its last owner may have removed it.
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"{folder}: cannot be written ({error.strerror}); make room or name another folder"
            ) from None
        try:
            operating_system.lock_file(lock, waits_now)
        except OSError as error:
            owner = _read(lock) or "another process"
            os.close(lock)
            if error.errno in _NOT_SUPPORTED:
                logging.warning("%s: this file system has no locks; start only one run here", path)
                return None
            if waits and not waits_now:
                logging.info("%s: waiting for %s", folder, owner)
                waits_now = True
                continue
            raise InputError(
                f"{folder}: {owner} works in it; wait for its end, or name another folder"
            ) from None
        if _is_still_there(path, lock):
            break
        # The owner removed the file after this process opened it and before it locked it.
        os.close(lock)
    owner = _read(lock)
    if owner:
        logging.info("%s: %s ended without removing it; the lock is taken over", path, owner)
    os.ftruncate(lock, 0)
    content = f"process {os.getpid()} of host {socket.gethostname()}\n"
    # The content is only for messages, so a full disk does not matter.
    with contextlib.suppress(OSError):
        os.lseek(lock, 0, os.SEEK_SET)
        os.write(lock, content.encode())
    return lock


def _read(lock: int) -> str:
    """Returns the content of the lock file: its owner, or "" for a new file."""
    os.lseek(lock, 0, os.SEEK_SET)
    return os.read(lock, 1000).decode("utf-8", "replace").strip()


def _is_still_there(path: str, lock: int) -> bool:
    """Returns whether the open file still has its name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock))
    except FileNotFoundError:
        return False
