"""Reads pre-training records into batches, {name: int32 or float32 [batch, length]}, by tf.data.

They are read as in the original (files repeated and shuffled, four interleaved, 100 records
shuffled), but in an order that the seed determines, by iterators that can be saved, and parsed in
batches, which is several times faster.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.data.pretraining.masks import DTYPES, NAMES, DynamicMasks
from official_bert.data.records.framing import read_examples
from official_bert.data.records.record_files import for_each, names_and_compressions, record_dataset
from official_bert.features import MASKED_LM_POSITIONS, Feature
from official_bert.io.errors import InputError
from official_bert.io.files import is_remote
from official_bert.io.processes import awaited_at_exit
from official_bert.io.reading import unconverted, untuned

FILES_READ_TOGETHER = 4
RECORDS_SHUFFLED = 100
# Parsed while the devices compute; few, because every saved iterator contains them.
BATCHES_AHEAD = 2
# In one call at least, in whole batches: a call takes as long as parsing a hundred records.
_RECORDS_PARSED = 256
WEIGHTS_BELOW = 1000  # those of predictions are 0.0 and 1.0; others may be meant, but not such
_PIPELINE = 6  # number of this structure of datasets; the iterators of another cannot be restored


class Limit(NamedTuple):
    """The range of a feature's values, from 0 to below `below`; NaN lies outside. Error messages
    say its name.
    """

    below: int
    named: str


def pretraining_limits(
    vocab_size: int, type_vocab_size: int, max_seq_length: int
) -> dict[str, Limit]:
    """Returns the limits of the features in `official_bert.features.pretraining_features`.

    Args:
        vocab_size: the number of token ids, from the config.
        type_vocab_size: the number of segment ids, from the config.
        max_seq_length: the number of positions of a record.

    Returns:
        The limits by feature name.
    """
    vocabulary = Limit(vocab_size, "vocab_size of the config")
    return {
        "input_ids": vocabulary,
        "input_mask": Limit(2, "the number of values of a mask, 0 and 1,"),
        "segment_ids": Limit(type_vocab_size, "type_vocab_size of the config"),
        "masked_lm_positions": Limit(max_seq_length, "--max_seq_length"),
        "masked_lm_ids": vocabulary,
        "masked_lm_weights": Limit(WEIGHTS_BELOW, "the limit of weights"),
        "next_sentence_labels": Limit(2, "the number of next-sentence labels"),
    }


def training_dataset(  # noqa: PLR0913 - each is named in a call
    files: Sequence[str],
    features: Sequence[Feature],
    batch_size: int,
    seed: int,
    limits: Mapping[str, Limit],
    masks: DynamicMasks | None = None,
    shuffles_each_pass: bool = False,
) -> tf.data.Dataset:
    """Returns an endless dataset of shuffled batches.

    The order depends on `seed` and, as always in tf.data, on the global seed of tf.random.set_seed.
    An iterator that tf.train.Checkpoint restores goes on with the batch after the last one
    delivered. Its state contains the shuffle buffer and the batches that are parsed, about a
    megabyte at usual sizes. It can be restored only into a pipeline with the same `reading_key`.

    Args:
        files: the record files, plain or gzip.
        features: the features to read from each record.
        batch_size: the number of records of a batch.
        seed: the seed of the order.
        limits: the limits of the values, by feature name; the names are among those of `features`.
        masks: masks the batches if the records have no masks; None for records with masks.
        shuffles_each_pass: whether the files are shuffled first and repeated then. By default, they
            are repeated first and shuffled then, as in the original, so that of a few files one may
            be read twice at the same time.

    Returns:
        Batches, feature name -> int32 or float32[batch_size, length].

    Raises:
        InputError: the first record of a file does not fit, or no file has a record.
    """
    check_first_records(files, features, limits)
    together = min(FILES_READ_TOGETHER, len(files))
    # Parallel reads hide the latency of remote files; for local files their threads cost a quarter
    # of the speed.
    parallel_calls = together if any(map(is_remote, files)) else None
    dataset, records = names_and_compressions(files), record_dataset
    if shuffles_each_pass:
        dataset = dataset.shuffle(len(files), seed=seed)
    if masks:
        dataset, records = _numbering_passes(dataset, records, len(files))
    else:
        dataset = dataset.repeat()
    # The original's order: the end of one pass mixes with the start of the next.
    if not shuffles_each_pass:
        dataset = dataset.shuffle(len(files), seed=seed)
    dataset = dataset.interleave(
        unconverted(records),
        cycle_length=together,
        block_length=1,
        num_parallel_calls=parallel_calls,
    )
    dataset = dataset.shuffle(RECORDS_SHUFFLED, seed=seed)
    return _batches(dataset, features, batch_size, limits, masks=masks)


def evaluation_dataset(
    files: Sequence[str],
    features: Sequence[Feature],
    batch_size: int,
    limits: Mapping[str, Limit],
    repeat: bool = True,
    masks: DynamicMasks | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of batches in the order of the files.

    What is not described here is as in `training_dataset`.

    Args:
        files: the record files, plain or gzip.
        features: the features to read from each record.
        batch_size: the number of records of a batch.
        limits: the limits of the values, by feature name; the names are among those of `features`.
        repeat: whether the dataset is endless. Otherwise, it has every record once, and its last
            batch may be smaller.
        masks: masks the batches if the records have no masks; a record has the same mask in all
            passes. None for records with masks.

    Returns:
        Batches, feature name -> int32 or float32[batch_size, length].

    Raises:
        InputError: the first record of a file does not fit, or no file has a record.
    """
    check_first_records(files, features, limits)
    dataset = _sequential_records(files)
    if masks:
        dataset = dataset.map(lambda record: (record, tf.constant(0, tf.int64)))
    dataset = dataset.repeat() if repeat else dataset
    return _batches(dataset, features, batch_size, limits, drop_rest=repeat, masks=masks)


