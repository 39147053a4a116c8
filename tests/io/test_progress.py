"""The progress of long jobs, in the log, on a terminal and in a notebook, by a clock that the test
turns.
"""

import io
import logging as std_logging
import os
import re
import subprocess
import sys
import types

import pytest
from absl import logging

from official_bert.io import progress
from official_bert.io.progress import Progress, Series, Status, updated_line
from tests.shared import ROOT

ERASED = "\x1b[2K"
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def screen(self) -> list[str]:
        """The lines that a user sees: a line that is erased is gone."""
        lines = self.getvalue().split("\n")
        return [COLOUR.sub("", line.split(ERASED)[-1]).strip() for line in lines]


@pytest.fixture
def terminal(monkeypatch):
    """A terminal to which the log goes."""
    shown = Terminal()
    handler = logging.get_absl_handler()
    verbosity = logging.get_verbosity()
    monkeypatch.setattr(handler.python_handler, "stream", shown)
    monkeypatch.setattr(handler, "filters", [])
    monkeypatch.setattr(logging.get_absl_logger(), "filters", [])
    # Tests draw the bar themselves.
    monkeypatch.setattr(updated_line, "_draw_often", lambda: None)
    monkeypatch.setattr(progress, "_num_columns", lambda stream: 60)
    monkeypatch.setenv("TERM", "xterm")
    logging.set_verbosity(logging.INFO)
    yield shown
    updated_line.wipe()
    updated_line._thread = None
    logging.set_verbosity(verbosity)


def log(terminal: Terminal, text: str):
    """Logs a line; absl itself writes to another stream before the flags are parsed."""
    record = logging.get_absl_logger().makeRecord(
        "absl", std_logging.INFO, "file.py", 1, text, (), None
    )
    assert logging.get_absl_handler().filter(record)
    terminal.write(text + "\n")


def report(call: Progress, clock: list[float], calls: list[tuple[float, int]]):
    for now, done in calls:
        clock[0] = now
        call(done)


def test_a_line_every_half_minute_of_work_of_unknown_size(clock, terminal, caplog):
    caplog.set_level("INFO", logger="absl")
    lines = Progress("lines", is_updated=False)  # as beside a conversation
    report(lines, clock, [(100.0, 0), (129.0, 9), (130.0, 60), (155.0, 70), (160.0, 120)])
    assert caplog.messages == [
        "60 lines, 2.0 a second, 00:00:30",
        "120 lines, 2.0 a second, 00:01:00",
    ]
    assert terminal.getvalue() == ""


