"""Damaged and forged records: a run names the file and the record, and TensorFlow reads no length that it believes."""

import gzip
import struct

import numpy as np
import pytest
import tensorflow as tf

from official_bert.data.records.datasets import records_of
from official_bert.data.records.examples import encode_examples
from official_bert.data.records.framing import frame
from official_bert.data.records.input_functions import record_input_fn
from official_bert.features import Feature
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
    header = frame(struct.pack("<Q", length))[12:-4]
    checksum = frame(header)[-4:]
    return header + checksum + b"xyz" * 10


def training(name: str, content, *says: str, file: str = "a.tfrecord") -> Row:
    """A run of pre-training on a file with this content."""

    def make(folder):
        (folder / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
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


GOOD = frame(record())
HUGE = "record 1 (from 0) is damaged: its length is {} bytes"
ROWS = [
    training("a length of 2^40", GOOD + forged(1 << 40), HUGE.format(1 << 40)),
    training("a length of 2^62", GOOD + forged(1 << 62), HUGE.format(1 << 62)),
    training("a length of 2^64 - 1", GOOD + forged((1 << 64) - 1), HUGE.format((1 << 64) - 1)),
    training("a length of 2^64 - 16", GOOD + forged((1 << 64) - 16), HUGE.format((1 << 64) - 16)),
    training("a length beyond the file", GOOD + forged(5000), "record 1 (from 0) is damaged: the file ends within it"),
    training("a compressed length of 2^40", GOOD + forged(1 << 40), HUGE.format(1 << 40), file="a.tfrecord.gz"),
    training("a first length of 2^40", forged(1 << 40), "record 0 (from 0) is damaged: its length is"),
    training("a length without its checksum", GOOD * 2 + b"\x01" + GOOD[1:], "record 2", "does not fit its checksum"),
    training("bytes without their checksum", GOOD * 2 + GOOD[:-1] + b"\x00", "record 2", "bytes do not fit their checks"),
    training("half a record", GOOD * 3 + GOOD[:-9], "record 3 (from 0) is damaged: the file ends within it"),
    training("half a header", GOOD * 3 + GOOD[:7], "record 3 (from 0) is damaged: the file ends within it"),
    training("no example", GOOD + frame(b"hello"), "record 1 (from 0) is damaged: it is no tf.Example"),
    training("no example that begins like one", GOOD + frame(b"\x0a\x05ab"), "record 1", "it is no tf.Example"),
    training("an example cut short", GOOD + frame(record()[:-5]), "record 1", "it is no tf.Example"),
    training("an empty record", GOOD + frame(b""), "record 1 (from 0) has no input_ids"),
    training("text", b"The cat sat on the mat.\n" * 9, "record 0 (from 0) is damaged"),
    training("gzip under another name", gzip.compress(GOOD * 9), "is compressed; give it a name that ends in .gz"),
    training("ids as numbers with a fraction", GOOD + frame(record(input_ids=None)), "record 1 (from 0) has no input_ids"),
    training("a feature too short", GOOD + frame(record(input_mask=[1])), "record 1", "input_mask has 1 values where 8"),
    training("an id of 2^62", GOOD + frame(record(input_ids=[1 << 62] * 8)), "record 1", "input_ids holds 46116860184"),
    training("an id below 0", GOOD + frame(record(input_ids=[-1] * 8)), "record 1", "input_ids holds -1"),
]  # fmt: skip


@table(ROWS)
def test_records(row, folder):
    check(row, folder)


def test_plain_bytes_with_the_name_of_a_compressed_file(folder):
    row = training("not compressed", b"", "record 0 (from 0) is damaged", file="b.tfrecord.gz")

    def make(folder):
        flags = row.make(folder)
        (folder / "b.tfrecord.gz").write_bytes(GOOD * 3)
        return flags

    check(row._replace(make=make), folder)


@pytest.mark.parametrize("length", [1 << 40, 1 << 62, (1 << 64) - 4, (1 << 64) - 16, 5000])
def test_a_pipeline_refuses_a_length_before_it_reserves_memory(tmp_path, length):
    """TensorFlow alone ends the process for most of these lengths."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(GOOD + forged(length))
    with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
        list(records_of(str(path)))
    read = record_input_fn(str(path), [Feature("input_ids", LENGTH, "int32")], False, False)
    with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
        list(read({"batch_size": 1}))


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_every_record_is_read_once(tmp_path, name):
    content = b"".join(frame(b"%d" % number) for number in range(700))
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    for _ in range(2):
        found = [int(value.numpy()) for value in records_of(str(tmp_path / name))]
        assert found == list(range(700))
