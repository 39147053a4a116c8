"""The limits of the example server: of a request, of requests at once, of open connections, and of the log.

A request that exceeds one is refused by a RequestError, which has the HTTP status of the answer.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tornado.httpserver
import tornado.iostream

BAD_REQUEST, NOT_FOUND, TOO_LARGE, UNSUPPORTED_TYPE, MISDIRECTED = 400, 404, 413, 415, 421
SERVER_ERROR, BUSY, TOO_LATE = 500, 503, 504
BYTES_PER_TOKEN = 4  # of English text, and of a serialized tf.Example
LARGEST_INT32 = (1 << 31) - 1


class RequestError(Exception):
    """The server refuses a request with an HTTP status and a message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def _limit(default: int, help_text: str, most: int = LARGEST_INT32) -> Any:
    return dataclasses.field(default=default, metadata={"help": help_text, "most": most})


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the server accepts; the fields are its flags."""

    max_request_bytes: int = _limit(1 << 20, "size of the largest request")
    max_rows: int = _limit(128, "largest number of examples in a request")
    max_tokens: int = _limit(
        16_384, f"largest number of tokens in a request, padding included; a text has one for {BYTES_PER_TOKEN} bytes"
    )  # fmt: skip
    max_answer_values: int = _limit(1 << 21, "largest number of values in an answer")
    num_workers: int = _limit(2, "number of requests that are processed at the same time", 256)
    max_requests: int = _limit(16, "number of requests that are processed or wait; more are refused", 4096)
    max_connections: int = _limit(
        200, "number of open connections of each protocol; more have to wait", 100_000
    )
    deadline_secs: int = _limit(30, "a request that is not answered after this time is refused", 86_400)
    header_timeout_secs: int = _limit(
        10, "an idle connection, or one without a whole header, is closed then", 86_400
    )

    def check_shape(self, name: str, shape: Sequence[int]):
        """Refuses a tensor with too many rows or elements."""
        if shape and shape[0] > self.max_rows:
            raise RequestError(
                BAD_REQUEST, f"input {name}: has {shape[0]} rows, more than the {self.max_rows} of --max_rows"
            )
        if math.prod(shape) > self.max_tokens:
            raise RequestError(
                BAD_REQUEST,
                f"input {name}: has {math.prod(shape)} elements, more than the {self.max_tokens} of --max_tokens",
            )

    def check_texts(self, name: str, texts: np.ndarray):
        """Refuses strings, an object array, that are too long together."""
        num_bytes, most = sum(map(len, texts.ravel())), BYTES_PER_TOKEN * self.max_tokens
        if num_bytes > most:
            raise RequestError(
                BAD_REQUEST,
                f"input {name}: has {num_bytes} bytes of text, more than the {most} of --max_tokens={self.max_tokens}",
            )

    def check_answer(self, outputs: Mapping[str, np.ndarray]):
        """Refuses to send outputs that would fill the memory as text."""
        num_values = sum(values.size for values in outputs.values())
        if num_values > self.max_answer_values:
            raise RequestError(
                TOO_LARGE,
                f"the answer has {num_values} values, more than the {self.max_answer_values} of --max_answer_values; "
                "send fewer rows",
            )


class Workers:
    """Threads that process requests; more than `max_requests` at once are refused, and late ones are not begun."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._pool = concurrent.futures.ThreadPoolExecutor(limits.num_workers)
        self._free = threading.BoundedSemaphore(limits.max_requests)

    def submit(self, answer: Callable[[], Any]) -> concurrent.futures.Future:
        """Calls `answer` in a thread.

        Raises:
            RequestError: as many requests as may wait are waiting.
        """
        if not self._free.acquire(blocking=False):
            raise RequestError(
                BUSY,
                f"the server has the {self.limits.max_requests} requests of --max_requests; try again later",
            )
        latest_secs = time.monotonic() + self.limits.deadline_secs

        def work():
            if time.monotonic() > latest_secs:
                raise self.too_late()
            return answer()

        future = self._pool.submit(work)
        future.add_done_callback(lambda _: self._free.release())
        return future

    def too_late(self) -> RequestError:
        return RequestError(
            TOO_LATE, f"not answered within the {self.limits.deadline_secs} seconds of --deadline_secs"
        )


class RestServer(tornado.httpserver.HTTPServer):
    """An HTTP server that accepts a connection only while it has less than the limit of open ones."""

    def initialize(self, *arguments, max_connections: int, **settings):
        super().initialize(*arguments, **settings)
        self._free = asyncio.Semaphore(max_connections)
        self._accepting: list[asyncio.Task] = []

    def accept(self, sockets: Sequence[socket.socket]):
        """Accepts connections on the running event loop until the process ends."""
        loop = asyncio.get_running_loop()
        self._accepting += [loop.create_task(self._accept_from(listening)) for listening in sockets]

    async def _accept_from(self, listening: socket.socket):
        """A failure, such as a lack of descriptors, pauses the loop."""
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                self._free.release()
                logging.warning("no connection can be accepted (%s)", error.strerror)
                await asyncio.sleep(1)
                continue
            self.handle_stream(tornado.iostream.IOStream(connection), address)

    def on_close(self, server_conn):
        super().on_close(server_conn)
        self._free.release()


class OncePerSecond(logging.Filter):
    """Accepts one record a second of each line of code that logs, and counts those that it drops."""

    def __init__(self):
        super().__init__()
        self._kinds: dict[
            tuple[str, int], tuple[float, int]
        ] = {}  # when the last was accepted, how many dropped

    def filter(self, record):
        kind, now = (record.pathname, record.lineno), time.monotonic()
        last, num_dropped = self._kinds.get(kind, (-1.0, 0))
        if now - last < 1:
            self._kinds[kind] = last, num_dropped + 1
            return False
        self._kinds[kind] = now, 0
        if num_dropped:
            record.msg, record.args = f"{record.getMessage()} ({num_dropped} more like it before)", ()
        return True


def limit_log():
    """Sends warnings of all libraries to standard error, at most one of each kind a second."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(OncePerSecond())
    root = logging.getLogger()
    root.handlers[:], root.level = [handler], logging.WARNING
    for name in ("absl", "tensorflow"):  # an export has no gradients, of which TensorFlow warns
        logging.getLogger(name).setLevel(logging.ERROR)