def test_a_line_every_5_percent_of_the_work(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    report(Progress("steps", 1000), clock, [(100.0 + done / 10, done) for done in range(1001)])
    done = [int(line.split()[0]) for line in caplog.messages]
    assert done == list(range(50, 1001, 50))
    assert caplog.messages[9] == "500 of 1000 steps, 10.0 a second, 00:00:50 left"


def test_a_short_job_writes_few_lines(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    report(Progress("steps", 100), clock, [(100.0 + done / 16, done) for done in range(101)])
    assert [int(line.split()[0]) for line in caplog.messages] == [32, 64, 96]


def test_a_line_of_the_caller_counts(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    steps = Progress("steps", 100)
    for done in range(101):
        clock[0] = 100.0 + 10 * done
        if done % 5 == 0:
            steps.skip_line(done)
        steps(done)
    # 30 seconds after each line of the caller, it is three steps further.
    assert [int(line.split()[0]) for line in caplog.messages] == list(range(3, 100, 5))


def test_the_speed_does_not_count_a_compilation(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    steps = Progress("steps", 10)
    steps(0)
    clock[0] = 200.0
    steps.restart_clock(1)
    clock[0] = 210.0
    steps(6)
    assert caplog.messages == ["6 of 10 steps, 0.5 a second, 00:00:08 left"]


def test_calls_in_quick_succession_look_at_nothing_but_the_clock(clock, monkeypatch):
    looks = []
    monkeypatch.setattr(progress, "_choose_view", lambda is_updated: looks.append(clock[0]))
    items = Progress("items", 1000)
    for done in range(1001):
        clock[0] = 100.0 + done / 1000
        items(done)
    assert looks[-1] == 101.0  # the end
    assert 18 <= len(looks) <= 22


def test_items_are_counted_as_they_are_taken(clock, caplog):
    caplog.set_level("INFO", logger="absl")
    taken = []
    for item in progress.counted(["a", "b", "c"], "letters"):
        taken.append(item)
        clock[0] += 20.0
    assert taken == ["a", "b", "c"]
    assert caplog.messages == [
        "1 of 3 letters, 0.1 a second, 00:00:40 left",
        "2 of 3 letters, 0.1 a second, 00:00:20 left",
        "3 of 3 letters, 0.1 a second, 00:00:00 left",
    ]


def test_a_terminal_shows_a_bar_that_log_lines_wipe_away(clock, terminal):
    lines = Progress("lines", total=100)
    report(lines, clock, [(100.0, 0), (102.0, 50)])
    updated_line.draw()
    (bar,) = terminal.screen()
    assert bar.endswith(" 50 of 100 lines, 25.0 a second, 00:00:02 left")
    assert 10 <= bar.count("━") + bar.count("╸") + bar.count("╺") <= 40
    assert len(bar) <= 59  # one column stays free, or the terminal wraps
    clock[0] = 103.0  # the time goes on without a call
    updated_line.draw()
    assert terminal.screen()[0].endswith("00:00:01 left")

    log(terminal, "Saved checkpoint 7")
    updated_line.draw()  # no bar, before the next call: the job may be over
    assert terminal.screen() == ["Saved checkpoint 7", ""]
    lines(60, "loss 0.5")
    updated_line.draw()
    assert terminal.screen()[1].endswith("60 of 100 lines, 20.0 a second, loss 0.5, 00:00:02 left")
    lines(100)  # the end
    assert terminal.screen()[1] == ""

    unknown = Progress("lines")
    unknown(7)
    updated_line.draw()
    assert terminal.screen()[1].startswith("7 lines")
    unknown.end()
    updated_line.draw()
    assert terminal.screen()[1] == ""


def test_a_narrow_terminal_shows_the_beginning_of_the_text(terminal, monkeypatch):
    monkeypatch.setattr(progress, "_num_columns", lambda stream: 20)
    updated_line.show(Status("a text that is " + "long " * 20, 0.5, 0.0, None))
    updated_line.draw()
    assert terminal.screen() == ["a text that is long"]


@pytest.mark.parametrize("reason", ["verbosity", "file", "dumb terminal"])
def test_where_no_bar_is_shown(terminal, monkeypatch, reason):
    if reason == "verbosity":
        logging.set_verbosity(logging.WARNING)
    elif reason == "file":
        written = io.StringIO()
        monkeypatch.setattr(logging.get_absl_handler().python_handler, "stream", written)
    else:
        monkeypatch.setenv("TERM", "dumb")
    Progress("lines", total=100)(7)
    updated_line.draw()
    assert terminal.getvalue() == ""


def test_the_runs_of_a_search_share_one_bar(clock, terminal):
    """It continues a search, whose first run was made before: the time left is that of three."""
    runs = Series("run", 4)
    for number in (2, 3):
        with runs.job(number):
            steps = Progress("steps", 10, shows_speed=False, is_main=True)
            report(steps, clock, [(clock[0], 0), (clock[0] + 10.0, 5)])
            Progress("examples", 2, shows_speed=False)(1)  # an evaluation during the training
            updated_line.draw()
            bar = terminal.screen()[-1]
            clock[0] += 10.0
    assert bar.endswith("run 3 of 4: 1 of 2 examples, 00:00:30 left")
    assert terminal.screen() == [""]
    steps(7)
    updated_line.draw()
    assert "run" not in terminal.screen()[0]


def test_python_shows_progress_only_where_it_is_told_to(clock, capsys):
    calls = [(100.0, 0), (140.0, 5)]
    assert not progress.is_logged()
    report(Progress("steps", 10), clock, calls)
    clock[0] = 100.0
    with progress.shown_in_python(True):
        report(Progress("steps", 10), clock, calls)
    assert capsys.readouterr().err == "5 of 10 steps, 0.1 a second, 00:00:40 left\n"
    with progress.shown_in_python(False):
        verbosity = logging.get_verbosity()
        logging.set_verbosity(logging.INFO)
        clock[0] = 100.0
        report(Progress("steps", 10), clock, calls)
        logging.set_verbosity(verbosity)
    assert capsys.readouterr().err == ""


def test_a_notebook_shows_html_in_one_output_for_each_cell(clock, monkeypatch):
    outputs = []

    class Output:
        def __init__(self, content):
            self.contents = [content]

        def update(self, content):
            self.contents.append(content)

    def display(content, display_id):
        assert display_id
        outputs.append(Output(content))
        return outputs[-1]

    shell = types.SimpleNamespace(kernel=object(), execution_count=1)
    ipython = types.SimpleNamespace(get_ipython=lambda: shell)
    shown = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    with progress.shown_in_python(True):
        report(Progress("steps", 4), clock, [(100.0, 0), (100.1, 1), (101.0, 2), (101.1, 4)])
        shell.execution_count = 2
        report(Progress("<b>", 4), clock, [(102.0, 1)])
    first, second = (output.contents for output in outputs)
    assert [re.search('value="([^"]*)"', text).group(1) for text in first] == [
        "0.0000",
        "0.5000",
        "1.0000",
    ]
    assert "2 of 4 steps, 2.0 a second, 00:00:01 left</div>" in first[1]
    assert "1 of 4 &lt;b&gt;" in second[0]


# Draws a bar for two seconds, without a call of the job in between, and forks meanwhile.
JOB = """
import os, sys, time
from absl import flags, logging
from official_bert.io.progress import Progress
flags.FLAGS(sys.argv[:1])
logging.use_absl_handler()
logging.set_verbosity(logging.INFO)
job = Progress("steps", 10)
job(1)
time.sleep(0.2)
job(2)
time.sleep(1.5)
if os.fork() == 0:
    logging.info("the child")
    os._exit(0)
os.wait()
logging.info("a line")
job(3)
time.sleep(1.2)
"""


def test_a_thread_draws_the_bar_at_least_every_second():
    test_end, job_end = os.openpty()
    # Python 3.12 warns of forks beside threads, which this job makes on purpose.
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore::DeprecationWarning",
        "TERM": "xterm",
    }
    command = [sys.executable, "-c", JOB]
    output = b""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=job_end):
        os.close(job_end)
        try:
            while chunk := os.read(test_end, 1000):
                output += chunk
        except OSError:  # the terminal raises it when its other end is closed
            pass
    os.close(test_end)
    lines = output.decode().split("\r\n")
    assert [line.split("] ")[-1] for line in lines[:-1]] == ["the child", "a line"]
    assert lines[0].count("2 of 10 steps") >= 2
    assert lines[2].count("3 of 10 steps") >= 2
    assert lines[2].endswith(ERASED)  # the end of Python wipes the bar away
