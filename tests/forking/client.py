"""Stands in for the Python interpreter: has the server run a command line in a forked process.

In: the path of the server's socket, the path of the stand-in, and the command line of the
interpreter. Out: what the program writes, and its end: the exit status, or the signal that ended
it. Signals are forwarded.
"""

import json
import os
import select
import signal
import socket
import sys

FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}


def await_answer(server: socket.socket):
    """Waits until the server has sent something.

    A signal that arrives just before a blocking call would not end it, and Python would run the
    handler only after the call. Therefore each signal also writes to a socket that is waited for.
    """
    signals, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    while server not in select.select([server, signals], [], [])[0]:
        signals.recv(64)  # Python has run the handlers


def main(address: str, executable: str, *words: str):
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    request = {
        "words": words,
        "executable": executable,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "cpus": sorted(os.sched_getaffinity(0)),
        "ignores_sigint": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
        process_id = int(server.recv(64))
        for number in FORWARDED:
            signal.signal(number, lambda number, _: os.kill(process_id, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        await_answer(server)
        status = int(server.recv(64))
    if status < 0:
        if status != -signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
