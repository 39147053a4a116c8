"""A Python interpreter that starts in 0.1 s with TensorFlow imported, because a server process
forks it.

forked_python() -> path of the interpreter: client.py -> socket -> server.py forks -> the program
runs
"""

import functools
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_SERVERS: list[subprocess.Popen] = []  # the one of this process


@functools.cache
def forked_python() -> str:
    """Returns the path of the interpreter; the first call in a process starts the server.

    The interpreter takes a script or `-c`. Modules of the package and TensorFlow are imported
    already, so that the variables that Python itself reads at its start have no effect.
    """
    folder = pathlib.Path(_temporary_folder().name)
    address, interpreter = folder / "socket", folder / "python"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(address))
        listener.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.forking.server", str(listener.fileno())],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            # The server ends when this is closed, at the latest with this process.
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
    _SERVERS.append(server)
    client = [
        sys.executable,
        "-ISE",
        pathlib.Path(__file__).with_name("client.py"),
        address,
        interpreter,
    ]
    interpreter.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, client))} "$@"\n')
    interpreter.chmod(0o755)
    return str(interpreter)


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="forking-")


def children_secs() -> float:
    """Returns the processor seconds of the forked processes that have ended, with those of their
    children.
    """
    if not _SERVERS:
        return 0.0
    fields = pathlib.Path(f"/proc/{_SERVERS[0].pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")  # cutime and cstime


def end_server():
    """Ends the server, if there is one, and waits for its end."""
    while _SERVERS:
        server = _SERVERS.pop()
        server.stdin.close()
        server.wait(timeout=60)
    forked_python.cache_clear()
    _temporary_folder.cache_clear()
