"""Globs are sorted, and errors name files and folders that cannot be used."""

import hashlib
import pathlib

import pytest

from official_bert.io import files
from official_bert.io.errors import InputError


def test_globs_are_sorted_within_the_order_of_the_list(tmp_path):
    for name in ("b2", "b1", "a"):
        (tmp_path / name).touch()
    found = files.expand([f"{tmp_path}/b*", f"{tmp_path}/a"], "input_file")
    assert [pathlib.Path(path).name for path in found] == ["b1", "b2", "a"]
    with pytest.raises(InputError, match=r"--input_file: no file matches '.*/c\*'"):
        files.expand([f"{tmp_path}/a", f"{tmp_path}/c*"], "input_file")


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(InputError, match="absent: no such file"):
        files.open_file(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is a folder; name a file"):
        files.open_file(str(tmp_path))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    files.make_folder(str(tmp_path / "a" / "b"))
    files.make_folder(str(tmp_path / "a" / "b"))
    (tmp_path / "file").touch()
    for name in ("file", "file/b"):
        with pytest.raises(InputError, match=f"{name}: no folder can be made there"):
            files.make_folder(str(tmp_path / name))


def test_the_digest_is_of_the_whole_content(tmp_path):
    content = b"x" * (1 << 20) + b"y"
    (tmp_path / "a").write_bytes(content)
    assert files.sha256(str(tmp_path / "a")) == hashlib.sha256(content).hexdigest()
