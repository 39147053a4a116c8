"""Damaged and forged records: a run names the file and the record, and TensorFlow reads no length that it believes."""

import gzip
import struct
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from official_bert.compat.input_functions import record_input_fn
from official_bert.data.records.framing import encode_examples, frame
from official_bert.data.records.pretraining_input import explaining_input_errors, pretraining_limits, training_dataset
from official_bert.data.records.record_files import records_of
from official_bert.features import Feature, pretraining_features
from official_bert.io.errors import InputError
from tests.hostile.rows import Row, check, model_flags, table

LENGTH, PREDICTIONS = 8, 2


def record(**changes) -> bytes:
    """A pre-training example of the good files' model, with some features changed or, by None, left out."""
    features = {
        "input_ids": [2, 5, 6, 3, 7, 8, 3, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
        "segment_ids": [0, 0, 0, 0, 1, 1, 1, 0],
        "masked_lm_positions": [1, 2],
        "masked_lm_ids": [5, 6],
        "masked_lm_weights": [1.0, 1.0],
        "next_sentence_labels": [0],
    }
    arrays = {
        name: np.array([values], np.float32 if name == "masked_lm_weights" else np.int64)
        for name, values in (features | changes).items()
        if values is not None
    }
    return encode_examples(arrays)[0]


def forged(length: int) -> bytes:
    """A record that claims a length, with a valid checksum of it, and has a few bytes."""
    packed = struct.pack("<Q", length)
    return frame(packed)[12:] + b"xyz" * 10  # after its own header a frame holds the length and its checksum


GOOD = frame(record())
ENDS = "is damaged: the file ends within it"
NO_EXAMPLE = "is damaged: it is no tf.Example"


class File(NamedTuple):
    """A file of records, of which the named one cannot be used."""

    name: str
    content: bytes
    says: str
    number: int = 1
    is_compressed: bool = False


FILES = [
    File("a length of 2^40", GOOD + forged(1 << 40), "is damaged: its length is 1099511627776 bytes"),
    File("a length of 2^62", GOOD + forged(1 << 62), f"is damaged: its length is {1 << 62} bytes"),
    File("a length of 2^64 - 1", GOOD + forged((1 << 64) - 1), "is damaged: its length is 18446744073709551615"),
    File("a length of 2^64 - 16", GOOD + forged((1 << 64) - 16), "is damaged: its length is 18446744073709551600"),
    File("a length beyond the file", GOOD + forged(5000), ENDS),
    File("a compressed length of 2^40", GOOD + forged(1 << 40), "its length is 1099511627776 bytes", 1, True),
    File("a compressed length beyond the file", GOOD + forged(5000), ENDS, 1, True),
    File("a first length of 2^40", forged(1 << 40), "is damaged: its length is 1099511627776 bytes", 0),
    File("a length without its checksum", GOOD * 2 + b"\x01" + GOOD[1:], "does not fit its checksum", 2),
    File("bytes without their checksum", GOOD * 2 + GOOD[:-1] + b"\x00", "its bytes do not fit their checksum", 2),
    File("half a record", GOOD * 3 + GOOD[:-9], ENDS, 3),
    File("no example", GOOD + frame(b"hello"), NO_EXAMPLE),
    File("no example that begins like one", GOOD + frame(b"\x0a\x05ab"), NO_EXAMPLE),
    File("an example cut short", GOOD + frame(record()[:-5]), NO_EXAMPLE),
    File("a compressed record that is no example", GOOD + frame(b"hello"), NO_EXAMPLE, 1, True),
    File("an empty record", GOOD + frame(b""), "has no input_ids"),
    File("a record without ids", GOOD + frame(record(input_ids=None)), "has no input_ids"),
    File("text", b"The cat sat on the mat.\n" * 9, "is damaged", 0),
    File("a feature too short", GOOD + frame(record(input_mask=[1])), "input_mask has 1 values where 8"),
    File("an id of 2^62", GOOD + frame(record(input_ids=[1 << 62] * 8)), f"input_ids holds {1 << 62}"),
    File("an id below 0", GOOD + frame(record(input_ids=[-1] * 8)), "input_ids holds -1"),
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_reader_names_file_and_record(file, tmp_path):
    path = tmp_path / ("a.tfrecord.gz" if file.is_compressed else "a.tfrecord")
    path.write_bytes(gzip.compress(file.content) if file.is_compressed else file.content)
    features = pretraining_features(LENGTH, PREDICTIONS)
    limits = pretraining_limits(50, 2, LENGTH)
    with pytest.raises(InputError) as refused, explaining_input_errors([str(path)], features, limits):
        for _ in training_dataset([str(path)], features, 2, 1, limits).take(30):
            pass
    said = str(refused.value)
    assert f"{path}: record {file.number} (from 0)" in said
    assert file.says in said
    assert "\n" not in said


def training(name: str, file: str, content: bytes, *says: str) -> Row:
    """A run of pre-training on a file with this content."""

    def make(folder):
        (folder / file).write_bytes(content)
        return [
            *model_flags(folder, vocab_file=None),
            f"--input_file={folder}/{file}",
            f"--output_dir={folder}/out",
            f"--max_seq_length={LENGTH}",
            f"--max_predictions_per_seq={PREDICTIONS}",
            "--train_batch_size=2",
            "--num_train_steps=2",
            "--num_warmup_steps=0",
            "--do_train",
        ]

    return Row(name, "run_pretraining.py", make, says=(file, *says), leaves=("out/*",))


ROWS = [
    training("a run on a length of 2^40", "a.tfrecord", GOOD + forged(1 << 40), "record 1 (from 0) is damaged"),
    training("gzip under another name that ends early", "a.tfrecord", gzip.compress(GOOD, mtime=0)[:-12], "is damaged"),
]


@table(ROWS)
def test_runs(row, folder):
    check(row, folder)


@pytest.mark.parametrize("length", [1 << 40, 1 << 62, (1 << 64) - 4, (1 << 64) - 16, 5000])
def test_a_pipeline_refuses_a_length_before_it_reserves_memory(tmp_path, length):
    """TensorFlow alone ends the process for most of these lengths."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(GOOD + forged(length))
    with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
        list(records_of(str(path), False))
    read = record_input_fn(str(path), [Feature("input_ids", LENGTH, "int32")], False, False)
    with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
        list(read({"batch_size": 1}))


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_every_record_is_read_once(tmp_path, name):
    content = b"".join(frame(b"%d" % number) for number in range(700))
    is_compressed = name.endswith(".gz")
    (tmp_path / name).write_bytes(gzip.compress(content) if is_compressed else content)
    for _ in range(2):
        found = [int(value.numpy()) for value in records_of(str(tmp_path / name), is_compressed)]
        assert found == list(range(700))