def count_records(files: Sequence[str]) -> int:
    """Returns the number of records in files.

    Args:
        files: the record files, plain or gzip.

    Raises:
        InputError: a file cannot be read.
    """
    batches = _sequential_records(files).batch(1024).with_options(untuned())
    return int(batches.reduce(np.int64(0), lambda count, batch: count + tf.size(batch, tf.int64)))


def _sequential_records(files: Sequence[str]) -> tf.data.Dataset:
    return names_and_compressions(files).flat_map(unconverted(record_dataset))


def reading_key(
    contents: Sequence[tuple[str, int, str | None]],
    features: Sequence[Feature],
    batch_size: int,
    shuffles_each_pass: bool = False,
) -> int:
    """Returns a hash of 60 bits of what determines a pipeline's structure and its records.

    In a pipeline with another key a saved iterator would fail later, or go on with the records of
    other files.

    Args:
        contents: the path, the size in bytes and the digest of each file, of `record_contents`.
        features: the features that the pipeline reads.
        batch_size: the number of records of a batch.
        shuffles_each_pass: the argument of `training_dataset`.
    """
    key = _PIPELINE, list(contents), list(features), batch_size
    if shuffles_each_pass:
        key += ("shuffles each pass",)
    if all(feature.name != MASKED_LM_POSITIONS for feature in features):
        key += ("zips passes",)
    digest = hashlib.sha256(repr(key).encode()).hexdigest()
    return int(digest[:15], 16)


