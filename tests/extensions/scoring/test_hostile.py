"""Hostile runs of scores: flags that do not go together, pipes and devices in place of files."""

import os

from tests.hostile.commands import vectors
from tests.hostile.rows import check, row, table


def minimal_pairs(folder, input_file):
    return ["evaluate_minimal_pairs", f"--model={folder}", f"--input_file={input_file}"]


FLAGS = [
    row(
        "a pooling of scores",
        lambda at: vectors(at, "--score=pll", "--pooling=none"),
        "--pooling: does not go with --score",
    ),
]
DEVICES = [
    row("minimal pairs", lambda at: minimal_pairs(at, at / "pipe"), "pipe: is a device or a pipe"),
    row(
        "pairs without end",
        lambda at: minimal_pairs(at, "/dev/zero"),
        "/dev/zero: is a device or a pipe",
    ),
]


@table(FLAGS)
def test_flags_are_refused(row, folder):
    check(row, folder)


@table(DEVICES)
def test_nothing_is_waited_for_for_ever(row, folder):
    os.mkfifo(folder / "pipe")
    check(row, folder)
