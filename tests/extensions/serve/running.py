"""A server in a thread of the test process, and requests to it."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from official_bert.extensions.serve import command
from official_bert.extensions.serve.options import ServeOptions

START_SECS = 120
TIMEOUT_SECS = 60


class Answer(NamedTuple):
    """The answer to a request; `content` is the value of its JSON, or its text."""

    status: int
    headers: Mapping[str, str]
    content: Any


class Address(NamedTuple):
    """Where a server in this process listens, and its models."""

    host: str
    port: int
    models: Any

    def call(self, method: str, path: str, content: Any = None, **headers: str) -> Answer:
        """Sends a request; content that is not bytes becomes JSON."""
        body = content
        if content is not None and not isinstance(content, bytes):
            body = json.dumps(content).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
            names = {name.lower(): value for name, value in response.getheaders()}
            is_json = text and names.get("content-type") == "application/json"
            return Answer(response.status, names, json.loads(text) if is_json else text)

    def post(self, path: str, content: Any) -> Any:
        """Sends a request that must succeed, and returns the JSON of the answer."""
        answer = self.call("POST", path, content)
        assert answer.status == 200, answer
        return answer.content

    def refusal(self, path: str, content: Any, status: int = 400) -> str:
        """Sends a request that must be refused, and returns the sentence."""
        answer = self.call("POST", path, content)
        assert answer.status == status, answer
        error = answer.content["error"]
        return error["message"] if isinstance(error, dict) else error

    def open(self) -> socket.socket:
        """Opens a connection for bytes of any form."""
        return socket.create_connection((self.host, self.port), timeout=TIMEOUT_SECS)


def wait_until(is_true, what: str, within_secs: float = START_SECS):
    """Waits for a condition, which must come."""
    deadline = time.monotonic() + within_secs
    while not is_true():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)


@contextlib.contextmanager
def running(models: Mapping[str, Any], **flags: Any) -> Iterator[Address]:
    """Runs a server with models, folders by name."""
    values = tuple(f"{name}={path}" for name, path in models.items())
    flags = {"shutdown_timeout_secs": 10} | flags
    prepared = command.prepare(ServeOptions(model=values, port=0, **flags))
    address = Address("127.0.0.1", prepared.sock.getsockname()[1], prepared.host)
    thread = threading.Thread(target=prepared.server.run, args=([prepared.sock],))
    thread.start()
    try:
        wait_until(lambda: prepared.host.is_ready or prepared.host.load_error, "the server")
        assert prepared.host.load_error is None, prepared.host.load_error
        yield address
    finally:
        prepared.server.should_exit = True
        thread.join(START_SECS)
    assert not thread.is_alive()
