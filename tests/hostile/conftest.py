"""The good files of hostile runs: written once, copied for every row."""

import shutil

import pytest

from tests.hostile import rows


@pytest.fixture(scope="session")
def good_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    rows.write_good_files(folder)
    return folder


@pytest.fixture
def folder(good_files, tmp_path):
    """A folder of the test's own with a copy of the good files."""
    return shutil.copytree(good_files, tmp_path, dirs_exist_ok=True)
