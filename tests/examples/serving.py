"""Runs the example server as a process, and loads the examples as modules."""

import contextlib
import http.client
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from tests.shared import ROOT

MAX_REQUEST_BYTES = 100_000
JSON_TYPE = {"Content-Type": "application/json"}

# Runs a script that tells at SIGUSR1, on a line of its standard output, how many bytes it has allocated and not freed.
# That is what leaks: what the process holds besides, free memory between it, goes up and down by tens of megabytes.
WATCHED = """
import ctypes, gc, runpy, signal, sys

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

class MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES.split()]

info = ctypes.CDLL(None).mallinfo2
info.restype = MallocInfo

def tell(*_):
    gc.collect()
    found = info()
    print(found.uordblks + found.hblkhd, flush=True)

signal.signal(signal.SIGUSR1, tell)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def load_example(name: str):
    """Loads a script of examples/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Server(NamedTuple):
    """A running server.

    Attributes:
        process: the process of the server.
        rest_port: the port for HTTP.
        grpc_port: the port for gRPC.
        model_name: the name of its model.
    """

    process: subprocess.Popen
    rest_port: int
    grpc_port: int
    model_name: str

    @property
    def rest(self) -> str:
        return f"http://127.0.0.1:{self.rest_port}"

    @property
    def url(self) -> str:
        return f"/v1/models/{self.model_name}:predict"

    def post(self, body: bytes, url: str | None = None, **headers: str) -> tuple[int, dict]:
        """Posts a request, and returns the status and content of the answer."""
        return self.call("POST", url or self.url, body, headers)

    def call(self, method: str, url: str, body=None, headers=None) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self.rest_port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, url, body, JSON_TYPE | (headers or {}))
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def allocated_bytes(self) -> int:
        """What the process has allocated and not freed, in Python and in TensorFlow."""
        self.process.send_signal(signal.SIGUSR1)
        return int(self.process.stdout.readline())

    def resident_mib(self) -> float:
        """Returns the resident memory of the process in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024


@contextlib.contextmanager
def running_server(
    model_dir: pathlib.Path, model_name: str, *flags: str, log: BinaryIO | None = None
) -> Iterator[Server]:
    """Runs a server on free ports; at the end it must still be running, and is killed.

    Args:
        model_dir: the folder of versions.
        model_name: the name of the model.
        *flags: further flags.
        log: receives its standard error; None for that of the tests.
    """
    command = [
        sys.executable,
        "-c",
        WATCHED,
        str(ROOT / "examples" / "serving_server.py"),
        f"--model_name={model_name}",
        f"--model_base_path={model_dir}",
        "--rest_api_port=0",
        "--port=0",
        f"--max_request_bytes={MAX_REQUEST_BYTES}",
        *flags,
    ]
    # TensorFlow logs every failed assertion; Python's own allocator would hide its objects from malloc's counters.
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONMALLOC": "malloc"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process:
        try:
            line = process.stdout.readline()
            rest_port, grpc_port = re.search(
                r"http://127.0.0.1:(\d+)/.*grpc://127.0.0.1:(\d+)$", line
            ).groups()
            yield Server(process, int(rest_port), int(grpc_port), model_name)
            assert process.poll() is None, "the server has died"
        finally:
            process.kill()
