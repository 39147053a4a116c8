"""Scripts wait a minute at most for the other end of a pipe, and refuse a device where they need
a regular file.
"""

import os

from official_bert.io import files
from tests.hostile.commands import (
    classifier,
    corpus,
    embeddings,
    features,
    mining,
    needs_extension,
    vectors,
)
from tests.hostile.rows import check, row, table

NO_WRITER = (
    "pipe: is a pipe that no process has opened for writing in 0.05 seconds; start that process, "
    "or name a file"
)
NO_READER = "pipe: is a pipe that no process has opened for reading in 0.05 seconds"


def measured_vectors(folder, path):
    """The evaluation of a .npy file."""
    needs_extension("embeddings")
    (folder / "vectors.npy").symlink_to(path)
    return ["run_embeddings", *embedding_files(folder), f"--vectors={folder}/vectors.npy"]


def embedding_files(folder):
    return [f"--dev_file={folder}/embedding/dev.tsv", f"--output_dir={folder}/out", "--do_eval"]


PIPES = [
    row("lines to predict", lambda at: vectors(at, input_file="pipe"), NO_WRITER),
    row("lines of an index", lambda at: vectors(at, input_file="pipe", index="new.npz"), NO_WRITER),
    row("an index that is written", lambda at: vectors(at, index="pipe"), NO_READER),
    row("an index", lambda at: vectors(at, search="pipe"), "pipe: is a device or a pipe"),
    row("pairs to mine", lambda at: mining(at, "--data_format=tsv", input_file="pipe"), NO_WRITER),
    row("a corpus to mine", lambda at: mining(at, corpus_file="pipe"), NO_WRITER),
    row(
        "vectors",
        lambda at: measured_vectors(at, "pipe"),
        NO_WRITER.replace("pipe:", "vectors.npy:"),
    ),
    row("a corpus of records", lambda at: corpus(at, input_file="pipe"), NO_WRITER),
    row("lines of features", lambda at: features(at, input_file="pipe"), NO_WRITER),
    row("features", lambda at: features(at, "pipe"), NO_READER),
    row(
        "a training set",
        lambda at: embeddings(at, "--data_format=tsv", train_file="pipe"),
        NO_WRITER,
    ),
    row(
        "a training set of a classifier",
        lambda at: classifier(at, "--do_train", "--data_format=tsv", train_file="pipe"),
        NO_WRITER,
    ),
]
DEVICES = [
    row(
        "an index without end",
        lambda at: vectors(at, search="/dev/zero"),
        "/dev/zero: is a device or a pipe",
    ),
    row(
        "an empty index",
        lambda at: vectors(at, search="/dev/null"),
        "/dev/null: is a device or a pipe",
    ),
    row(
        "vectors without end",
        lambda at: measured_vectors(at, "/dev/zero"),
        "vectors.npy: cannot be read as .npy",
    ),
    row("an index to nothing", lambda at: vectors(at, index="/dev/null")),
]


@table([*PIPES, *DEVICES])
def test_nothing_is_waited_for_for_ever(row, folder, monkeypatch):
    monkeypatch.setattr(files, "PIPE_LIMIT_SECS", 0.05)
    os.mkfifo(folder / "pipe")
    check(row, folder)
