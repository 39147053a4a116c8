"""Shows the progress of long jobs.

- On a terminal, a bar is the last line, below the log lines. A thread draws it again twice a
  second.
- In a notebook, the bar is HTML.
- Elsewhere, a line is written at every 5 % of the work, and at least every 30 seconds.

A log line first wipes the bar away, so that the two never mix. Only this module imports rich, and
only for a terminal.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import html
import importlib
import logging as std_logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Any, NamedTuple, TextIO, TypeVar

from absl import logging

from official_bert.io import operating_system

T = TypeVar("T")

MAX_SECS_BETWEEN_LINES = 30.0
_MIN_SECS_BETWEEN_LINES = 2.0
NUM_LINES = 20  # a line at every 5 % of the work
_SECS_BETWEEN_DRAWINGS = 0.5
_SECS_BETWEEN_CHECKS = 0.05  # the calls in between cost nothing
_BAR_WIDTHS = (10, 40)
_ERASE_LINE = "\r\x1b[2K"


class View(enum.Enum):
    """Where progress is shown."""

    NOWHERE = 0
    LINES = 1
    TERMINAL = 2
    NOTEBOOK = 3


class Status(NamedTuple):
    """What a bar shows.

    Attributes:
        text: what is done.
        share: the finished share of the work, 0 to 1; None if it is unknown.
        start_secs: when the job began, on the clock of `time.monotonic`.
        end_secs: when it is expected to end; None if that is unknown.
    """

    text: str
    share: float | None
    start_secs: float
    end_secs: float | None

    def describe(self) -> str:
        """Returns the text and the time that is left, or else the time since the start."""
        now_secs = time.monotonic()
        if self.end_secs is None:
            return f"{self.text}, {clock_time(now_secs - self.start_secs)}"
        return f"{self.text}, {clock_time(max(0.0, self.end_secs - now_secs))} left"


class Progress:
    """Shows the progress of a job. Call it with the number of finished items."""

    def __init__(
        self,
        things: str,
        total: int | None = None,
        is_updated: bool = True,
        shows_speed: bool = True,
        is_main: bool = False,
    ):
        """Starts the clock.

        Args:
            things: what the items are, in the plural.
            total: the number of items, None if it is unknown.
            is_updated: whether a terminal shows a bar. Otherwise it shows lines, for example where
                a person types the items.
            shows_speed: whether the number of items a second is shown.
            is_main: whether the job is most of the work of a job of a `Series`.
        """
        self.total = total
        self._things = things
        self._is_updated = is_updated
        self._shows_speed = shows_speed
        self._is_main = is_main
        self._start_secs = time.monotonic()
        self._line_secs = self._start_secs
        self._line_number = 0
        self._check_secs = self._start_secs
        # The first call, from which the speed is computed: what precedes it includes preparations,
        # such as a compilation.
        self._first_call: tuple[int, float] | None = None

    def __call__(self, done: int, also: str = ""):
        """Shows the progress. A call costs little: most calls draw and write nothing.

        Args:
            done: the number of finished items.
            also: text to add.
        """
        now_secs = time.monotonic()
        if self._first_call is None:
            self._first_call = (done, now_secs)
            self._line_number = self._number_at(done)
        elif now_secs - self._check_secs < _SECS_BETWEEN_CHECKS and done != self.total:
            return
        self._check_secs = now_secs
        view = _choose_view(self._is_updated)
        if view is View.LINES and self._is_line_due(done, now_secs):
            _write_line(self._status(done, also, now_secs).describe())
            self.skip_line(done)
        elif view in (View.TERMINAL, View.NOTEBOOK):
            updated_line.show(self._status(done, also, now_secs), view)
        if done == self.total:
            self.end()

    def end(self) -> None:
        """Removes the bar, so that later output, for example on standard output, begins on an
        empty line.

        A job whose total is known ends by itself.
        """
        updated_line.wipe()

    def skip_line(self, done: int) -> None:
        """Counts a line as written, because another log line shows the same.

        Args:
            done: the number of finished items.
        """
        self._line_secs = time.monotonic()
        self._line_number = self._number_at(done)

    def restart_clock(self, done: int) -> None:
        """Computes the speed from now on, for example after a compilation.

        Args:
            done: the number of finished items.
        """
        self._first_call = (done, time.monotonic())

    def _number_at(self, done: int) -> int:
        """Returns how many of the 20 parts of the work are done."""
        return done * NUM_LINES // self.total if self.total else 0

    def _is_line_due(self, done: int, now_secs: float) -> bool:
        past_secs = now_secs - self._line_secs
        is_new_part = self._number_at(done) > self._line_number
        return past_secs >= MAX_SECS_BETWEEN_LINES or (
            is_new_part and past_secs >= _MIN_SECS_BETWEEN_LINES
        )

    def _status(self, done: int, also: str, now_secs: float) -> Status:
        assert self._first_call is not None  # the caller sets it
        first_done, first_secs = self._first_call
        num_timed = done - first_done
        speed = num_timed / (now_secs - first_secs) if now_secs > first_secs else 0.0
        texts = [f"{done} {self._things}"]
        share = end_secs = None
        if self.total is not None:
            texts = [f"{done} of {self.total} {self._things}"]
            share = done / self.total if self.total else 1.0
            end_secs = now_secs + (self.total - done) / speed if speed else None
        if speed and self._shows_speed:
            texts.append(f"{speed:.1f} a second")
        if also:
            texts.append(also)
        status = Status(", ".join(texts), share, self._start_secs, end_secs)
        return _series.add_to(status, self._is_main) if _series else status


class Series:
    """A series of similar jobs, such as the runs of a search, which share one bar."""

    def __init__(self, name: str, total: int):
        """Starts the clock.

        Args:
            name: what each job is, in the singular.
            total: the number of jobs.
        """
        self._name = name
        self._total = total
        self._number = 0
        self._share = 0.0  # the finished share of the current job
        self._first_share: float | None = None
        self._start_secs = time.monotonic()

    @contextlib.contextmanager
    def job(self, number: int) -> Iterator[None]:
        """A context in which one of the jobs runs.

        Args:
            number: the number of the job, counted from 1.
        """
        global _series
        self._number = number
        self._share = 0.0
        if self._first_share is None:
            # A series may continue an earlier one.
            self._first_share = (number - 1) / self._total
        _series = self
        try:
            yield
        finally:
            _series = None
            updated_line.wipe()

    def add_to(self, status: Status, is_main: bool) -> Status:
        """Returns a status of the whole series.

        Args:
            status: the status of a part of the current job.
            is_main: whether this part is most of the job's work, so that its share counts.
        """
        assert self._first_share is not None  # a job runs
        if is_main and status.share is not None:
            self._share = status.share
        share = (self._number - 1 + self._share) / self._total
        end_secs = None
        if share > self._first_share:
            past_secs = time.monotonic() - self._start_secs
            total_secs = past_secs * (1.0 - self._first_share) / (share - self._first_share)
            end_secs = self._start_secs + total_secs
        text = f"{self._name} {self._number} of {self._total}: {status.text}"
        return Status(text, share, self._start_secs, end_secs)


_series: Series | None = None
# Whether a Python program shows progress, which has no log of this package; None for a script.
_python_shows: bool | None = None


def counted(items: Iterable[T], things: str) -> Iterator[T]:
    """Yields items, and shows how many of them are done.

    Args:
        items: the items; their number is unknown if they have no length.
        things: what the items are, in the plural.
    """
    progress = Progress(things, len(items) if isinstance(items, Sized) else None)
    num_done = 0
    progress(num_done)
    for item in items:
        yield item
        num_done += 1
        progress(num_done)
    progress.end()


@contextlib.contextmanager
def shown_in_python(is_shown: bool | None) -> Iterator[None]:
    """A context in which a Python program shows progress or shows none, whatever it logs.

    Args:
        is_shown: whether progress is shown; None changes nothing.
    """
    global _python_shows
    before = _python_shows
    _python_shows = before if is_shown is None else is_shown
    try:
        yield
    finally:
        updated_line.wipe()
        _python_shows = before


def is_python_call() -> bool:
    """Returns whether a Python program called a function that shows progress, as a user does."""
    return _python_shows is not None


def is_logged() -> bool:
    """Returns whether the log has lines about progress."""
    return logging.get_absl_logger().isEnabledFor(std_logging.INFO)


def is_on_terminal() -> bool:
    """Returns whether a person reads the log on a terminal."""
    return _choose_view(is_updated=True) is View.TERMINAL


def _choose_view(is_updated: bool) -> View:
    """Returns where progress is shown now."""
    is_shown = is_logged() if _python_shows is None else _python_shows
    if not is_shown:
        return View.NOWHERE
    if not is_updated:
        return View.LINES
    if _notebook_shell() is not None:
        return View.NOTEBOOK
    stream = _stream()
    is_terminal = not stream.closed and stream.isatty() and os.environ.get("TERM") != "dumb"
    return View.TERMINAL if is_terminal else View.LINES


def _stream() -> TextIO:
    """Returns the stream of the log, or of Python's messages without a log of this package."""
    if _python_shows:
        return sys.stderr
    return logging.get_absl_handler().python_handler.stream


