"""Damaged records: a run names the file and the record."""

import gzip
from typing import NamedTuple

import numpy as np
import pytest

from official_bert.data.records.framing import encode_examples, frame
from official_bert.data.records.pretraining_input import (
    explaining_input_errors,
    pretraining_limits,
    training_dataset,
)
from official_bert.features import pretraining_features
from official_bert.io.errors import InputError
from tests.data.records import test_manifests
from tests.hostile.commands import pretraining
from tests.hostile.rows import model_flags
from tests.scripts import end_of

LENGTH = 8
PREDICTIONS = 2


def record(**changes) -> bytes:
    """A pre-training example with some features changed."""
    features = {
        "input_ids": [2, 5, 6, 3, 7, 8, 3, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 1, 0],
        "masked_lm_positions": [1, 2],
        "masked_lm_ids": [5, 6],
        "masked_lm_weights": np.float32([1.0, 1.0]),
        "next_sentence_labels": [0],
    }
    return encode_examples(
        {name: np.array([values]) for name, values in (features | changes).items()}
    )[0]


GOOD = frame(record())


class File(NamedTuple):
    """A file of records, of which the named one cannot be used."""

    name: str
    content: bytes
    says: str
    number: int = 1
    is_compressed: bool = False


FILES = [
    File("an end within a record", GOOD + GOOD[:-30], "is corrupt: the file ends within it"),
    File(
        "a compressed end within a record",
        GOOD + GOOD[:-30],
        "the file ends within it",
        1,
        True,
    ),
    File(
        "a length without its checksum",
        GOOD * 2 + b"\x01" + GOOD[1:],
        "does not fit its checksum",
        2,
    ),
    File("no example", GOOD + frame(b"\x0a\x05ab"), "is corrupt: it is no tf.Example"),
    File("an empty record", GOOD + frame(b""), "has no input_ids"),
    File(
        "a feature too short",
        GOOD + frame(record(input_mask=[1])),
        "input_mask has 1 values where 8",
    ),
    File(
        "an id of 2^62",
        GOOD + frame(record(input_ids=[1 << 62] * 8)),
        f"input_ids holds {1 << 62}",
    ),
    File(
        "an id below 0",
        GOOD + frame(record(input_ids=[-1] * 8)),
        "input_ids holds -1",
    ),
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_reader_names_file_and_record(file, tmp_path):
    path = tmp_path / ("a.tfrecord.gz" if file.is_compressed else "a.tfrecord")
    path.write_bytes(gzip.compress(file.content) if file.is_compressed else file.content)
    features = pretraining_features(LENGTH, PREDICTIONS)
    limits = pretraining_limits(50, 2, LENGTH)
    with (
        pytest.raises(InputError) as refused,
        explaining_input_errors([str(path)], features, limits),
    ):
        for _ in training_dataset([str(path)], features, 2, 1, limits).take(30):
            pass
    said = str(refused.value)
    assert f"{path}: record {file.number} (from 0)" in said
    assert file.says in said
    assert "\n" not in said


def test_a_run_on_gzip_under_another_name_that_ends_early(folder):
    (folder / "records.tfrecord").write_bytes(gzip.compress(GOOD, mtime=0)[:-12])
    ended = end_of(*pretraining(folder, "--do_train"))
    assert ended.status == 1
    assert f"{folder}/records.tfrecord: record 0 (from 0) is corrupt" in ended.sentence


def test_scripts_refuse_another_vocabulary(folder):
    """Training, evaluation, and what shows records."""
    (path,), _ = test_manifests.make_records(folder, "exact")
    other = test_manifests.write_swapped_vocabulary(folder)
    for flags in ("--do_train", "--do_eval"):
        command = [
            *pretraining(folder, flags),
            f"--input_file={path}",
            f"--vocab_file={other}",
        ]
        assert "/made was made with another vocabulary than" in end_of(*command).sentence
    assert not (folder / "out").exists()
    command = [
        "inspect_pretraining_data",
        f"--input_file={path}",
        f"--vocab_file={other}",
    ]
    assert "/made was made with another vocabulary than" in end_of(*command).sentence
    assert end_of(command[0], command[1], model_flags(folder)[0]).status == 0
