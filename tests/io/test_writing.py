"""Files get their names when they are complete."""

import errno
import os

import pytest

from official_bert.io import writing
from official_bert.io.errors import InputError


def write_half_and_raise(path, error):
    with writing.replacing(str(path)) as file:
        file.write("half")
        raise error


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with writing.replacing(path) as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(KeyboardInterrupt):
        write_half_and_raise(path, KeyboardInterrupt())
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, code):
    with pytest.raises(InputError, match=r"result: cannot be written \(.*\); make room") as refusal:
        write_half_and_raise(tmp_path / "result", OSError(code, os.strerror(code)))
    assert os.strerror(code) in str(refusal.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "sentence"), [("", "is empty; give one"), ("absent/a", "absent/a: cannot be written")]
)
def test_a_file_that_cannot_be_written_is_named(tmp_path, name, sentence):
    with pytest.raises(InputError, match=sentence), writing.replacing(name and f"{tmp_path}/{name}"):
        pass


def test_a_bar_stays_in_its_cell_of_a_markdown_table():
    table = writing.markdown_table(["", "F1"], [["a|b", 1.5]], rule="--:")
    assert table.splitlines() == ["|  | F1 |", "| --- | --: |", "| a\\|b | 1.5 |"]
