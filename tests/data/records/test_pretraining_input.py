"""The order of records, what batches hold, and errors; each record contains its number, which
shows the order.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api

from official_bert.data.records import pretraining_input
from official_bert.data.records.pretraining_input import (
    check_first_records,
    count_records,
    diagnose,
    evaluation_dataset,
    explaining_input_errors,
    pretraining_limits,
    reading_key,
    training_dataset,
)
from official_bert.features import pretraining_features, unmasked_features
from official_bert.io.errors import InputError

SEQ = 8
PREDICTIONS = 2
VOCAB = 1000
FEATURES = pretraining_features(SEQ, PREDICTIONS)
LIMITS = pretraining_limits(VOCAB, 2, SEQ)


def record_values(number: int) -> dict:
    """Returns a record whose ids all equal its number."""
    return {
        "input_ids": [number] * SEQ,
        "input_mask": [1] * SEQ,
        "segment_ids": [0, 1] * (SEQ // 2),
        "masked_lm_positions": [1, SEQ - 1],
        "masked_lm_ids": [number] * PREDICTIONS,
        "masked_lm_weights": [1.0, 0.5],
        "next_sentence_labels": [number % 2],
    }


def make_feature(values: list) -> tf.train.Feature:
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def serialize(values: dict) -> bytes:
    feature = {name: make_feature(value) for name, value in values.items()}
    features = tf.train.Features(feature=feature)
    example = tf.train.Example(features=features)
    # So that a file is always cut at the same place.
    return example.SerializeToString(deterministic=True)


def write(path, numbers, **changes) -> str:
    """Writes a record file, and returns its path; `changes` replaces features of its last
    record.
    """
    records = [record_values(number) for number in numbers]
    if records:
        records[-1] |= changes
    compression = "GZIP" if path.suffix == ".gz" else ""
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(serialize(record))
    return str(path)


def record_numbers(batch) -> list[int]:
    return batch["input_ids"].numpy()[:, 0].tolist()


def next_numbers(batches, num_batches: int) -> list[int]:
    """The numbers of the records in the next batches of an iterator."""
    numbers = []
    for _ in range(num_batches):
        numbers += record_numbers(next(batches))
    return numbers


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Five files of 40 records with the numbers 0 to 199, one of them compressed, and an empty
    file.
    """
    folder = tmp_path_factory.mktemp("records")
    names = ["0.tfrecord", "1.tfrecord", "2.tfrecord.gz", "3.tfrecord", "4.tfrecord"]
    paths = []
    for number, name in enumerate(names):
        numbers = range(40 * number, 40 * number + 40)
        paths.append(write(folder / name, numbers))
    empty_file = folder / "empty.tfrecord"
    empty_file.touch()
    return [paths[0], str(empty_file), *paths[1:]]


def test_evaluation_reads_all_records_in_order_once_or_again(files):
    batches = iter(evaluation_dataset(files, FEATURES, 7, LIMITS))
    numbers = next_numbers(batches, 43)
    assert numbers == [place % 200 for place in range(43 * 7)]

    once = evaluation_dataset(files, FEATURES, 7, LIMITS, repeat=False)
    batch_numbers = [record_numbers(batch) for batch in once]
    batch_sizes = [len(numbers) for numbers in batch_numbers]
    assert batch_sizes == [7] * 28 + [4]
    assert list(itertools.chain(*batch_numbers)) == list(range(200))
    assert count_records(files) == 200


def test_values_and_types_of_a_batch(files):
    dataset = evaluation_dataset(files, FEATURES, 3, LIMITS)
    batch = next(iter(dataset))
    assert list(batch) == [feature.name for feature in FEATURES]
    records = [record_values(number) for number in (0, 1, 2)]
    for feature in FEATURES:
        values = batch[feature.name]
        expected = [record[feature.name] for record in records]
        assert values.dtype == feature.dtype
        np.testing.assert_array_equal(values, expected)


def train_on(files, num_batches: int, seed: int = 1, **changes) -> list[int]:
    """The numbers of the records in the first batches of a training."""
    dataset = training_dataset(
        files,
        FEATURES,
        10,
        seed,
        LIMITS,
        **changes,
    )
    return next_numbers(iter(dataset), num_batches)


def test_training_reads_every_record_about_equally_often_and_shuffled_by_the_seed(files):
    numbers = train_on(files, 100)
    counts = np.bincount(numbers, minlength=200)
    # 1,000 of 200 records: 5 each, give or take a pass that the file shuffle and the buffer hold
    # back.
    assert counts.min() >= 2
    assert counts.max() <= 8
    follows = np.diff(numbers) == 1
    assert follows.mean() < 0.1
    again = train_on(files, 30)
    other_seed = train_on(files, 30, seed=2)
    assert numbers[:300] == again
    assert again != other_seed


