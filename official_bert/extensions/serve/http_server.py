"""Uvicorn with limits for slow clients, errors as JSON, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging as std_logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn  # pyright: ignore[reportMissingImports]
from uvicorn.protocols.http.httptools_impl import (  # pyright: ignore[reportMissingImports]
    HttpToolsProtocol,
)

from official_bert.extensions.serve.app import render_json
from official_bert.io.errors import InputError

_MAX_HEAD_BYTES = 1 << 16
_KEEP_ALIVE_SECS = 75
_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
}


class LimitedProtocol(HttpToolsProtocol):
    """A connection that closes if the head of a request is slow or large.

    Attributes:
        head_secs: the number of seconds in which the first line and the headers must arrive.
    """

    head_secs = 30.0

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._head_timer: asyncio.TimerHandle | None = None
        self._num_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Starts the time of the first request.

        Args:
            transport: the transport of the connection.
        """
        super().connection_made(transport)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request.

        Args:
            data: the part.
        """
        super().data_received(data)
        if self._waits_for_head() and not self.transport.is_closing():
            self._num_head_bytes += len(data)
            if self._num_head_bytes > _MAX_HEAD_BYTES:
                self._refuse(431, f"the headers have more than {_MAX_HEAD_BYTES} bytes")
            elif self._head_timer is None:
                self._start_head_timer()

    def on_message_begin(self) -> None:
        """Starts the time of the head of a request."""
        super().on_message_begin()
        if self._head_timer is None:
            self._start_head_timer()

    def on_headers_complete(self) -> None:
        """Ends the time of the head of a request."""
        self._stop_head_timer()
        self._num_head_bytes = 0
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the time of a request.

        Args:
            exc: the error of the connection, or None.
        """
        self._stop_head_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers a request that is no HTTP.

        Args:
            msg: uvicorn's sentence, which is not used.
        """
        self._refuse(400, "the request is no HTTP")

    def _waits_for_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_head_timer(self):
        self._head_timer = self.loop.call_later(self.head_secs, self._end_slow_head)

    def _stop_head_timer(self):
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_slow_head(self):
        self._head_timer = None
        if not self._waits_for_head():  # the answer to the request before is not complete
            self._start_head_timer()
            return
        self._refuse(408, f"the headers did not arrive within {self.head_secs:g} seconds")

    def _refuse(self, status: int, sentence: str):
        """Answers with an error, and closes the connection."""
        content = render_json({"error": sentence})
        lines = (
            b"HTTP/1.1 %d %s" % (status, _REASONS[status]),
            b"content-type: application/json",
            b"content-length: %d" % len(content),
            b"connection: close",
            b"",
            content,
        )
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()


def make_protocol(timeout_secs: float) -> type[LimitedProtocol]:
    """Makes the class of a connection.

    Args:
        timeout_secs: the number of seconds in which the head of a request must arrive.
    """
    return type("ServerProtocol", (LimitedProtocol,), {"head_secs": timeout_secs})


class OrderlyServer(uvicorn.Server):
    """A server that ends with status 0 after SIGTERM, and tells so before."""

    def __init__(self, config: uvicorn.Config, announce_end: Callable[[], None]):
        """Makes the server.

        Args:
            config: the settings of uvicorn.
            announce_end: is called when a signal asks the server to end.
        """
        super().__init__(config)
        self._announce_end = announce_end

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begins the end of the server.

        Args:
            sig: the number of the signal.
            frame: the frame that it interrupts.
        """
        self._announce_end()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles signals; unlike uvicorn's method it does not raise them again at the end."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        handlers = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def make_server(
    app: Any, timeout_secs: int, shutdown_secs: int, announce_end: Callable[[], None]
) -> OrderlyServer:
    """Makes the server of an application.

    Args:
        app: the application.
        timeout_secs: the number of seconds in which a client must send the head of a request.
        shutdown_secs: the number of seconds for accepted requests at the end.
        announce_end: is called when a signal asks the server to end.
    """
    std_logging.getLogger("uvicorn.error").setLevel(std_logging.CRITICAL)
    config = uvicorn.Config(
        app,
        http=make_protocol(timeout_secs),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECS,
        timeout_graceful_shutdown=shutdown_secs,
    )
    return OrderlyServer(config, announce_end)


def open_socket(host: str, port: int) -> socket.socket:
    """Opens the socket of a server.

    Args:
        host: the address to listen at.
        port: the port; 0 for a free one.

    Raises:
        InputError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        # A name that is no address has a number of its own, and a sentence.
        is_plain = error.errno is not None and not isinstance(error, socket.gaierror)
        reason = os.strerror(error.errno or 0) if is_plain else error.strerror
        raise InputError(
            f"--host={host} --port={port}: cannot be used ({reason}); give another, or --port=0 "
            "for a free port"
        ) from None
