"""The order of records, what batches hold, and errors; each record contains its number, which
shows the order.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

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

SEQ, PREDICTIONS, VOCAB = 8, 2, 1000
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


def serialized(values: dict) -> bytes:
    def feature(value):
        if isinstance(value[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=value))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    features = {name: feature(value) for name, value in values.items()}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    # So that a file is always cut at the same place.
    return example.SerializeToString(deterministic=True)


def write(path, numbers, **changed) -> str:
    """Writes a record file, and returns its path; `changed` replaces features of its last
    record.
    """
    with tf.io.TFRecordWriter(str(path), "GZIP" if path.suffix == ".gz" else "") as writer:
        for number in numbers:
            last = number == numbers[-1]
            writer.write(serialized(record_values(number) | (changed if last else {})))
    return str(path)


def numbers_of(batch) -> list[int]:
    return batch["input_ids"].numpy()[:, 0].tolist()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Five files of 40 records with the numbers 0 to 199, one of them compressed, and an empty
    file.
    """
    folder = tmp_path_factory.mktemp("records")
    (folder / "empty.tfrecord").touch()
    names = [folder / f"{i}.tfrecord{'.gz' if i == 2 else ''}" for i in range(5)]
    found = [write(name, range(40 * i, 40 * i + 40)) for i, name in enumerate(names)]
    return [found[0], str(folder / "empty.tfrecord"), *found[1:]]


def test_evaluation_reads_all_records_in_order_once_or_again(files):
    batches = iter(evaluation_dataset(files, FEATURES, 7, LIMITS))
    assert [number for _ in range(43) for number in numbers_of(next(batches))] == [
        k % 200 for k in range(43 * 7)
    ]
    sizes, seen = [], []
    for batch in evaluation_dataset(files, FEATURES, 7, LIMITS, repeat=False):
        sizes.append(len(batch["input_ids"]))
        seen += numbers_of(batch)
    assert sizes == [7] * 28 + [4]
    assert seen == list(range(200))
    assert count_records(files) == 200


def test_values_and_types_of_a_batch(files):
    batch = next(iter(evaluation_dataset(files, FEATURES, 3, LIMITS)))
    assert list(batch) == [feature.name for feature in FEATURES]
    for feature in FEATURES:
        expected = [record_values(number)[feature.name] for number in (0, 1, 2)]
        assert batch[feature.name].dtype == feature.dtype
        np.testing.assert_array_equal(batch[feature.name], expected)


def trained_on(files, num_batches: int, seed: int = 1, **changes) -> list[int]:
    """The numbers of the records in the first batches of a training."""
    batches = iter(training_dataset(files, FEATURES, 10, seed, LIMITS, **changes))
    return [number for _ in range(num_batches) for number in numbers_of(next(batches))]


def test_training_reads_every_record_about_equally_often_and_shuffled_by_the_seed(files):
    seen = trained_on(files, 100)
    counts = np.bincount(seen, minlength=200)
    # 1,000 of 200 records: 5 each, give or take a pass that the file shuffle and the buffer hold
    # back.
    assert counts.min() >= 2
    assert counts.max() <= 8
    assert np.mean(np.diff(seen) == 1) < 0.1
    assert seen[:300] == trained_on(files, 30) != trained_on(files, 30, seed=2)


def test_records_are_shuffled_among_a_hundred(tmp_path):
    file = write(tmp_path / "ordered.tfrecord", range(400))
    seen = trained_on([file], 20)
    assert 90 <= max(number - place for place, number in enumerate(seen)) < 100
    assert seen == trained_on([file], 20) != trained_on([file], 20, seed=2)


def repeats_nearby(seen: list[int], distance: int) -> int:
    """The number of records that are read again within so many records."""
    return sum(number in seen[place + 1 : place + distance] for place, number in enumerate(seen))


@pytest.mark.parametrize("seed", [1, 2])
def test_files_that_are_shuffled_in_each_pass_are_read_once_in_it(files, seed):
    seen = trained_on(files, 100, seed, shuffles_each_pass=True)
    counts = np.bincount(seen, minlength=200)
    # 1,000 of 200 records: 5 each, but for the records that the buffer holds back.
    assert counts.min() >= 3
    assert counts.max() <= 7
    assert repeats_nearby(seen[:100], 100) < 8, "only where one pass ends"
    orders = [
        [number for number in seen[start : start + 200] if number % 40 == 0]
        for start in (0, 200, 400)
    ]
    assert orders[0] != orders[1] != orders[2], "the files come in another order in each pass"


def test_the_originals_order_may_read_a_file_twice_at_the_same_time(files):
    # The datasets' own seeds are combined with the one that another test has left.
    tf.random.set_seed(1)
    assert any(repeats_nearby(trained_on(files, 10, seed), 100) >= 10 for seed in range(12)), (
        "with some seeds"
    )


