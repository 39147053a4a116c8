"""What differs between operating systems. No other module of the package imports fcntl, msvcrt or
resource, or reads a name of `os` and `signal` that Windows lacks.

Linux and other systems of POSIX have locks, process groups and signals. Windows has its own locks
and groups. Where neither exists, a function says in its docstring what it does instead.
"""

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

# The signals that ask a process to end, besides Ctrl-C.
_ENDING_SIGNAL_NAMES = ("SIGTERM", "SIGHUP", "SIGBREAK")
ENDING_SIGNALS = tuple(
    getattr(signal, name) for name in _ENDING_SIGNAL_NAMES if hasattr(signal, name)
)
# The exit status of a process that may succeed if it is started again.
TRY_AGAIN_STATUS: int = getattr(os, "EX_TEMPFAIL", 75)
# Whether a file that a process has open can be deleted.
DELETES_OPEN_FILES = os.name != "nt"
# Whether a backslash parts folders, so that it escapes no character of a glob.
HAS_BACKSLASH_PATHS = os.sep == "\\"
# Whether a thread can block signals.
BLOCKS_SIGNALS = hasattr(signal, "pthread_sigmask")

_HAS_GROUPS = hasattr(os, "killpg")
_RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of one in ru_maxrss
# The byte of a file that Windows locks. Other processes cannot read a locked byte, so it is behind
# the content.
_LOCKED_BYTE = 1 << 20
_POLL_SECS = 0.1  # between two attempts to lock a file on Windows


def lock_file(descriptor: int, waits: bool) -> None:
    """Locks an open file for this process. The lock ends with the process, or with `os.close`.

    Args:
        descriptor: the descriptor of the file, opened for reading and writing.
        waits: whether to wait while another process has locked the file.

    Raises:
        OSError: another process has locked the file and `waits` is False, or the file system has
            no locks. A system without locks raises it with the number ENOSYS.
    """
    try:
        import fcntl
    except ImportError:
        _lock_on_windows(descriptor, waits)
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def _lock_on_windows(descriptor: int, waits: bool):
    try:
        import msvcrt as windows
    except ImportError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    functions: Any = windows  # Type checkers on other systems do not know its functions.
    while True:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            functions.locking(descriptor, functions.LK_NBLCK, 1)
        except OSError:
            if not waits:
                raise
        else:
            return
        time.sleep(_POLL_SECS)


def peak_memory_bytes() -> int | None:
    """Returns the peak of this process's resident memory; None where the system does not say it."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RESIDENT_UNIT


def group_settings() -> Mapping[str, Any]:
    """Returns the arguments of subprocess.Popen by which a process leads a process group.

    Ctrl-C in the terminal then does not reach it.
    """
    if _HAS_GROUPS:
        return {"start_new_session": True}
    return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}


def ask_to_end(process: subprocess.Popen) -> None:
    """Sends a process the signal that asks it to end: SIGTERM, or Ctrl-Break on Windows.

    Args:
        process: a process that leads its group. One that has ended is left alone.
    """
    number = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def kill_group(process: subprocess.Popen) -> None:
    """Kills a process and its children; on Windows, the process alone.

    Args:
        process: a process that leads its group. One that has ended is left alone.
    """
    with contextlib.suppress(ProcessLookupError):
        if _HAS_GROUPS:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def is_running(process_id: int) -> bool:
    """Returns whether a process runs; on Windows, which has no harmless signal, always True.

    Args:
        process_id: the number of the process.
    """
    if not _HAS_GROUPS:
        return True
    try:
        os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # The process of another user runs.
        return True
    return True


def call_at_fork(
    before: Callable[[], None],
    after_in_parent: Callable[[], None],
    after_in_child: Callable[[], None],
) -> None:
    """Has functions called whenever this process forks; Windows has no forks.

    Args:
        before: the function that is called before a fork.
        after_in_parent: the function that is called after it in this process.
        after_in_child: the function that is called after it in the new process.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before,
            after_in_parent=after_in_parent,
            after_in_child=after_in_child,
        )


def block_signals(numbers: Iterable[int]) -> None:
    """Keeps signals from this thread and from the processes that it starts; not on Windows.

    Args:
        numbers: the signals.
    """
    if BLOCKS_SIGNALS:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(numbers))


def list_cpus() -> list[int]:
    """Returns the numbers of this process's CPUs, sorted; none where nobody can choose them."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def limited_to_cpus(cpus: Collection[int]) -> Iterator[None]:
    """Lets the processes that start in the context run on some CPUs only, from their beginning.

    Args:
        cpus: the numbers of the CPUs, of those that `list_cpus` returns; none for all.
    """
    if not cpus:
        yield
        return
    cpus_before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)  # This thread's, which its child processes inherit.
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus_before)


def has_input(descriptor: int) -> bool:
    """Returns whether the next read of a file returns without waiting; on Windows always False.

    Args:
        descriptor: the descriptor of the file.
    """
    try:
        readable, _, _ = select.select([descriptor], [], [], 0)
    except OSError:  # Windows accepts only sockets.
        return False
    return bool(readable)
