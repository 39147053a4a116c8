"""Globs are sorted, files get their names when they are complete, and errors name what cannot be
used.
"""

import errno
import hashlib
import os
import pathlib
import threading

import pytest
import tensorflow as tf

from official_bert.io import files, writing
from official_bert.io.errors import InputError


def test_globs_are_sorted_within_the_order_of_the_list(tmp_path):
    for name in ("b2", "b1", "a"):
        (tmp_path / name).touch()
    found = files.expand([f"{tmp_path}/b*", f"{tmp_path}/a"], "input_file")
    assert [pathlib.Path(path).name for path in found] == ["b1", "b2", "a"]
    with pytest.raises(InputError, match=r"--input_file: no file matches '.*/c\*'"):
        files.expand([f"{tmp_path}/a", f"{tmp_path}/c*"], "input_file")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("[^y].txt", "* x"),
        ("\\x.txt", "x"),
        ("\\*.txt", "*"),
        ("*.txt", "* .hidden x y"),
        ("**.txt", "* .hidden x y"),
        (".*.txt", ".hidden"),
    ],
)
def test_a_glob_matches_what_tensorflows_does(tmp_path, pattern, found):
    names = ["*.txt", ".hidden.txt", "x.txt", "y.txt"]
    for name in [*names, ".x.txt.tmp-12", ".lock", ".rec.sharded"]:
        (tmp_path / name).touch()
    expected = [f"{tmp_path}/{name}.txt" for name in found.split()]
    assert files.matching(f"{tmp_path}/{pattern}") == expected
    assert sorted(tf.io.gfile.glob(f"{tmp_path}/{pattern}")) == expected
    assert not set(files.matching(f"{tmp_path}/*")) - {f"{tmp_path}/{name}" for name in names}


@pytest.mark.parametrize("name", ["[a]", "[^a]", "*"])
def test_the_name_of_a_folder_is_no_pattern(tmp_path, name):
    for folder in (name, "a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").touch()
    assert files.matching("*.txt", str(tmp_path / name)) == [str(tmp_path / name / "x.txt")]


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(InputError, match="absent: no such file"):
        files.open_file(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is a folder; name a file"):
        files.open_file(str(tmp_path))
    with pytest.raises(InputError, match="the name contains a zero byte; correct it"):
        files.open_file(str(tmp_path / "a\0b"))


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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, code):
    with pytest.raises(InputError, match=r"result: cannot be written \(.*\); make room") as refusal:
        write_half_and_raise(tmp_path / "result", OSError(code, os.strerror(code)))
    assert os.strerror(code) in str(refusal.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("", "is empty; name a file"), ("absent/a", "absent/a: cannot be written")],
)
def test_a_file_that_cannot_be_written_is_named(tmp_path, name, sentence):
    with (
        pytest.raises(InputError, match=sentence),
        writing.replacing(name and f"{tmp_path}/{name}"),
    ):
        pass


def test_a_bar_stays_in_its_cell_of_a_markdown_table():
    table = writing.markdown_table(["", "F1"], [["a|b", 1.5]], rule="--:")
    assert table.splitlines() == ["|  | F1 |", "| --- | --: |", "| a\\|b | 1.5 |"]


def test_what_this_process_is_writing_is_not_left_by_another(tmp_path):
    """An earlier process may have had its number, as in a container that was started again."""
    own, left = tmp_path / f".b.tmp-{os.getpid()}", tmp_path / f".a.tmp-{os.getpid()}"
    assert writing.temporary_name(str(tmp_path), "b") == str(own)
    own.touch(), left.touch()
    writing.remove_left(str(tmp_path), "*")
    assert list(tmp_path.iterdir()) == [own]


@pytest.mark.parametrize(("mode", "partner"), [("rb", "writing"), ("w", "reading")])
def test_a_pipe_without_another_end_is_not_waited_for_for_ever(
    tmp_path, monkeypatch, mode, partner
):
    monkeypatch.setattr(files, "PIPE_LIMIT_SECS", 0.05)
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    sentence = (
        f"pipe: is a pipe that no process has opened for {partner} in 0.05 seconds; start that "
        "process"
    )
    with pytest.raises(InputError, match=sentence):
        files.open_file(path, mode)
    assert not [
        thread for thread in threading.enumerate() if thread.daemon and "wait" in thread.name
    ]


def test_a_pipe_is_read_however_late_its_writer_writes(tmp_path, monkeypatch):
    """The limit is for the opening: a writer that has opened the pipe may compute before it
    writes.
    """
    monkeypatch.setattr(files, "PIPE_LIMIT_SECS", 5)
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    is_open = threading.Event()

    def write():
        with open(path, "wb") as pipe:
            is_open.wait(30)
            pipe.write("é\n".encode())

    writer = threading.Thread(target=write)
    writer.start()
    with files.open_file(path) as pipe:
        monkeypatch.setattr(files, "PIPE_LIMIT_SECS", 0)
        is_open.set()
        assert pipe.read() == "é\n"
    writer.join()