def test_no_pipeline_has_a_thread_for_which_its_end_waits(files):
    """By default TensorFlow tunes a pipeline in a thread that may sleep for a minute when its
    iterator is deleted.
    """
    training = training_dataset(files, FEATURES, 10, seed=1, limits=LIMITS)
    evaluation = evaluation_dataset(files, FEATURES, 10, limits=LIMITS)
    assert [dataset.options().autotune.enabled for dataset in (training, evaluation)] == [
        False,
        False,
    ]
    assert tf.data.Dataset.range(3).options().autotune.enabled is None  # which means that it does


def test_remote_files_are_read_in_parallel_in_the_same_order(files, monkeypatch):
    local = trained_on(files, 60)
    monkeypatch.setattr(pretraining_input, "is_remote", lambda path: True)
    assert trained_on(files, 60) == local


def test_a_saved_iterator_belongs_to_files_lengths_and_batch_size():
    key = reading_key(["a", "b"], FEATURES, 10)
    assert key != reading_key(["a", "b"], FEATURES, 10, shuffles_each_pass=True)
    assert key == reading_key(("a", "b"), pretraining_features(SEQ, PREDICTIONS), 10)
    others = [(["a"], FEATURES, 10), (["b", "a"], FEATURES, 10), (["a", "b"], FEATURES[:3], 10)]
    assert key not in [reading_key(*other) for other in [*others, (["a", "b"], FEATURES, 11)]]


WRONG = [
    ("input_ids", [VOCAB] * SEQ, "input_ids holds 1000, and vocab_size of the config is 1000; "),
    ("masked_lm_positions", [0, SEQ], "masked_lm_positions holds 8, and --max_seq_length is 8; "),
    ("segment_ids", [2] * SEQ, "segment_ids holds 2, and type_vocab_size "),
    ("next_sentence_labels", [2], "next_sentence_labels holds 2, and "),
    (
        "input_mask",
        [1] * 16,
        "input_mask has 16 values where 8 are expected; give --max_seq_length and ",
    ),
    ("masked_lm_weights", [1.0], "masked_lm_weights has 1 values where 2 are expected; "),
    ("masked_lm_weights", [1, 1], "masked_lm_weights holds int64 where float32 is expected; "),
]


@pytest.mark.parametrize(("field", "value", "sentence"), WRONG)
def test_a_record_that_does_not_fit_is_named(tmp_path, field, value, sentence):
    good = write(tmp_path / "good.tfrecord", range(20))
    bad = write(tmp_path / "bad.tfrecord.gz", range(20, 40), **{field: value})
    files = [good, bad]
    with pytest.raises(InputError) as raised, explaining_input_errors(files, FEATURES, LIMITS):
        list(evaluation_dataset(files, FEATURES, 5, LIMITS, repeat=False))
    assert str(raised.value).startswith(f"{bad}: record 19 (from 0)")
    assert sentence in str(raised.value)
    first = write(tmp_path / "first.tfrecord", range(1), **{field: value})
    with pytest.raises(InputError, match=r"first.tfrecord: record 0"):
        training_dataset([first], FEATURES, 2, 0, LIMITS)


def test_other_errors_pass_unchanged(files):
    assert diagnose(files, FEATURES, LIMITS) is None
    with (
        pytest.raises(tf.errors.InvalidArgumentError, match="ours"),
        explaining_input_errors(files, FEATURES, LIMITS),
    ):
        raise tf.errors.InvalidArgumentError(None, None, "ours")


def test_empty_files_are_warned_of_or_refused(files, tmp_path, caplog):
    check_first_records(files, FEATURES, LIMITS)
    assert caplog.messages == [f"{files[1]}: empty, holds no record"]
    none = [files[1], write(tmp_path / "nothing.tfrecord.gz", [])]
    for dataset in (evaluation_dataset, functools.partial(training_dataset, seed=0)):
        with pytest.raises(
            InputError, match=r"empty.tfrecord, .*nothing.tfrecord.gz: no record in any file"
        ):
            dataset(none, FEATURES, 2, limits=LIMITS)


UNMASKED = unmasked_features(SEQ)
UNMASKED_LIMITS = {feature.name: LIMITS[feature.name] for feature in UNMASKED}


class Spy:
    """Puts the number of the pass and the hash of the record where the positions and the labels
    would be.
    """

    max_predictions_per_seq = PREDICTIONS

    def __call__(self, ids, mask, passes, records):
        def column(values):
            return np.repeat((values % 100_003)[:, None], PREDICTIONS, axis=1)

        return (
            ids,
            column(passes).astype(np.int32),
            column(records).astype(np.int32),
            np.ones((len(ids), 2), "f4"),
        )