def test_records_are_shuffled_among_a_hundred(tmp_path):
    file = write(tmp_path / "ordered.tfrecord", range(400))
    numbers = train_on([file], 20)
    advances = [number - place for place, number in enumerate(numbers)]
    assert 90 <= max(advances) < 100
    assert numbers == train_on([file], 20)
    assert numbers != train_on([file], 20, seed=2)


def count_repeats_nearby(numbers: list[int], distance: int) -> int:
    """The number of records that are read again within so many records."""
    num_repeats = 0
    for place, number in enumerate(numbers):
        next_records = numbers[place + 1 : place + distance]
        num_repeats += number in next_records
    return num_repeats


@pytest.mark.parametrize("seed", [1, 2])
def test_files_that_are_shuffled_in_each_pass_are_read_once_in_it(files, seed):
    numbers = train_on(files, 100, seed, shuffles_each_pass=True)
    counts = np.bincount(numbers, minlength=200)
    # 1,000 of 200 records: 5 each, but for the records that the buffer holds back.
    assert counts.min() >= 3
    assert counts.max() <= 7
    assert count_repeats_nearby(numbers[:100], 100) < 8, "only where one pass ends"
    file_orders = []
    for start in (0, 200, 400):
        pass_numbers = numbers[start : start + 200]
        first_records = [number for number in pass_numbers if number % 40 == 0]
        file_orders.append(first_records)
    assert file_orders[0] != file_orders[1], "the files come in another order in each pass"
    assert file_orders[1] != file_orders[2], "the files come in another order in each pass"


def test_the_originals_order_may_read_a_file_twice_at_the_same_time(files):
    # The datasets' own seeds are combined with the one that another test has left.
    tf.random.set_seed(1)

    def reads_a_file_twice(seed: int) -> bool:
        numbers = train_on(files, 10, seed)
        return count_repeats_nearby(numbers, 100) >= 10

    assert any(reads_a_file_twice(seed) for seed in range(12)), "with some seeds"


def test_no_pipeline_has_a_thread_for_which_its_end_waits(files):
    """By default TensorFlow tunes a pipeline in a thread that may sleep for a minute when its
    iterator is deleted.
    """
    training = training_dataset(files, FEATURES, 10, seed=1, limits=LIMITS)
    evaluation = evaluation_dataset(files, FEATURES, 10, limits=LIMITS)
    default = tf.data.Dataset.range(3)
    assert training.options().autotune.enabled is False
    assert evaluation.options().autotune.enabled is False
    # By default it is None, and TensorFlow tunes the pipeline.
    assert default.options().autotune.enabled is None


def test_autograph_translates_no_function_of_a_pipeline(files, monkeypatch):
    translated = []
    translate = api._convert_actual

    def count(entity, context):
        translated.append(entity)
        return translate(entity, context)

    monkeypatch.setattr(api, "_convert_actual", count)
    training_dataset(files, FEATURES, 10, seed=1, limits=LIMITS)
    evaluation_dataset(files, FEATURES, 10, limits=LIMITS)
    assert translated == []
    # By default TensorFlow translates the functions.
    tf.data.Dataset.range(3).map(lambda number: record_values(3) and number)
    assert translated


def test_remote_files_are_read_in_parallel_in_the_same_order(files, monkeypatch):
    local = train_on(files, 60)
    monkeypatch.setattr(pretraining_input, "is_remote", lambda path: True)
    assert train_on(files, 60) == local


def test_a_saved_iterator_belongs_to_files_lengths_and_batch_size():
    key = reading_key(["a", "b"], FEATURES, 10)
    equal_features = pretraining_features(SEQ, PREDICTIONS)
    assert reading_key(("a", "b"), equal_features, 10) == key
    assert reading_key(["a", "b"], FEATURES, 10, shuffles_each_pass=True) != key
    assert reading_key(["a"], FEATURES, 10) != key
    assert reading_key(["b", "a"], FEATURES, 10) != key
    assert reading_key(["a", "b"], FEATURES[:3], 10) != key
    assert reading_key(["a", "b"], FEATURES, 11) != key


