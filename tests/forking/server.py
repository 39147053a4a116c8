"""Runs Python programs in processes forked from one that has imported TensorFlow and run nothing.

Importing TensorFlow takes 5 processor seconds, and nearly every script needs it. client.py, which
stands in for the Python interpreter, sends its command line, working directory, environment and
standard streams.

    server process:  import TensorFlow -> wait for a request -> fork -> send process id -> send exit status
    forked process:  take over what the client sent -> run the program -> end as every Python process does
"""

import atexit
import contextlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import types

LARGEST_MESSAGE = 1 << 20  # bytes of a request: command line and environment
NUM_STREAMS = 3  # standard input, output and error


def import_libraries():
    """Imports what the programs import. Nothing here may start a computation, whose threads a
    fork would lose.
    """
    from official_bert.io.quiet_imports import quiet_imports

    with quiet_imports():
        import tensorflow  # noqa: F401

        import official_bert.commands.extract_features
        import official_bert.fine_tuning.finetuner
        import official_bert.fine_tuning.pretrain
        import official_bert.serving.model  # noqa: F401


class Server:
    """Forks a process for each client, and tells the client its process id and, at its end, its
    exit status.
    """

    def __init__(self, listener: socket.socket):
        self._listener = listener
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, socket.socket] = {}  # by the id of the forked process
        os.set_blocking(self._wake_writer, False)
        for source in (listener, self._wake_reader, sys.stdin):
            self._selector.register(source, selectors.EVENT_READ)

    def wait_for_request(self) -> dict | None:
        """Serves until standard input ends, which is when the process that started the server has
        ended.

        Returns:
            In a forked process the request that it must run, with the received file descriptors as
            `streams`. In the server itself None.
        """
        signal.set_wakeup_fd(self._wake_writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    for process_id in self._connections:
                        os.kill(process_id, signal.SIGKILL)
                    return None
                if key.fileobj == self._wake_reader:
                    os.read(self._wake_reader, LARGEST_MESSAGE)
                    self._report_ended()
                elif key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                elif request := self._serve(key.fileobj):
                    return request

    def _serve(self, connection: socket.socket) -> dict | None:
        """Forks the process that a client wants; returns the request in the forked process."""
        request = receive(connection)
        # A signal that nobody can forward, such as SIGKILL, has ended the client.
        if request is None:
            for process_id, other in self._connections.items():
                if other is connection:
                    os.kill(process_id, signal.SIGKILL)
            self._selector.unregister(connection)
            return None
        process_id = os.fork()
        if process_id == 0:
            self._close(connection)
            restore_signals(request)
            return request
        for descriptor in request["streams"]:
            os.close(descriptor)
        self._connections[process_id] = connection
        send(connection, str(process_id).encode())
        return None

    def _report_ended(self):
        """Sends the exit status of each process that has ended to its client."""
        while self._connections:
            process_id, status = os.waitpid(-1, os.WNOHANG)
            if process_id == 0:
                return
            with self._connections.pop(process_id) as connection:
                send(connection, str(os.waitstatus_to_exitcode(status)).encode())
                if connection in self._selector.get_map():
                    self._selector.unregister(connection)

    def _close(self, connection: socket.socket):
        """Closes in a forked process what belongs to the server."""
        for each in (connection, self._listener, self._selector, *self._connections.values()):
            each.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)


def send(connection: socket.socket, message: bytes):
    """Sends a message, which a client that has ended does not need."""
    with contextlib.suppress(OSError):
        connection.send(message)


def receive(connection: socket.socket) -> dict | None:
    """Receives a request with its file descriptors; None from a client that has ended."""
    message, descriptors, _, _ = socket.recv_fds(connection, LARGEST_MESSAGE, NUM_STREAMS)
    return json.loads(message) | {"streams": descriptors} if message else None


def restore_signals(request: dict):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN if request["ignores_sigint"] else signal.default_int_handler
    )


def take_over(request: dict):
    """Gives this process the streams, the session, the folder and the environment of a process
    that was started.
    """
    import numpy as np

    os.setsid()  # a Ctrl-C at the terminal arrives once: the client forwards it
    for target, descriptor in enumerate(request["streams"]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.sched_setaffinity(0, request["cpus"])
    sys.executable = request["executable"]
    added = [
        os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
    ]
    sys.path[1:1] = [path for path in added if path not in sys.path]
    np.random.seed()  # Python reseeds its own generator after a fork


def run_program(words: list[str]):
    """Runs the program of a command line, without the name of the interpreter: options, and a
    script, `-c` or `-m`.
    """
    while words[0] == "-u":
        words = words[1:]
        sys.stdout.reconfigure(write_through=True)
    kind, *arguments = words
    if kind == "-c":
        program, *arguments = arguments
        sys.argv = ["-c", *arguments]
        sys.path[0] = ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(program, "<string>", "exec"), vars(main))
    elif kind == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        sys.path[0] = os.getcwd()
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(kind))
        runpy.run_path(kind, run_name="__main__")


def end_process(status: int):
    """Ends this process as Python does, but without the second that the deletion of all modules
    takes.
    """
    threading._shutdown()  # waits for the threads that are not daemons
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Another worker may still fetch the last sum, for which Python's own end leaves time.
    if "TF_CONFIG" in os.environ:
        time.sleep(0.5)
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def exit_status(words: list[str]) -> int:
    """Runs a program; returns the status with which Python would end, the negative number for a
    signal.
    """
    try:
        run_program(words)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


if __name__ == "__main__":
    import_libraries()
    request = Server(socket.socket(fileno=int(sys.argv[1]))).wait_for_request()
    if request is None:
        os._exit(0)
    take_over(request)
    end_process(exit_status(request["words"]))
