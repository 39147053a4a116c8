"""Tests that need what is absent are skipped, a file's as one, and fail where it must be there."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.shared import ROOT

TESTS = """
import pytest
from tests.shared import shared

@pytest.mark.needs_shared("data")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_data(number):
    assert (shared("data") / "text").read_text() == "read"

@pytest.mark.needs_program("no-such-program")
def test_program():
    raise AssertionError("the program was asked for")
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with these tests in two files, and room for `shared` beside it."""
    folder = tmp_path / "checkout"
    (folder / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in ("__init__.py", "conftest.py", "shared.py", "processor_time.py"):
        shutil.copy(ROOT / "tests" / name, folder / "tests")
    shutil.copytree(ROOT / "tests" / "forking", folder / "tests" / "forking")
    for name in ("first", "second"):
        (folder / "tests" / f"test_{name}.py").write_text(TESTS)
    return folder


def run(folder, *arguments, **environment) -> list[str]:
    """Lines that pytest prints; none of the variables that this run itself may have been given."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REQUIRE_", "PYTEST_"))
    }
    own["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they take seconds to load, and none is used
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    finished = subprocess.run(
        command, cwd=folder, env=own | environment, capture_output=True, text=True
    )
    return finished.stdout.splitlines()


def test_the_tests_of_a_file_that_lack_the_same_are_one_skip(checkout):
    *_, third, fourth, first, second, last = run(checkout)  # the later file comes first
    wanted = (
        "3 tests need the folder `shared` beside this checkout: ln -s /path/to/shared "
        f"{checkout.parent}/shared"
    )
    assert first == f"SKIPPED [1] tests/test_first.py:5: {wanted}"
    assert (
        second
        == "SKIPPED [1] tests/test_first.py:10: 1 test needs the program no-such-program on the PATH"
    )
    assert (third, fourth) == (first.replace("first", "second"), second.replace("first", "second"))
    assert last.startswith("4 skipped, 4 deselected in ")


def test_what_is_there_is_used_and_what_is_not_chosen_is_not_counted(checkout):
    (checkout.parent / "shared" / "data").mkdir(parents=True)
    (checkout.parent / "shared" / "data" / "text").write_text("read")
    assert run(checkout, "-m", "needs_shared")[-1].startswith("6 passed, 2 deselected in ")


def test_what_must_be_there_and_is_not_is_a_failure(checkout):
    *_, last = lines = run(checkout, REQUIRE_SHARED="1", REQUIRE_PROGRAMS="1")
    assert last.startswith("8 failed in ")
    assert (
        f"Failed: {checkout.parent}/shared/data is absent: a test that reads it bears"
        in "\n".join(lines)
    )
