"""A test that takes too much processor time is named, whether it or one of its processes takes it;
the times are printed and written.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.shared import ROOT

TESTS = """
import subprocess, sys, time
import pytest

BUSY = "import time\\nwhile time.process_time() < 0.2: pass"

def be_busy():
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass

def test_quick():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_busy(number):
    be_busy()

def test_of_a_process():
    subprocess.run([sys.executable, "-c", BUSY], check=True)

@pytest.mark.long
def test_long():
    be_busy()

@pytest.fixture(scope="module")
def shared():
    be_busy()

def test_that_uses_a_fixture(shared):
    pass
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with these tests and a limit of 0.15 s."""
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name in ("__init__.py", "conftest.py", "shared.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    shutil.copytree(ROOT / "tests" / "forking", tests / "forking")
    source = (ROOT / "tests" / "processor_time.py").read_text()
    assert "LIMIT_SECS = 8.0" in source
    (tests / "processor_time.py").write_text(
        source.replace("LIMIT_SECS = 8.0", "LIMIT_SECS = 0.15")
    )
    (tests / "test_times.py").write_text(TESTS)
    write_times(tests)
    return tmp_path


def write_times(folder, reasons: tuple[str, ...] = ()):
    content = {"reasons": {f"tests/test_times.py::{name}": "because" for name in reasons}}
    (folder / "durations.json").write_text(json.dumps(content))


def run(folder, *arguments) -> str:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "AS_SHIPPED"))
    }
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take seconds to load
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
    finished = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    return finished.stdout


def slow_tests(output: str) -> list[str]:
    """The tests that are named between the title of the section and its advice."""
    _, _, section = output.partition("more than 0.15 processor seconds =")
    names, advice, _ = section.partition("If they take as long on a quiet machine")
    assert bool(section) == bool(advice)
    return re.findall(r"^ +\d\.\d  tests/test_times.py::(\S+)$", names, re.MULTILINE)


def test_a_test_above_the_limit_is_named_unless_it_is_long_or_has_a_reason(checkout):
    output = run(checkout)
    assert slow_tests(output) == ["test_busy[1]", "test_busy[2]", "test_of_a_process"]
    assert "6 passed in " in output
    write_times(checkout / "tests", reasons=("test_busy[1]", "test_of_a_process"))
    assert slow_tests(run(checkout)) == ["test_busy[2]"]
    write_times(checkout / "tests", reasons=("test_busy", "test_of_a_process"))
    assert "processor seconds" not in run(checkout)


def test_times_are_printed_and_written_and_reasons_stay(checkout):
    write_times(checkout / "tests", reasons=("test_busy",))
    output = run(checkout, "--processor-times", "--write-durations")
    written = json.loads((checkout / "tests" / "durations.json").read_text())
    names = ["test_busy[1]", "test_busy[2]", "test_long", "test_of_a_process"]
    assert list(written["tests"]) == [f"tests/test_times.py::{name}" for name in names]
    assert list(written["fixtures"]) == ["tests/test_times.py::shared"]
    assert all(
        0.2 <= secs < 3 for secs in (*written["tests"].values(), *written["fixtures"].values())
    )
    assert written["folders"] == {
        "tests": pytest.approx(sum(written["tests"].values()) + 0.2, abs=0.3)
    }
    assert written["reasons"] == {"tests/test_times.py::test_busy": "because"}
    _, _, times = output.partition("= processor seconds =")
    shown = re.findall(r"^ +(\d+\.\d)  (\S+)$", times, re.MULTILINE)
    assert {name.rpartition("::")[2] for _, name in shown} == {
        *names,
        "shared",
        "tests",
        "together",
    }
    assert float(dict(map(reversed, shown))["together"]) > 1.0


def test_every_reason_is_that_of_a_test():
    content = json.loads((ROOT / "tests" / "durations.json").read_text())
    for name, reason in content["reasons"].items():
        path, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), name
        assert reason
    above = {name for name, secs in content["tests"].items() if secs > 8}
    assert {name.partition("[")[0] for name in above} <= content["reasons"].keys()