def _notebook_shell() -> Any:
    """Returns the shell of the notebook in which this process runs, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None


def show_result(text: str) -> None:
    """Shows the result of a job in a Python program that shows progress.

    Args:
        text: the result.
    """
    if _python_shows and not is_logged():
        updated_line.wipe()
        _write_line(text)


def _write_line(text: str) -> None:
    if is_logged():
        logging.info("%s", text)
    else:
        print(text, file=sys.stderr, flush=True)


class _UpdatedLine(std_logging.Filter):
    """The bar: the last line of a terminal, or the output of a notebook's cell.

    It is a filter of the log that passes every record. The log calls a filter before it writes a
    record.
    """

    def __init__(self):
        super().__init__()
        self._lock = threading.RLock()
        self._status: Status | None = None
        self._is_drawn = False
        self._thread: threading.Thread | None = None
        self._cell: tuple[int, Any] | None = None
        self._cell_secs = 0.0
        self._console: Any = None

    def show(self, status: Status, view: View = View.TERMINAL) -> None:
        """Shows a status: in a notebook now, and on a terminal within half a second.

        Args:
            status: what the bar shows.
            view: the terminal or the notebook.
        """
        if view is View.NOTEBOOK:
            self._update_cell(status)
            return
        with self._lock:
            self._status = status
            if self._thread is None:
                # Each adds the same filter only once.
                logging.get_absl_handler().addFilter(self)
                logging.get_absl_logger().addFilter(self)
                self._thread = threading.Thread(target=self._draw_often, daemon=True)
                self._thread.start()

    def draw(self) -> None:
        """Draws the bar, if there is one."""
        with self._lock:
            if self._status is not None:
                self._write(_ERASE_LINE + self._render(self._status))
                self._is_drawn = True

    def wipe(self) -> None:
        """Empties the terminal's line for other output, and draws no bar until the next status."""
        with self._lock:
            self._status = None
            if self._is_drawn:
                self._write(_ERASE_LINE)
                self._is_drawn = False

    def filter(self, record: std_logging.LogRecord) -> bool:
        """Empties the line before a record is written, and passes the record."""
        self.wipe()
        return True

    def _draw_often(self):
        """Draws the bar until it is wiped: the work of a thread."""
        while True:
            time.sleep(_SECS_BETWEEN_DRAWINGS)
            with self._lock:
                if self._status is None:
                    self._thread = None
                    return
                self.draw()

    def _render(self, status: Status) -> str:
        """Returns the bar and its text with the codes of their colours."""
        from rich.console import Console
        from rich.progress_bar import ProgressBar

        stream = _stream()
        if self._console is None or self._console.file is not stream:
            self._console = Console(file=stream, force_terminal=True)
        # A longer text would wrap, and could not be overwritten.
        num_columns = _num_columns(stream) - 1
        text = status.describe()
        narrowest, widest = _BAR_WIDTHS
        width = min(widest, num_columns - len(text) - 1)
        if status.share is None or width < narrowest:
            return text[:num_columns]
        bar = ProgressBar(total=1.0, completed=status.share, width=width)
        with self._console.capture() as capture:
            self._console.print(bar, end="")
        return f"{capture.get()} {text}"

    def _write(self, text: str) -> None:
        stream = _stream()
        if not stream.closed:
            stream.write(text)
            stream.flush()

    def _update_cell(self, status: Status):
        """Shows a status in the output of the notebook's cell, one for all jobs of the cell."""
        ipython = importlib.import_module("IPython.display")  # a notebook has loaded it

        now_secs = time.monotonic()
        is_over = status.share == 1.0
        if not is_over and now_secs - self._cell_secs < _SECS_BETWEEN_DRAWINGS:
            return
        self._cell_secs = now_secs
        cell_number = _notebook_shell().execution_count
        content = ipython.HTML(_render_html(status))
        if self._cell is not None and self._cell[0] == cell_number:
            self._cell[1].update(content)
        else:
            self._cell = (cell_number, ipython.display(content, display_id=True))

    def hold_at_fork(self) -> None:
        """Keeps the thread from drawing while this process forks."""
        self._lock.acquire()

    def release_after_fork(self) -> None:
        """Lets the thread of the parent process draw again."""
        self._lock.release()

    def forget_after_fork(self) -> None:
        """Removes the bar from a child process, which has no such thread.

        A log line of the child still wipes away what the parent has drawn.
        """
        self._lock = threading.RLock()
        self._status = None
        self._thread = None


def _render_html(status: Status) -> str:
    bar = ""
    if status.share is not None:
        bar = f'<progress max="1" value="{status.share:.4f}" style="width: 20em"></progress> '
    return f"<div>{bar}{html.escape(status.describe())}</div>"


def _num_columns(stream: TextIO) -> int:
    """Returns the width of a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:  # something that says it is a terminal
        return 80


updated_line = _UpdatedLine()
atexit.register(updated_line.wipe)  # a thread that writes while Python exits would abort it
operating_system.call_at_fork(
    before=updated_line.hold_at_fork,
    after_in_parent=updated_line.release_after_fork,
    after_in_child=updated_line.forget_after_fork,
)


def clock_time(secs: float) -> str:
    """Returns a duration as hours, minutes and seconds: 00:12:33.

    Args:
        secs: the duration in seconds, which is rounded to whole ones.
    """
    minutes, secs = divmod(round(secs), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{secs:02}"
