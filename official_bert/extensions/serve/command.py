"""Starts the server: the runner of official-bert serve."""

from __future__ import annotations

import importlib
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

from official_bert.extensions.serve.options import ServeOptions
from official_bert.io.errors import InputError, brief
from official_bert.io.quiet_imports import quiet_imports

if TYPE_CHECKING:
    from official_bert.extensions.serve.hosted_models import ModelHost
    from official_bert.extensions.serve.http_server import OrderlyServer

_PACKAGES = ("starlette", "uvicorn", "httptools", "prometheus_client")
_POLL_SECS = 0.1


def check_packages() -> None:
    """Checks that the packages of the extra `serve` can be imported.

    Raises:
        InputError: one cannot.
    """
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InputError(
                f"the server needs the package {name}, which cannot be imported ({brief(error)}); "
                "pip install 'official-bert[serve]'"
            ) from None


class PreparedServer(NamedTuple):
    """A server that does not run yet.

    Attributes:
        server: runs until a signal, or until its `should_exit` is True.
        host: its models, which it opens when it runs.
        sock: the socket that it listens at.
        address: the address of the socket, for people.
    """

    server: OrderlyServer
    host: ModelHost
    sock: socket.socket
    address: str


def prepare(options: ServeOptions) -> PreparedServer:
    """Makes the server, and opens its socket.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a package is missing, the address cannot be used, or two models have one name.
    """
    check_packages()
    # These modules import the packages, and TensorFlow.
    with quiet_imports():
        from official_bert.extensions.serve.app import make_app
        from official_bert.extensions.serve.hosted_models import ModelHost
        from official_bert.extensions.serve.http_server import make_server, open_socket
        from official_bert.extensions.serve.metrics import ServerMetrics

    metrics = ServerMetrics()
    host = ModelHost(options, metrics)
    sock = open_socket(options.host, options.port)

    def announce_end():
        host.is_stopping = True

    def end():
        server.should_exit = True

    app = make_app(host, options, metrics, end)
    server = make_server(
        app, options.client_timeout_secs, options.shutdown_timeout_secs, announce_end
    )
    port = sock.getsockname()[1]
    shown_host = f"[{options.host}]" if ":" in options.host else options.host
    return PreparedServer(server, host, sock, f"http://{shown_host}:{port}")


def run(options: ServeOptions) -> None:
    """Serves until a signal ends the server.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a package is missing, the address cannot be used, or a model cannot be opened.
    """
    prepared = prepare(options)
    threading.Thread(target=_print_when_ready, args=(prepared,), daemon=True).start()
    prepared.server.run([prepared.sock])
    if prepared.host.load_error:
        raise prepared.host.load_error


def _print_when_ready(prepared: PreparedServer):
    """Prints the models and the address once requests are answered."""
    host = prepared.host
    never = threading.Event()
    while not host.is_ready:
        if host.is_stopping or host.load_error:
            return
        never.wait(_POLL_SECS)
    names = ", ".join(f"{model.name} ({model.task_name})" for model in host.models.values())
    print(f"Serving {names} at {prepared.address}", flush=True)
