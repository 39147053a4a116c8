"""Measures the processor seconds of each test, and names the tests that take too long.

A test's time is that of this process, of the processes that it starts and of those that the fork
server forks for it. What several tests share, fixtures and folders, has a time of its own.
tests/durations.json contains the times of the last measurement (`make test-durations`, on a quiet
machine), and a reason for each test that may take more than LIMIT_SECS; a test of
test_processor_time.py checks that. In an ordinary run others may use the processor, so slow tests
are only listed in the summary.
"""

import collections
import contextlib
import json
import os
import pathlib
import platform
import sys
from collections.abc import Iterator
from datetime import date

import pytest

from tests import forking
from tests.shared import AS_SHIPPED

FILE = pathlib.Path(__file__).with_name("durations.json")
LIMIT_SECS = 8.0
SMALLEST_SECS = 0.1  # a shorter test is not in the file
NUM_SLOWEST = 40
MEASURED = "processor_secs"  # a property of test reports


def used_secs() -> float:
    """Returns the processor seconds of this process, of its children and of the fork server's
    children so far.
    """
    times = os.times()
    children_secs = times.children_user + times.children_system
    return times.user + times.system + children_secs + forking.children_secs()


def read_file() -> dict:
    """Returns the content of tests/durations.json: reasons, tests, fixtures and more."""
    return json.loads(FILE.read_text()) if FILE.exists() else {"reasons": {}}


# What was made for several tests during the current one, with its seconds.
_shared: list[tuple[str, float]] = []


@contextlib.contextmanager
def shared_time(name: str) -> Iterator[None]:
    """Measures what a block makes for several tests, apart from the time of the test that needs
    it first.
    """
    start_secs, num_before = used_secs(), len(_shared)
    try:
        yield
    finally:
        within_secs = sum(secs for _, secs in _shared[num_before:])
        _shared.append((name, used_secs() - start_secs - within_secs))


class Stopwatch:
    """A pytest plugin for the processes that run tests."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._reasons = read_file()["reasons"]
        self._start_secs = 0.0
        self._imports_tensorflow = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef, request):
        if fixturedef.scope == "function":
            return (yield)
        with shared_time(f"{request.node.nodeid or 'tests'}::{fixturedef.argname}"):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self):
        self._start_secs = used_secs()
        self._imports_tensorflow = "tensorflow" not in sys.modules
        _shared.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if call.when != "teardown":
            return report
        secs = used_secs() - self._start_secs - sum(secs for _, secs in _shared)
        too_long = secs > LIMIT_SECS and not self._may_be_slow(item)
        measured = {"secs": secs, "fixtures": list(_shared), "too_long": too_long}
        report.user_properties.append((MEASURED, measured))
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        """Ends the fork server, so that its time counts, and hands on the time of this process
        and its children.
        """
        forking.end_server()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[MEASURED] = used_secs()

    def _may_be_slow(self, item: pytest.Item) -> bool:
        """Returns whether a test may take more than the limit: it is long, has a reason, or is
        the first that needs TensorFlow.
        """
        if AS_SHIPPED:  # these settings save no time
            return True
        if item.get_closest_marker("long"):
            return True
        if self._imports_tensorflow and "tensorflow" in sys.modules:
            return True
        return bool({item.nodeid, item.nodeid.partition("[")[0]} & self._reasons.keys())


class Times:
    """A pytest plugin for the process that reports: prints the times, and writes them to the
    file on demand.
    """

    def __init__(self, config: pytest.Config):
        self._writes = config.getoption("write_durations")
        self._prints = config.getoption("processor_times")
        self._tests: dict[str, float] = {}
        self._fixtures: dict[str, float] = collections.defaultdict(float)
        self._workers_secs = 0.0
        self._too_long: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        self._workers_secs += getattr(node, "workeroutput", {}).get(MEASURED, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport):
        if report.when != "teardown":
            return
        for name, measured in report.user_properties:
            if name == MEASURED:
                self._tests[report.nodeid] = measured["secs"]
                if measured["too_long"]:
                    self._too_long.append(report.nodeid)
                for fixture, secs in measured["fixtures"]:
                    self._fixtures[fixture] += secs

    def pytest_terminal_summary(self, terminalreporter):
        if self._too_long:
            terminalreporter.section(f"more than {LIMIT_SECS:g} processor seconds")
            for name in self._too_long:
                terminalreporter.line(f"{self._tests[name]:7.1f}  {name}")
            terminalreporter.line(
                "If they take as long on a quiet machine, make them quicker, mark them long, or "
                f"give a reason in tests/{FILE.name}."
            )
        if self._prints:
            terminalreporter.section("processor seconds")
            for line in self._lines():
                terminalreporter.line(line)
        if self._writes:
            self._write()

    def _lines(self) -> Iterator[str]:
        all_secs = self._tests | self._fixtures
        slowest = sorted(all_secs.items(), key=lambda pair: -pair[1])
        for name, secs in slowest[:NUM_SLOWEST]:
            if secs >= SMALLEST_SECS:
                yield f"{secs:7.1f}  {name}"
        yield ""
        for folder, secs in self._folders().items():
            yield f"{secs:7.1f}  {folder}"
        total_secs = self._total_secs()
        other_secs = total_secs - sum(all_secs.values())
        yield f"{other_secs:7.1f}  imports and collection"
        yield f"{total_secs:7.1f}  together"

    def _total_secs(self) -> float:
        """Returns the seconds of this process and of all that ran tests: workers, or children."""
        if not self._workers_secs:
            return used_secs()
        times = os.times()
        return self._workers_secs + (times.user + times.system)

    def _folders(self) -> dict[str, float]:
        """Returns the seconds of the tests and fixtures of each folder; those of files in tests
        are under `tests`.
        """
        folders = collections.Counter()
        all_secs = self._tests | self._fixtures
        for name, secs in all_secs.items():
            file, _, _ = name.partition("::")
            parts = pathlib.PurePath(file).parts
            depth = 2 if len(parts) > 2 else 1
            folder = "/".join(parts[:depth])
            folders[folder] += secs
        return dict(folders.most_common())

    def _write(self):
        content = {
            "about": f"Processor seconds by test, written by `make test-durations`, from {SMALLEST_SECS} s on. "
            f"A test above {LIMIT_SECS:g} s needs a reason, under its name with or without its "
            "parameters.",
            "date": date.today().isoformat(),
            "processor": processor_name(),
            "reasons": read_file()["reasons"],
            "folders": rounded(self._folders()),
            "fixtures": rounded(self._fixtures),
            "tests": rounded(self._tests),
        }
        FILE.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def rounded(secs: dict[str, float]) -> dict[str, float]:
    large = {name: value for name, value in secs.items() if value >= SMALLEST_SECS}
    return {name: round(value, 1) for name, value in sorted(large.items())}


def processor_name() -> str:
    names = []
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        field, _, value = line.partition(": ")
        if field.startswith("model name"):
            names.append(value)
    if not names:
        return platform.processor()
    return f"{len(names)} x {names[0]}"


def add_options(parser: pytest.Parser):
    group = parser.getgroup("processor seconds")
    group.addoption(
        "--processor-times",
        action="store_true",
        help="print the slowest tests and the sum of each folder",
    )
    group.addoption(
        "--write-durations",
        action="store_true",
        help="write the times of all tests to durations.json",
    )


def register(config: pytest.Config):
    """Registers the plugins; with pytest-xdist the tests run in workers, and the controller
    reports.
    """
    config.pluginmanager.register(Stopwatch(config))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(config))