@pytest.fixture(scope="module")
def unmasked(tmp_path_factory):
    """Three files of 40 records without masks, with the numbers 0 to 119."""
    folder, found = tmp_path_factory.mktemp("unmasked"), []
    for file in range(3):
        found.append(str(folder / str(file)))
        with tf.io.TFRecordWriter(found[-1]) as writer:
            for number in range(40 * file, 40 * file + 40):
                values = record_values(number)
                writer.write(
                    serialized({feature.name: values[feature.name] for feature in UNMASKED})
                )
    return found


def seen(dataset, num_batches: int) -> list[tuple[int, int, int]]:
    """The number, the pass and the hash of each record."""
    found = []
    for batch in dataset.take(num_batches):
        assert {feature.name for feature in FEATURES} == set(batch)
        columns = (
            batch[name].numpy()[:, 0].tolist()
            for name in ("input_ids", "masked_lm_positions", "masked_lm_ids")
        )
        found += zip(*columns, strict=True)
    return found


def test_masks_know_the_pass_and_the_record(unmasked):
    tf.random.set_seed(0)  # decides the order, too; an earlier test may have set another one
    dataset = training_dataset(unmasked, UNMASKED, 10, seed=1, limits=UNMASKED_LIMITS, masks=Spy())
    found = seen(dataset, 60)
    passes = {number: [at for other, at, _ in found if other == number] for number in range(120)}
    # A file of a pass may come before one of the pass before, so that the passes of 600 records
    # have holes.
    assert all(
        len(set(each)) == len(each) and max(each) <= len(each) + 1 for each in passes.values()
    )
    assert set.union(*map(set, passes.values())) >= {0, 1, 2, 3}
    assert 3 <= min(map(len, passes.values())) <= max(map(len, passes.values())) <= 7
    assert [at for _, at, _ in found] != sorted(at for _, at, _ in found), (
        "passes mix at their ends"
    )
    hashes = {(number, record) for number, _, record in found}
    assert len(hashes) == len({record for _, record in hashes}) == 120
    plain = training_dataset(unmasked, UNMASKED, 10, seed=1, limits=UNMASKED_LIMITS)
    assert [number for batch in plain.take(60) for number in numbers_of(batch)] == [
        number for number, *_ in found
    ]


def test_passes_over_files_that_are_shuffled_in_each_are_numbered(unmasked):
    dataset = training_dataset(
        unmasked, UNMASKED, 10, seed=1, limits=UNMASKED_LIMITS, masks=Spy(), shuffles_each_pass=True
    )
    found = seen(dataset, 60)
    passes = [{at for other, at, _ in found if other == number} for number in range(120)]
    assert sum(map(len, passes)) == len(found) == 600, "no record twice in a pass"
    # The buffer of 100 records may still hold one of an early pass.
    assert sum(len({0, 1, 2} - of_record) for of_record in passes) < 12


def test_in_evaluation_a_record_has_one_mask(unmasked):
    dataset = evaluation_dataset(unmasked, UNMASKED, 50, UNMASKED_LIMITS, masks=Spy())
    found = seen(dataset, 5)
    assert [number for number, *_ in found] == [*range(120), *range(120), *range(10)]
    assert {at for _, at, _ in found} == {0}
    once = evaluation_dataset(unmasked, UNMASKED, 50, UNMASKED_LIMITS, repeat=False, masks=Spy())
    assert [len(numbers_of(batch)) for batch in once] == [50, 50, 20]


@pytest.mark.parametrize(("masks", "shuffles"), [(None, False), (Spy(), False), (Spy(), True)])
def test_an_iterator_goes_on_where_it_was_saved(files, unmasked, tmp_path, masks, shuffles):
    def iterator():
        read, features, limits = (
            (unmasked, UNMASKED, UNMASKED_LIMITS) if masks else (files, FEATURES, LIMITS)
        )
        return iter(
            training_dataset(
                read, features, 10, 1, limits, masks=masks, shuffles_each_pass=shuffles
            )
        )

    batches = iterator()
    for _ in range(33):
        next(batches)
    checkpoint = tf.train.Checkpoint(iterator=batches).write(str(tmp_path / "input"))
    expected = [next(batches) for _ in range(20)]
    again = iterator()
    tf.train.Checkpoint(iterator=again).read(checkpoint).assert_consumed()
    for batch in expected:
        found = next(again)
        for name, values in batch.items():
            np.testing.assert_array_equal(found[name], values)


def test_records_with_masks_and_without_are_told_apart(files, unmasked):
    with pytest.raises(
        InputError, match=r"record 0 \(from 0\) has masks already; leave out --dynamic_masking"
    ):
        training_dataset(files, UNMASKED, 10, seed=1, limits=UNMASKED_LIMITS, masks=Spy())
    with pytest.raises(
        InputError, match="has no masked_lm_positions; give --dynamic_masking if no file"
    ):
        training_dataset(unmasked, FEATURES, 10, seed=1, limits=LIMITS)