WRONG = [
    pytest.param(
        "input_ids",
        [VOCAB] * SEQ,
        "input_ids holds 1000, and vocab_size of the config is 1000; ",
        id="id beyond the vocabulary",
    ),
    pytest.param(
        "masked_lm_positions",
        [0, SEQ],
        "masked_lm_positions holds 8, and --max_seq_length is 8; ",
        id="position beyond the sequence",
    ),
    pytest.param(
        "segment_ids",
        [2] * SEQ,
        "segment_ids holds 2, and type_vocab_size ",
        id="third segment",
    ),
    pytest.param(
        "next_sentence_labels",
        [2],
        "next_sentence_labels holds 2, and ",
        id="third label",
    ),
    pytest.param(
        "input_mask",
        [1] * 16,
        "input_mask has 16 values where 8 are expected; give --max_seq_length and ",
        id="long sequence",
    ),
    pytest.param(
        "masked_lm_weights",
        [1.0],
        "masked_lm_weights has 1 values where 2 are expected; ",
        id="few predictions",
    ),
    pytest.param(
        "masked_lm_weights",
        [1, 1],
        "masked_lm_weights holds int64 where float32 is expected; ",
        id="weights that are integers",
    ),
]


@pytest.mark.parametrize(("field", "value", "sentence"), WRONG)
def test_a_record_that_does_not_fit_is_named(tmp_path, field, value, sentence):
    changes = {field: value}
    good_file = write(tmp_path / "good.tfrecord", range(20))
    bad_file = write(
        tmp_path / "bad.tfrecord.gz",
        range(20, 40),
        **changes,
    )
    files = [good_file, bad_file]
    dataset = evaluation_dataset(files, FEATURES, 5, LIMITS, repeat=False)
    with pytest.raises(InputError) as raised, explaining_input_errors(files, FEATURES, LIMITS):
        list(dataset)
    message = str(raised.value)
    assert message.startswith(f"{bad_file}: record 19 (from 0)")
    assert sentence in message

    bad_first_file = write(
        tmp_path / "first.tfrecord",
        range(1),
        **changes,
    )
    with pytest.raises(InputError, match=r"first.tfrecord: record 0"):
        training_dataset([bad_first_file], FEATURES, 2, 0, LIMITS)


def test_other_errors_pass_unchanged(files):
    assert diagnose(files, FEATURES, LIMITS) is None
    error = tf.errors.InvalidArgumentError(None, None, "ours")
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="ours"),
        explaining_input_errors(files, FEATURES, LIMITS),
    ):
        raise error


def test_empty_files_are_warned_of_or_refused(files, tmp_path, caplog):
    empty_file = files[1]
    check_first_records(files, FEATURES, LIMITS)
    assert caplog.messages == [f"{empty_file}: empty, holds no record"]

    compressed_empty_file = write(tmp_path / "nothing.tfrecord.gz", [])
    empty_files = [empty_file, compressed_empty_file]
    message = r"empty.tfrecord, .*nothing.tfrecord.gz: no record in any file"
    with pytest.raises(InputError, match=message):
        evaluation_dataset(empty_files, FEATURES, 2, limits=LIMITS)
    with pytest.raises(InputError, match=message):
        training_dataset(empty_files, FEATURES, 2, seed=0, limits=LIMITS)


UNMASKED = unmasked_features(SEQ)
UNMASKED_LIMITS = {feature.name: LIMITS[feature.name] for feature in UNMASKED}


class Spy:
    """Puts the number of the pass and the hash of the record where the positions and the labels
    would be.
    """

    max_predictions_per_seq = PREDICTIONS

    def __call__(self, ids, mask, passes, records):
        def make_columns(values):
            column = (values % 100_003)[:, None]
            columns = np.repeat(column, PREDICTIONS, axis=1)
            return columns.astype(np.int32)

        weights = np.ones((len(ids), PREDICTIONS), np.float32)
        return ids, make_columns(passes), make_columns(records), weights


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory):
    """Three files of 40 records without masks, with the numbers 0 to 119."""
    folder = tmp_path_factory.mktemp("unmasked")
    paths = [str(folder / name) for name in ("0", "1", "2")]
    for file_number, path in enumerate(paths):
        first = 40 * file_number
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(first, first + 40):
                values = record_values(number)
                unmasked_values = {feature.name: values[feature.name] for feature in UNMASKED}
                writer.write(serialize(unmasked_values))
    return paths


class Reading(NamedTuple):
    """One reading of a record, as `Spy` has seen it."""

    number: int
    pass_number: int
    record_hash: int


def read(dataset, num_batches: int) -> list[Reading]:
    readings = []
    for batch in dataset.take(num_batches):
        assert {feature.name for feature in FEATURES} == set(batch)
        pass_numbers = batch["masked_lm_positions"].numpy()[:, 0].tolist()
        record_hashes = batch["masked_lm_ids"].numpy()[:, 0].tolist()
        columns = (record_numbers(batch), pass_numbers, record_hashes)
        readings += [Reading(*values) for values in zip(*columns, strict=True)]
    return readings


def group_passes(readings: list[Reading]) -> list[list[int]]:
    """The passes in which each of the 120 records was read."""
    passes = [[] for _ in range(120)]
    for reading in readings:
        passes[reading.number].append(reading.pass_number)
    return passes


