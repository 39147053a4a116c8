"""Waits, with messages and a time limit, for what another process or machine has to do first."""

import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_MESSAGE_SECS, _NEXT_MESSAGE_SECS = 2.0, 30.0


def result_of(call: Callable[[], T], waiting_for: str, limit_secs: float) -> T:
    """Returns the result of a call that may block in the operating system or in TensorFlow.

    The call runs in a thread of its own. A thread that is blocked cannot be ended: after the time limit it stays, and
    does not keep the process from exiting.

    Args:
        call: the call; its exceptions are raised here.
        waiting_for: what a message says the process waits for, from two seconds on and then every half a minute.
        limit_secs: the time limit in seconds.
    """
    future = concurrent.futures.Future()

    def run():
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    start_secs = time.monotonic()
    pause_secs = _FIRST_MESSAGE_SECS
    while True:
        left_secs = limit_secs - (time.monotonic() - start_secs)
        done, _ = concurrent.futures.wait([future], min(pause_secs, max(left_secs, 0)))
        if done:
            return future.result()
        if left_secs <= pause_secs:
            raise TimeoutError(f"no answer within {limit_secs:g} s")
        from absl import logging  # late: it loads absl.flags, which light uses of the package do without

        logging.info("waiting for %s, for %.0f s more at most", waiting_for, left_secs - pause_secs)
        pause_secs = _NEXT_MESSAGE_SECS