def _numbering_passes(files: tf.data.Dataset, records: Callable, num_files: int):
    """Returns the files without end, with the number of the pass, and a function to (record,
    number of the pass).
    """
    numbers = tf.data.Dataset.counter().map(lambda count: count // num_files)
    numbered = tf.data.Dataset.zip(numbers, files.repeat()).map(_flat)
    return numbered, lambda number, *file: records(*file).map(lambda record: (record, number))


def _flat(number: tf.Tensor, file: tf.Tensor | tuple):
    return (number, *file) if isinstance(file, tuple) else (number, file)


def _batches(
    dataset: tf.data.Dataset,
    features: Sequence[Feature],
    batch_size: int,
    limits: Mapping[str, Limit],
    drop_rest: bool = True,
    masks: DynamicMasks | None = None,
) -> tf.data.Dataset:
    # A finite dataset, which ends with a smaller batch, is parsed batch by batch.
    num_together = -(-_RECORDS_PARSED // batch_size) if drop_rest else 1
    spec = {
        feature.name: tf.io.FixedLenFeature([feature.length], _stored_dtype(feature))
        for feature in features
    }

    def parse(serialized: tf.Tensor, *passes: tf.Tensor):
        parsed = tf.io.parse_example(serialized, spec)
        for name, limit in limits.items():
            within = tf.reduce_all((parsed[name] >= 0) & (parsed[name] < limit.below))
            tf.debugging.Assert(
                within, [f"{name} holds a value that is not from 0 to below {limit.below}"]
            )
        batch = {feature.name: tf.cast(parsed[feature.name], feature.dtype) for feature in features}
        if masks:
            batch |= _masked(masks, batch, serialized, *passes)
        if num_together == 1:
            return batch
        return {
            name: tf.reshape(value, [num_together, batch_size, value.shape[1]])
            for name, value in batch.items()
        }

    options = untuned()
    options.deterministic = True
    dataset = dataset.batch(num_together * batch_size, drop_remainder=drop_rest).map(
        unconverted(parse), BATCHES_AHEAD
    )
    dataset = dataset.unbatch().prefetch(BATCHES_AHEAD) if num_together > 1 else dataset
    return dataset.with_options(options)


def _masked(
    masks: DynamicMasks, features: Mapping[str, tf.Tensor], serialized: tf.Tensor, passes: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Returns the features of a masked batch that differ from those of its records."""
    records = tf.strings.to_hash_bucket_fast(serialized, 1 << 62)
    inputs = [features["input_ids"], features["input_mask"], passes, records]
    types = [tf.as_dtype(dtype) for dtype in DTYPES]
    values = tf.numpy_function(awaited_at_exit(masks), inputs, types, stateful=False)
    values[0].set_shape(inputs[0].shape)
    for value in values[1:]:
        value.set_shape([serialized.shape[0], masks.max_predictions_per_seq])
    return dict(zip(NAMES, values, strict=True))


def _stored_dtype(feature: Feature) -> tf.DType:
    return tf.float32 if feature.dtype == "float32" else tf.int64


def check_first_records(
    files: Sequence[str], features: Sequence[Feature], limits: Mapping[str, Limit]
) -> None:
    """Validates the first record of each file, without which an endless pipeline would hang;
    warns of empty files.

    Args:
        files: the record files, plain or gzip.
        features: the features that a pipeline reads.
        limits: the limits of the values, by feature name; a feature without one may have any.

    Raises:
        InputError: the first record of a file is corrupt or does not fit, or no file has a record.
    """
    firsts = _first_records(files)
    for file, values in zip(files, firsts, strict=True):
        if values is not None:
            _check_record(file, 0, values, features, limits)
        elif tf.io.gfile.stat(file).length == 0:
            logging.warning("%s: empty, holds no record", file)
    if all(values is None for values in firsts):
        raise InputError(
            f"{', '.join(files)}: no record in any file; make them with create_pretraining_data.py"
        )


def have_masks(files: Sequence[str]) -> bool:
    """Returns whether the records of the first file that has some were made with their masks.

    Args:
        files: the record files, plain or gzip.

    Raises:
        InputError: a file cannot be read, or its first record is corrupt.
    """
    return "masked_lm_ids" in next(filter(None, _first_records(files)), {})


def _first_records(files: Sequence[str]) -> list[dict[str, np.ndarray] | None]:
    return for_each(lambda file: next((values for _, values in read_examples(file)), None), files)


def diagnose(
    files: Sequence[str], features: Sequence[Feature], limits: Mapping[str, Limit]
) -> InputError | None:
    """Returns an error that names the first record that the pipeline cannot use; None if all
    records are valid.

    Args:
        files: the record files, plain or gzip.
        features: the features that the pipeline reads.
        limits: the limits of the values, by feature name; a feature without one may have any.
    """
    try:
        for file in files:
            for index, values in read_examples(file):
                _check_record(file, index, values, features, limits)
    except InputError as error:
        return error
    return None


@contextlib.contextmanager
def explaining_input_errors(
    files: Sequence[str], features: Sequence[Feature], limits: Mapping[str, Limit]
) -> Iterator[None]:
    """Replaces TensorFlow's errors about a record by those of `diagnose`: a context around the
    use of a pipeline.

    Args:
        files: the record files, plain or gzip.
        features: the features that the pipeline reads.
        limits: the limits of the values, by feature name; a feature without one may have any.

    Raises:
        InputError: the pipeline has failed at a record that it cannot use.
    """
    try:
        yield
    except (
        tf.errors.InvalidArgumentError,
        tf.errors.DataLossError,
        tf.errors.NotFoundError,
        # TensorFlow's message holds the bytes of a record that is no tf.Example.
        UnicodeDecodeError,
    ) as error:
        logging.error(
            "Reading stopped; looking through %d input files for the record at fault", len(files)
        )
        explanation = diagnose(files, features, limits)
        if explanation is None:
            raise
        raise explanation from error


def _check_record(
    file: str,
    index: int,
    values: Mapping[str, np.ndarray],
    features: Sequence[Feature],
    limits: Mapping[str, Limit],
):
    record = f"{file}: record {index} (from 0)"
    if "masked_lm_ids" in values and all(feature.name != "masked_lm_ids" for feature in features):
        raise InputError(
            f"{record} has masks already; leave out --dynamic_masking, or make the records with "
            "that flag, too"
        )
    for feature in features:
        name = feature.name
        if name not in values:
            is_unmasked = name.startswith("masked_lm_") and "input_ids" in values
            remedy = "give --dynamic_masking if no file has masks, or " if is_unmasked else ""
            raise InputError(
                f"{record} has no {name}; {remedy}make the records with create_pretraining_data.py"
            )
        stored = values[name]
        if stored.dtype != _stored_dtype(feature).as_numpy_dtype:
            raise InputError(
                f"{record}: {name} holds {stored.dtype} where {_stored_dtype(feature).name} is "
                "expected; make the records with create_pretraining_data.py"
            )
        if len(stored) != feature.length:
            raise InputError(
                f"{record}: {name} has {len(stored)} values where {feature.length} are expected; "
                "give --max_seq_length and --max_predictions_per_seq as when the records were made"
            )
        if name in limits:
            _check_values(record, name, stored, limits[name])


def _check_values(record: str, name: str, stored: np.ndarray, limit: Limit):
    wrong = stored[~((stored >= 0) & (stored < limit.below))]
    if len(wrong):
        raise InputError(
            f"{record}: {name} holds {wrong[0]}, and {limit.named} is {limit.below}; make the "
            "records for this model, or give the config and the lengths that they were made for"
        )
