"""Files get their names when they are complete, and errors name files that cannot be used."""

import errno
import os
import pathlib

import pytest

from official_bert import files
from official_bert.errors import InputError


def test_lines_end_at_newlines_only_and_broken_bytes_are_left_out(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("a\u2028b\r\n".encode() + b"c\xffd\n\ne")
    for name in (str(path), path):
        assert list(files.read_lines(name)) == ["a\u2028b\r", "cd", "", "e"]


def test_globs_are_sorted_within_the_order_of_the_list(tmp_path):
    for name in ("b2", "b1", "a"):
        (tmp_path / name).touch()
    found = files.expand([f"{tmp_path}/b*", f"{tmp_path}/a"], "input_file")
    assert [pathlib.Path(path).name for path in found] == ["b1", "b2", "a"]
    with pytest.raises(InputError, match=r"--input_file: no file matches '.*/c\*'"):
        files.expand([f"{tmp_path}/a", f"{tmp_path}/c*"], "input_file")


def test_json_is_read_with_and_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "a.json"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + '{"name": "\u00e9", "values": [1, 2.5, null]}'.encode())
        assert files.read_json(str(path)) == {"name": "\u00e9", "values": [1, 2.5, None]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"data": [\n  {]}', "a.json: line 2, column 4: no JSON (Expecting property name"),
        (b"", "a.json: line 1, column 1: no JSON (Expecting value); download or make the file anew"),
        (b'{"data": "\xff"}', "a.json: byte 10 is no utf-8; save the file as UTF-8"),
        (b"[" * 100_000, "a.json: no JSON ("),
        (b'{"data": %s}' % (b"9" * 5000), "a.json: no JSON ("),
    ],
)
def test_an_error_names_the_first_fault_in_a_json_file(tmp_path, data, message):
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as refused:
        files.read_json(str(path))
    assert str(refused.value).startswith(f"{tmp_path}/{message}")


def test_a_json_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.json: no such file"):
        files.read_json(str(tmp_path / "absent.json"))


def write_half_and_raise(path, error):
    with files.replacing(str(path)) as file:
        file.write("half")
        raise error


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "result"
    path.write_text("old")
    with files.replacing(path) as file:
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


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(InputError, match="absent: no such file"):
        files.open_file(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is a folder; name a file"):
        list(files.read_lines(str(tmp_path)))
    for path, sentence in (
        ("", "is empty; give one"),
        (f"{tmp_path}/absent/result", "absent/result: cannot be written"),
    ):
        with pytest.raises(InputError, match=sentence), files.replacing(path):
            pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    files.make_folder(str(tmp_path / "a" / "b"))
    files.make_folder(str(tmp_path / "a" / "b"))
    (tmp_path / "file").touch()
    for name in ("file", "file/b"):
        with pytest.raises(InputError, match=f"{name}: no folder can be made there"):
            files.make_folder(str(tmp_path / name))
