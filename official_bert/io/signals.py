"""SIGTERM and SIGHUP: they end the process in order, at once or where the work says that it may end.

In: the signals. Out: the exception `Terminated`, which unwinds the stack like Ctrl-C, so that unfinished files are
deleted.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from official_bert.io.errors import Terminated

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_deferred: list[int] | None = None  # the signals that arrived within `deferred`; None outside of it


def end_in_order():
    """Makes both signals raise `Terminated` in the main thread, unless they are ignored, as under nohup."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminate)


def take_back():
    """Installs the handlers again that another library has replaced below Python, which does not notice.

    TensorFlow takes SIGTERM for itself when workers connect.
    """
    for number in ENDING_SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], int | None]]:
    """Keeps back the first signal in the context, so that the work in it is finished; a second one ends it at once.

    Yields:
        A function that returns the number of the signal that was kept back, or None. Whoever receives a number ends
        the work and raises `Terminated`.
    """
    global _deferred
    arrived = _deferred = []
    try:
        yield lambda: arrived[0] if arrived else None
    finally:
        _deferred = None
    if arrived:
        raise Terminated(arrived[0])


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Keeps back Ctrl-C and the ending signals in the context, for a few lines that must all happen or none.

    The first signal is handled at the end of the context as if it had arrived there. Outside of the main thread, where
    no handler runs, the context does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_held, arrived = True, []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING_SIGNALS)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}

    def keep(number, frame):
        if is_held:
            arrived.append(number)
        else:  # a signal in the loops below, whose exception leaves some handlers as they are: none is lost
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, keep)
        yield
    finally:
        is_held = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def _terminate(number, _):
    if _deferred is not None and not _deferred:
        _deferred.append(number)
        return
    for ending in ENDING_SIGNALS:  # a second one would interrupt the deletion of unfinished files
        signal.signal(ending, signal.SIG_IGN)
    raise Terminated(number)
