"""Reads a TFRecord file as a tf.data pipeline, after a check that TensorFlow can read it without crashing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from official_bert.data.records.framing import first_length_beyond_end

if TYPE_CHECKING:
    import tensorflow as tf


def records_of(file: str | tf.Tensor) -> tf.data.Dataset:
    """Returns a dataset of the serialized records, string[], of one file, decompressed if its name ends in .gz.

    TensorFlow allocates the length that a record claims before it reads the record: a length of 2^40 ends the process.
    The lengths of an uncompressed local file are therefore compared with its size when it is opened, once per file and
    process. Compressed files are read in pieces, and need no check; remote ones get none, because it would cost a
    request for each record.

    Args:
        file: the path, string[].

    Raises (as tf.errors, when the dataset is read):
        InvalidArgumentError: the length of a record exceeds the file.
    """
    import tensorflow as tf

    file = tf.convert_to_tensor(file)
    # Stateless: an iterator with it can be saved.
    bad = tf.numpy_function(
        lambda path: first_length_beyond_end(path.decode()), [file], tf.int64, stateful=False
    )
    fits = tf.debugging.Assert(bad < 0, [file, "has a record whose length exceeds the file: record", bad])
    with tf.control_dependencies([fits]):
        file = tf.identity(file)
    gzip = tf.strings.regex_full_match(file, r".*\.gz")
    return tf.data.TFRecordDataset(file, compression_type=tf.where(gzip, "GZIP", ""))
