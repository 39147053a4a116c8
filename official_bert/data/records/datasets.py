"""Reads a TFRecord file as a tf.data pipeline, after a check of its lengths, for which TensorFlow reserves memory."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Sequence
from typing import TYPE_CHECKING

from official_bert.data.records.framing import is_compressed

if TYPE_CHECKING:
    import tensorflow as tf

# What tf.data.Dataset.skip leaves out: all records, or the whole file unread.
_ALL, _NONE_READ = (1 << 31) - 1, -1
_FILES_OPENED_TOGETHER = 16  # which hides the latency of remote ones


def names_and_compressions(files: Sequence[str]) -> tf.data.Dataset:
    """Returns a dataset of the arguments of `records_of` for each file, whose first bytes are read now.

    Raises:
        InputError: a file does not exist.
    """
    import tensorflow as tf

    with concurrent.futures.ThreadPoolExecutor(_FILES_OPENED_TOGETHER) as pool:
        compressed = list(pool.map(is_compressed, files))
    return tf.data.Dataset.from_tensor_slices((list(files), compressed))


def untuned() -> tf.data.Options:
    """Returns the options of a pipeline whose parallelism is given, so that TensorFlow starts no thread to tune it.

    Such a thread can miss that its iterator is deleted, and whoever deletes it, often the end of the process, then
    waits for the thread: as long as the pipeline has run, up to a minute.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def records_of(file: str | tf.Tensor, is_compressed: bool | tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset of the serialized records, string[], of one file.

    TensorFlow reserves the memory for a record before it reads it, so a length of 2^40 ends the process, also with a
    valid checksum. To skip a record it only reads the length, and notices where the file ends. All records of a file
    are therefore skipped when it is opened. Compressed files are read in pieces, and need no such check; remote ones
    get none, because it would read them twice.

    Args:
        file: the path, string[].
        is_compressed: whether the file is compressed with gzip, bool[].

    Raises (where the file is opened or read):
        tf.errors.DataLossError: a record exceeds the file, or a checksum is wrong.
    """
    import tensorflow as tf

    file = tf.convert_to_tensor(file)
    is_remote = tf.strings.regex_full_match(file, r".*://.*")
    compression = tf.where(is_compressed, "GZIP", "")
    skipped = tf.cast(tf.where(is_compressed | is_remote, _NONE_READ, _ALL), tf.int64)
    # Not as a part of the dataset: after an error a pipeline goes on with its next part.
    unread = tf.data.TFRecordDataset(file, compression).skip(skipped).with_options(untuned())
    checked = unread.reduce(0, lambda count, _: count + 1)
    with tf.control_dependencies([checked]):
        file = tf.identity(file)
    return tf.data.TFRecordDataset(file, compression)
