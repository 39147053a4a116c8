"""Globs are sorted, files get their names when they are complete, and errors name what cannot be
used.
"""

import errno
import hashlib
import os
import re
import sys
import threading

import pytest
import tensorflow as tf

from official_bert.io import files, writing
from official_bert.io.errors import InputError


def test_globs_are_sorted_within_the_order_of_the_list(tmp_path):
    for name in ("b2", "b1", "a"):
        (tmp_path / name).touch()
    patterns = [f"{tmp_path}/b*", f"{tmp_path}/a"]
    assert files.expand(patterns, "input_file") == [
        f"{tmp_path}/b1",
        f"{tmp_path}/b2",
        f"{tmp_path}/a",
    ]
    patterns = [f"{tmp_path}/a", f"{tmp_path}/c*"]
    with pytest.raises(InputError, match=r"--input_file: no file matches '.*/c\*'"):
        files.expand(patterns, "input_file")


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("[^y].txt", "* x"),
        ("\\x.txt", "x"),
        ("\\*.txt", "*"),
        ("*.txt", "* .hidden x y"),
        ("**.txt", "* .hidden x y"),
        (".*.txt", ".hidden"),
    ],
)
def test_a_glob_matches_what_tensorflows_does(tmp_path, pattern, matches):
    names = ["*.txt", ".hidden.txt", "x.txt", "y.txt"]
    for name in [*names, ".x.txt.tmp-12", ".lock", ".rec.sharded"]:
        (tmp_path / name).touch()
    expected = [f"{tmp_path}/{name}.txt" for name in matches.split()]
    path = f"{tmp_path}/{pattern}"
    assert files.matching(path) == expected
    assert sorted(tf.io.gfile.glob(path)) == expected
    all_paths = {f"{tmp_path}/{name}" for name in names}
    assert all_paths.issuperset(files.matching(f"{tmp_path}/*"))


@pytest.mark.parametrize("name", ["[a]", "[^a]", "*"])
def test_the_name_of_a_folder_is_no_pattern(tmp_path, name):
    for folder in (name, "a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").touch()
    path = f"{tmp_path}/{name}"
    assert files.matching("*.txt", path) == [f"{path}/x.txt"]


def test_what_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(InputError, match="absent: no such file"):
        files.open_file(str(tmp_path / "absent"))
    with pytest.raises(InputError, match="is a folder; name a file"):
        files.open_file(str(tmp_path))
    with pytest.raises(InputError, match="the name contains a zero byte; correct it"):
        files.open_file(str(tmp_path / "a\0b"))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    files.make_folder(f"{tmp_path}/a/b")
    files.make_folder(f"{tmp_path}/a/b")
    (tmp_path / "file").touch()
    for name in ("file", "file/b"):
        with pytest.raises(InputError, match=f"{name}: no folder can be made there"):
            files.make_folder(str(tmp_path / name))


def test_the_digest_is_of_the_whole_content(tmp_path):
    content = b"x" * (1 << 20) + b"y"
    path = tmp_path / "a"
    path.write_bytes(content)
    assert files.sha256(str(path)) == hashlib.sha256(content).hexdigest()


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
    reason = os.strerror(code)
    error = OSError(code, reason)
    message = rf"result: cannot be written \(.*{re.escape(reason)}.*\); make room"
    with pytest.raises(InputError, match=message):
        write_half_and_raise(tmp_path / "result", error)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("", "is empty; name a file", id="no name"),
        pytest.param("absent/a", "absent/a: cannot be written", id="an absent folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(tmp_path, name, sentence):
    path = f"{tmp_path}/{name}" if name else ""
    with pytest.raises(InputError, match=sentence), writing.replacing(path):
        pass


def test_a_bar_stays_in_its_cell_of_a_markdown_table():
    table = writing.markdown_table(["", "F1"], [["a|b", 1.5]], rule="--:")
    assert table.splitlines() == [
        "|  | F1 |",
        "| --- | --: |",
        "| a\\|b | 1.5 |",
    ]


def test_what_this_process_is_writing_is_not_left_by_another(tmp_path):
    """An earlier process may have had its number, as in a container that was started again."""
    own = tmp_path / f".b.tmp-{os.getpid()}"
    left = tmp_path / f".a.tmp-{os.getpid()}"
    assert writing.temporary_name(str(tmp_path), "b") == str(own)
    own.touch()
    left.touch()
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
    daemons = [thread for thread in threading.enumerate() if thread.daemon]
    assert not any("wait" in thread.name for thread in daemons)


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


def test_a_remote_path_without_tensorflow_and_fsspec_is_refused(monkeypatch):
    """As in the environment of Apache Beam, where nothing but fsspec could open it."""
    monkeypatch.setattr(files, "_tensorflow_schemes", frozenset)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match="nothing://: fsspec cannot open such paths"):
        files.exists("nothing://bucket/file")
