"""Folders that one test session shares: its test files, and the processes of pytest-xdist that run them."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator


def shared_folder(tmp_path_factory) -> pathlib.Path:
    """The folder of the session; whatever a test did not make itself, it only reads."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # then each process has its own below that of the session
        base = base.parent
    return base / "shared"


@contextlib.contextmanager
def alone_in(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Creates a folder, or waits until the process that is in it has made what it makes there."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
