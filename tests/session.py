"""What one test makes for all tests of the session, in all processes of pytest-xdist."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from official_bert.io import operating_system
from tests import processor_time


def shared_folder(tmp_path_factory) -> pathlib.Path:
    """Returns the folder of the session. A test only reads what it did not make itself."""
    base = tmp_path_factory.getbasetemp()
    # Then each process has its own below that of the session.
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    return base / "shared"


@contextlib.contextmanager
def alone_in(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Creates a folder, or waits until the process that is in it has made what it makes there."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock, processor_time.shared_time(f"tests::{folder.name}"):
        operating_system.lock_file(lock.fileno(), waits=True)
        yield folder


def file_states(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """Returns the size and the time of the last change of each file below a folder, by its
    relative name.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in files
    }
