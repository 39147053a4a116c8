"""Shows the progress of a long job: a log line every ten seconds, or one line that is updated in
place on a terminal.

Each log line first wipes the updated line away, so that the two never mix.
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
        """Starts the clock.

        Args:
            things: what the items are, in the plural.
            total: the number of items, None if it is unknown.
            is_updated: whether a terminal shows one updated line. Otherwise it shows log lines, for
                example where a person types the items.
        """
        self._things = things
        self._total = total
        self._is_updated = is_updated
        self._start_secs = time.monotonic()
        self._last_secs = self._start_secs

    def __call__(self, done: int, also: str = ""):
        """Shows the progress, unless that happened a moment ago.

        Args:
            done: the number of finished items.
            also: text to add to the line.
        """
        if done == self._total:
            # Later output, for example on standard output, begins on an empty line.
            updated_line.wipe()
        now_secs = time.monotonic()
        is_updated = self._is_updated and updated_line.is_possible()
        pause_secs = _SECS_BETWEEN_UPDATES if is_updated else _SECS_BETWEEN_LINES
        if now_secs - self._last_secs < pause_secs:
            return
        self._last_secs = now_secs
        text = self._describe(done, now_secs - self._start_secs)
        if also:
            text += f", {also}"
        if not is_updated:
            logging.info(text)
        elif done != self._total:
            updated_line.show(text)

    def _describe(self, done: int, secs: float) -> str:
        if self._total is None:
            return f"{done} {self._things}, {done / secs:.1f} a second"
        text = f"{done} of {self._total} {self._things}"
        if done:
            left_secs = secs / done * (self._total - done)
            text += f", {clock_time(left_secs)} left"
        return text


def counted(items: Iterable[T], things: str) -> Iterator[T]:
    """Yields items, and shows how many of them are done.

    Args:
        items: the items; their number is unknown if they have no length.
        things: what the items are, in the plural.
    """
    progress = Progress(things, len(items) if isinstance(items, Sized) else None)
    for done, item in enumerate(items):
        progress(done)
        yield item


class _UpdatedLine(std_logging.Filter):
    """The last line of a terminal, which is overwritten until a log line replaces it.

    It is a filter of the log's handler that passes every record. The handler calls a filter before
    it writes a record.
    """

    def __init__(self):
        super().__init__()
        self._width = 0  # The number of columns of the text that the terminal shows now.

    def is_possible(self) -> bool:
        """Returns whether the log goes to a terminal and --verbosity includes progress."""
        stream = logging.get_absl_handler().python_handler.stream
        return logging.level_info() and not stream.closed and stream.isatty()

    def show(self, text: str):
        """Replaces the line's text; does nothing if the log does not go to a terminal."""
        if not self.is_possible():
            return
        # A handler adds the same filter only once.
        logging.get_absl_handler().addFilter(self)
        # A longer text would wrap, and could not be overwritten.
        text = text[: shutil.get_terminal_size().columns - 1]
        self._write(f"\r{text.ljust(self._width)}")
        self._width = len(text)

    def wipe(self):
        """Empties the terminal's line for other output."""
        if self._width:
            self._write(f"\r{' ' * self._width}\r")
            self._width = 0

    def filter(self, record: std_logging.LogRecord) -> bool:
        """Empties the line before a record is written, and passes the record."""
        self.wipe()
        return True

    @staticmethod
    def _write(text: str) -> None:
        stream = logging.get_absl_handler().python_handler.stream
        stream.write(text)
        stream.flush()


updated_line = _UpdatedLine()


def clock_time(secs: float) -> str:
    """Returns a duration as hours, minutes and seconds: 00:12:33.

    Args:
        secs: the duration in seconds, which is rounded to whole ones.
    """
    minutes, secs = divmod(round(secs), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{secs:02}"
