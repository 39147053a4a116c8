"""The good files of hostile runs: written once, copied for every row."""

import signal

import pytest

from tests.hostile import rows


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_arrives():
    """A shell starts background jobs, such as a whole test run, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def good_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    rows.write_good_files(folder)
    return folder


@pytest.fixture
def folder(good_files, tmp_path):
    """A folder of the test's own with a copy of the good files."""
    rows.copy_good_files(good_files, tmp_path)
    return tmp_path
