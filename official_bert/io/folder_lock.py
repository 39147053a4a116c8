"""Keeps a folder of results for one process at a time, by a lock file with the host and the number
of the process.

The lock is the operating system's lock of that file, which ends with the process however it ends;
the file of a killed process therefore stops nobody.
"""

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator

from absl import logging

from official_bert.io import files
from official_bert.io.errors import InputError

LOCK_FILE = ".lock"
_NOT_SUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def locked(folder: str, waits: bool = False) -> Iterator[None]:
    """Creates the folder and keeps it for this process, as a context manager; one that stays empty
    is removed again.

    That another process keeps it is an error, or with `waits` the end of that one is waited for.
    Remote folders and file systems without locks are not locked.
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
        with contextlib.suppress(OSError):
            os.remove(path)  # first: whoever opens the file after the unlocking must make a new one
            if is_new:
                os.rmdir(folder)  # which fails if anything is in it
        os.close(lock)


def _lock(path: str, waits: bool) -> int | None:
    """Returns the open lock file, or None if the file system has no locks."""
    how = fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        files.make_folder(os.path.dirname(path))  # its last owner may have removed it
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise InputError(
                f"{os.path.dirname(path)}: cannot be written ({error.strerror}); make room or name "
                "another folder"
            ) from None
        try:
            fcntl.flock(lock, how)
        except OSError as error:
            owner = _content(lock)
            os.close(lock)
            if error.errno in _NOT_SUPPORTED:
                logging.warning("%s: the file system has no locks; start no second run here", path)
                return None
            if waits and how & fcntl.LOCK_NB:
                logging.info(
                    "%s: waiting for %s", os.path.dirname(path), owner or "another process"
                )
                how = fcntl.LOCK_EX
                continue
            raise InputError(
                f"{os.path.dirname(path)}: {owner or 'another process'} works in it; wait for its "
                "end, or give another folder"
            ) from None
        if _is_still_there(path, lock):
            break
        os.close(lock)  # its owner removed it between our opening and locking
    if owner := _content(lock):
        logging.info("%s: %s ended without removing it; the lock is taken over", path, owner)
    os.ftruncate(lock, 0)
    with contextlib.suppress(OSError):  # a full disk; the content only serves messages
        os.pwrite(lock, f"process {os.getpid()} of host {socket.gethostname()}\n".encode(), 0)
    return lock


def _content(lock: int) -> str:
    return os.pread(lock, 1000, 0).decode("utf-8", "replace").strip()


def _is_still_there(path: str, lock: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock))
    except FileNotFoundError:
        return False
