"""Shows how far a long job is: a log line every ten seconds, or on a terminal one line that is
updated in place.

Any log line first wipes the updated line away, so that the two never mix.
"""

import logging as std_logging
import shutil
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from absl import logging

T = TypeVar("T")

_SECS_BETWEEN_LINES = 10.0
_SECS_BETWEEN_UPDATES = 0.5


class Progress:
    """Shows the progress of a job. Call it with the number of finished items."""

    def __init__(self, things: str, total: int | None = None, is_updated: bool = True):
        """Starts the clock; without `is_updated` a terminal gets log lines, too, as where a
        person types the items.
        """
        self._things, self._total, self._is_updated = things, total, is_updated
        self._start_secs = self._last_secs = time.monotonic()

    def __call__(self, done: int, also: str = ""):
        if done == self._total:
            # What comes next, on standard output for instance, begins on an empty line.
            updated_line.wipe()
        now_secs = time.monotonic()
        is_updated = self._is_updated and updated_line.is_possible()
        if now_secs - self._last_secs < (
            _SECS_BETWEEN_UPDATES if is_updated else _SECS_BETWEEN_LINES
        ):
            return
        self._last_secs = now_secs
        text = ", ".join(filter(None, (self._text(done, now_secs - self._start_secs), also)))
        if not is_updated:
            logging.info(text)
        elif done != self._total:
            updated_line.show(text)

    def _text(self, done: int, secs: float) -> str:
        if self._total is None:
            return f"{done} {self._things}, {done / secs:.1f} a second"
        left = f", {clock_time(secs / done * (self._total - done))} left" if done else ""
        return f"{done} of {self._total} {self._things}{left}"


def counted(items: Iterable[T], things: str) -> Iterator[T]:
    """Yields items, and shows how many of them are done."""
    progress = Progress(things, len(items) if isinstance(items, Sized) else None)
    for done, item in enumerate(items):
        progress(done)
        yield item


class _UpdatedLine(std_logging.Filter):
    """The last line of a terminal, which is written over until a log line takes its place.

    It is a filter of the log's handler that lets every record through: so it hears of a record
    before it is written.
    """

    def __init__(self):
        super().__init__()
        self._width = 0  # of the text that stands on the terminal now

    def is_possible(self) -> bool:
        """Whether the log goes to a terminal, and --verbosity lets progress through."""
        stream = logging.get_absl_handler().python_handler.stream
        return logging.level_info() and not stream.closed and stream.isatty()

    def show(self, text: str):
        """Writes a text over the one that stands there; does nothing where no terminal shows the
        log.
        """
        if not self.is_possible():
            return
        logging.get_absl_handler().addFilter(self)  # once: a handler knows its filters
        text = text[: shutil.get_terminal_size().columns - 1]  # a longer one would wrap and stay
        self._write(f"\r{text.ljust(self._width)}")
        self._width = len(text)

    def wipe(self):
        """Leaves the terminal's line empty for what is written next."""
        if self._width:
            self._write(f"\r{' ' * self._width}\r")
            self._width = 0

    def filter(self, record: std_logging.LogRecord) -> bool:
        self.wipe()
        return True

    @staticmethod
    def _write(text: str):
        stream = logging.get_absl_handler().python_handler.stream
        stream.write(text)
        stream.flush()


updated_line = _UpdatedLine()


def clock_time(secs: float) -> str:
    """Returns a duration as hours, minutes and seconds: 00:12:33."""
    minutes, secs = divmod(round(secs), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{secs:02}"