def test_masks_know_the_pass_and_the_record(unmasked):
    # The seed decides the order, too; an earlier test may have set another one.
    tf.random.set_seed(0)
    dataset = training_dataset(
        unmasked,
        UNMASKED,
        10,
        seed=1,
        limits=UNMASKED_LIMITS,
        masks=Spy(),
    )
    readings = read(dataset, 60)
    # A file of a pass may come before one of the pass before, so that the passes of 600 records
    # have holes.
    passes = group_passes(readings)
    for record_passes in passes:
        assert len(set(record_passes)) == len(record_passes)
        assert max(record_passes) <= len(record_passes) + 1
        assert 3 <= len(record_passes) <= 7
    all_passes = [reading.pass_number for reading in readings]
    assert set(all_passes) >= {0, 1, 2, 3}
    assert all_passes != sorted(all_passes), "passes mix at their ends"

    hashes = {reading.record_hash for reading in readings}
    numbers_and_hashes = {(reading.number, reading.record_hash) for reading in readings}
    assert len(hashes) == 120
    assert len(numbers_and_hashes) == 120

    plain = training_dataset(unmasked, UNMASKED, 10, seed=1, limits=UNMASKED_LIMITS)
    plain_numbers = next_numbers(iter(plain), 60)
    assert plain_numbers == [reading.number for reading in readings]


def test_passes_over_files_that_are_shuffled_in_each_are_numbered(unmasked):
    dataset = training_dataset(
        unmasked,
        UNMASKED,
        10,
        seed=1,
        limits=UNMASKED_LIMITS,
        masks=Spy(),
        shuffles_each_pass=True,
    )
    readings = read(dataset, 60)
    passes = group_passes(readings)
    distinct_passes = [set(record_passes) for record_passes in passes]
    assert len(readings) == 600
    assert sum(map(len, distinct_passes)) == 600, "no record twice in a pass"
    # The buffer of 100 records may still hold one of an early pass.
    missing_passes = [{0, 1, 2} - record_passes for record_passes in distinct_passes]
    assert sum(map(len, missing_passes)) < 12


def test_in_evaluation_a_record_has_one_mask(unmasked):
    dataset = evaluation_dataset(
        unmasked,
        UNMASKED,
        50,
        UNMASKED_LIMITS,
        masks=Spy(),
    )
    readings = read(dataset, 5)
    numbers = [reading.number for reading in readings]
    assert numbers == [
        *range(120),
        *range(120),
        *range(10),
    ]
    assert {reading.pass_number for reading in readings} == {0}

    once = evaluation_dataset(
        unmasked,
        UNMASKED,
        50,
        UNMASKED_LIMITS,
        repeat=False,
        masks=Spy(),
    )
    batch_sizes = [len(record_numbers(batch)) for batch in once]
    assert batch_sizes == [50, 50, 20]


@pytest.mark.parametrize(
    ("masks", "shuffles_each_pass"),
    [
        pytest.param(None, False, id="masks of the files"),
        pytest.param(Spy(), False, id="dynamic masks"),
        pytest.param(Spy(), True, id="dynamic masks, shuffled in each pass"),
    ],
)
def test_an_iterator_continues_where_it_was_saved(
    files,
    unmasked,
    tmp_path,
    masks,
    shuffles_each_pass,
):
    def make_iterator():
        dataset = training_dataset(
            unmasked if masks else files,
            UNMASKED if masks else FEATURES,
            10,
            seed=1,
            limits=UNMASKED_LIMITS if masks else LIMITS,
            masks=masks,
            shuffles_each_pass=shuffles_each_pass,
        )
        return iter(dataset)

    saved = make_iterator()
    for _ in range(33):
        next(saved)
    checkpoint = tf.train.Checkpoint(iterator=saved)
    path = checkpoint.write(str(tmp_path / "input"))
    expected_batches = [next(saved) for _ in range(20)]

    restored = make_iterator()
    checkpoint = tf.train.Checkpoint(iterator=restored)
    checkpoint.read(path).assert_consumed()
    for expected in expected_batches:
        batch = next(restored)
        for name, values in expected.items():
            np.testing.assert_array_equal(batch[name], values)


def test_records_with_masks_and_without_are_told_apart(files, unmasked):
    message = r"record 0 \(from 0\) has masks already; leave out --dynamic_masking"
    with pytest.raises(InputError, match=message):
        training_dataset(
            files,
            UNMASKED,
            10,
            seed=1,
            limits=UNMASKED_LIMITS,
            masks=Spy(),
        )
    message = "has no masked_lm_positions; give --dynamic_masking if no file"
    with pytest.raises(InputError, match=message):
        training_dataset(unmasked, FEATURES, 10, seed=1, limits=LIMITS)
