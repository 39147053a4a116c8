"""The progress of long jobs, in the log and on a terminal, by a clock that the test turns."""

import io
import logging as std_logging
import os

import pytest
from absl import logging

from official_bert.io import progress


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screen(self) -> list[str]:
        """The lines that a user sees: what follows a carriage return is written over what stands
        there.
        """
        lines = []
        for line in self.getvalue().split("\n"):
            seen = ""
            for text in line.split("\r"):
                seen = text + seen[len(text) :]
            lines.append(seen.rstrip())
        return lines


@pytest.fixture
def terminal(monkeypatch):
    """A terminal to which the log goes."""
    shown, handler, verbosity = Terminal(), logging.get_absl_handler(), logging.get_verbosity()
    monkeypatch.setattr(handler.python_handler, "stream", shown)
    monkeypatch.setattr(handler, "filters", [])
    monkeypatch.setattr(
        progress.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((40, 20))
    )
    logging.set_verbosity(logging.INFO)
    yield shown
    progress.updated_line.wipe()
    logging.set_verbosity(verbosity)


def say(terminal: Terminal, text: str):
    """Logs a line; absl itself writes to another stream before the flags are parsed."""
    record = logging.get_absl_logger().makeRecord(
        "absl", std_logging.INFO, "file.py", 1, text, (), None
    )
    assert logging.get_absl_handler().filter(record)
    terminal.write(text + "\n")


def test_a_line_every_ten_seconds_with_the_speed(clock, terminal, caplog):
    caplog.set_level("INFO", logger="absl")
    report = progress.Progress("lines", is_updated=False)  # as beside a conversation
    for now, done in ((109.0, 9), (110.0, 20), (115.0, 30), (121.0, 42)):
        clock[0] = now
        report(done)
    assert caplog.messages == ["20 lines, 2.0 a second", "42 lines, 2.0 a second"]
    assert "\r" not in terminal.getvalue()


def test_items_are_counted_as_they_are_taken(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    taken = []
    for item in progress.counted(["a", "b", "c"], "letters"):
        taken.append(item)
        clock[0] += 15.0
    assert taken == ["a", "b", "c"]
    assert caplog.messages == ["1 of 3 letters, 00:00:30 left", "2 of 3 letters, 00:00:15 left"]


def test_a_terminal_shows_one_line_that_log_lines_wipe_away(clock, terminal):
    report = progress.Progress("lines", total=100)
    for now, done in ((100.4, 9), (101.0, 10), (102.0, 50)):
        clock[0] = now
        report(done)
    assert terminal.screen() == ["50 of 100 lines, 00:00:02 left"]
    say(terminal, "Saved checkpoint 7")
    clock[0] = 103.0
    report(60)
    first, second = terminal.screen()
    assert first == "Saved checkpoint 7"
    assert second == "60 of 100 lines, 00:00:02 left"
    clock[0] = 104.0
    report(100)  # the end
    assert terminal.screen()[1] == ""


def test_what_an_updated_line_shows(terminal, monkeypatch):
    progress.updated_line.show("a text that is " + "long " * 20)
    assert len(terminal.screen()[0]) <= 39  # one column stays free, or the terminal wraps
    progress.updated_line.show("short")
    assert terminal.screen() == ["short"]
    progress.updated_line.wipe()
    logging.set_verbosity(logging.WARNING)
    shown = terminal.getvalue()
    progress.updated_line.show("5 of 7")
    assert terminal.getvalue() == shown, "nothing below INFO"
    logging.set_verbosity(logging.INFO)
    written = io.StringIO()  # as a file is no terminal
    monkeypatch.setattr(logging.get_absl_handler().python_handler, "stream", written)
    progress.updated_line.show("5 of 7")
    assert written.getvalue() == ""
