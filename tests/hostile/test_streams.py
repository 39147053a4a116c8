"""Hostile surroundings: full disks, closed streams, missing permissions, sockets."""

import contextlib
import os
import resource
import subprocess
import sys

import pytest

from official_bert.io import writing
from official_bert.io.errors import InputError
from tests.hostile.commands import ROOM, conversion, corpus, predictions
from tests.hostile.rows import check, contents, row, table
from tests.scripts import end_of
from tests.shared import ROOT


@contextlib.contextmanager
def largest_file(num_bytes: int):
    """Lets no file of this process grow above a size, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


TOO_LARGE = "cannot be written (File too large)"
FULL_DISK = [
    row("records", lambda at: corpus(at, "a.tfrecord", "--dupe_factor=50"), f"a.tfrecord: {TOO_LARGE}", ROOM),
    row("gzip", lambda at: corpus(at, "a.tfrecord.gz", "--dupe_factor=300"), f"a.tfrecord.gz: {TOO_LARGE}"),
    row("tf1", lambda at: conversion(at), "bert_model.ckpt", "cannot be written"),
    row(
        "safetensors", lambda at: conversion(at, output_format="huggingface"), "model.safetensors", "cannot be written"
    ),
]


@table(FULL_DISK)
def test_a_full_disk_leaves_nothing(row, folder):
    with largest_file(8192):
        check(row, folder)
    assert not (folder / "there").exists()
    assert [path.name for path in folder.rglob("*.tmp-*")] == []


def test_a_line_is_appended_whole_or_not_at_all(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("half")
    writing.append_line(str(path), "one")
    writing.append_line(str(path), "two")
    assert path.read_text() == "half\none\ntwo\n"
    with largest_file(1024), pytest.raises(InputError, match=rf"runs.jsonl: cannot .* {ROOM}"):
        writing.append_line(str(path), "x" * 2000)
    assert path.read_text() == "half\none\ntwo\n"
    assert contents(tmp_path).keys() == {"runs.jsonl"}


@pytest.mark.parametrize(("stream", "name"), [("stdin", "input"), ("stdout", "output")])
def test_predict_needs_the_streams_that_it_is_told_to_use(folder, monkeypatch, stream, name):
    monkeypatch.setattr(sys, f"__{stream}__", None)
    ended = end_of(*predictions(folder, "-", input_file="-"))
    assert ended.status == 1
    assert f"--{name}_file=-: standard {name} is closed; name a file" in ended.sentence


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a process as another user")
@pytest.mark.parametrize(
    ("mode", "mode_of_text", "sentence"),
    [
        (0o755, 0o644, "a.tfrecord: cannot be written (Permission denied)"),
        (0o777, 0o600, "corpus.txt: cannot be read (Permission denied)"),
    ],
)
def test_folders_without_permission(folder, mode, mode_of_text, sentence):
    (folder / "corpus.txt").chmod(mode_of_text)
    folder.chmod(mode)
    program = (  # what is imported belongs to root, so it comes before the change of the user
        "import os, sys; sys.path.insert(0, os.getcwd()); from official_bert.cli import commands as command_line; "
        "from official_bert.commands import create_pretraining_data; "
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); sys.argv[0] = 'create_pretraining_data.py'; "
        "command_line.run_command('create_pretraining_data')"
    )
    for above in folder.parents:
        if above.is_relative_to(os.environ.get("TMPDIR", "/tmp")) and above.name.startswith(("pytest-", "popen-")):
            above.chmod(0o755)
    command = [sys.executable, "-c", program, *corpus(folder)[1:]]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 1
    assert sentence in finished.stderr
    assert "Traceback" not in finished.stderr
