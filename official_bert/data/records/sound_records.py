"""Reads the sound records of damaged files, for a training that is to go on without the others.

In: TFRecord files, plain or gzip. Out: the ranges of sound records of each damaged file, and a tf.data pipeline of the
records in them. Only a run that asks for it looks through its files, at about half a gigabyte a second; files without
damage are then read as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import logging

from official_bert.data.records.datasets import untuned
from official_bert.data.records.framing import StoredRecord, is_compressed, of_decompressed, scan_records
from official_bert.progress import counted

if TYPE_CHECKING:
    import tensorflow as tf

_ALL = -1  # what tf.data.Dataset.take takes for all
_MOST_RANGES_OF_GZIP = 16  # each is read by inflating all before it
_BUFFER_BYTES = 256 << 10  # of one open file, as in tf.data.TFRecordDataset


class Range(NamedTuple):
    """Consecutive sound records of a file.

    Attributes:
        offset: the byte at which the first one begins; 0 in a compressed file, in which TensorFlow cannot go to it.
        skipped: the number of records from there to the first one.
        count: their number.
    """

    offset: int
    skipped: int
    count: int


Ranges = Mapping[str, Sequence[Range]]  # of damaged files, by name


def find_sound_ranges(files: Sequence[str]) -> dict[str, list[Range]]:
    """Looks through files, and warns of each damaged one with the number and the place of what is damaged.

    Returns:
        The ranges of sound records of the damaged files; empty if there are none.
    """
    logging.info("Looking for damaged records in %d input files", len(files))
    found, num_skipped, num_cut = {}, 0, 0
    for file in counted(files, "input files looked through"):
        ranges, faults = _scan(file)
        if faults:
            found[file] = ranges
            is_cut = faults[-1].data is None
            num_skipped, num_cut = num_skipped + len(faults) - is_cut, num_cut + is_cut
            logging.warning("%s: %s", file, _described(ranges, faults, of_decompressed(file)))
    if found:
        logging.warning(
            "--skip_corrupt_records: each pass over the %d input files leaves out %d damaged records, and the ends of "
            "%d files, which cannot be read",
            len(files),
            num_skipped,
            num_cut,
        )
    return found


def _scan(file: str) -> tuple[list[Range], list[StoredRecord]]:
    """Returns the ranges of the sound records of a file, and its damaged records."""
    is_gzip = is_compressed(file)
    found, faults, in_range = [], [], False
    for record in scan_records(file):
        if record.fault:
            faults.append(record)
        elif in_range:
            found[-1][2] += 1
        elif is_gzip and len(found) == _MOST_RANGES_OF_GZIP:
            faults.append(
                record._replace(data=None, fault="a compressed file with damage in too many places")
            )
            break
        else:
            found.append([0, record.number, 1] if is_gzip else [record.offset, 0, 1])
        in_range = not record.fault
    ranges = [Range(*each) for each in found]
    if faults and is_gzip:  # TensorFlow inflates ahead, so it may meet the damage some records earlier
        ranges = [range_._replace(count=_num_readable(file, range_)) for range_ in ranges]
    return ranges, faults


def _described(ranges: Sequence[Range], faults: Sequence[StoredRecord], of_what: str) -> str:
    def place(record):
        return f"record {record.number} (from 0) at byte {record.offset}{of_what} ({record.fault})"

    skipped, cut = [record for record in faults if record.data is not None], faults[-1]
    are = "records are" if len(skipped) > 1 else "record is"
    parts = [f"{len(skipped)} damaged {are} skipped, first {place(skipped[0])}"] if skipped else []
    parts += [f"nothing can be read from {place(cut)} on"] if cut.data is None else []
    return "; ".join([*parts, f"{sum(each.count for each in ranges)} sound records are read"])


def _num_readable(file: str, range_: Range) -> int:
    elements, records_of = open_sound([file], {file: [range_]})
    records = elements.flat_map(records_of).ignore_errors(log_warning=False).with_options(untuned())
    return int(records.reduce(np.int64(0), lambda count, _: count + 1))


def open_sound(
    files: Sequence[str], damaged: Ranges
) -> tuple[tf.data.Dataset, Callable[..., tf.data.Dataset]]:
    """Returns a dataset with an element for each file, and a function of an element to the file's sound records.

    Args:
        files: the names of record files.
        damaged: what `find_sound_ranges` found in them.
    """
    import tensorflow as tf

    rows = [damaged.get(file, [Range(0, 0, _ALL)]) for file in files]
    ends = np.cumsum([len(ranges) for ranges in rows])
    flat = np.array([range_ for ranges in rows for range_ in ranges], np.int64).reshape(-1, 3)
    compressions = ["GZIP" if is_compressed(file) else "" for file in files]
    starts = ends - [len(ranges) for ranges in rows]
    elements = tf.data.Dataset.from_tensor_slices((list(files), compressions, starts, ends))

    def records_of(file, compression, start, end):
        ranges = tf.data.Dataset.from_tensor_slices(tf.constant(flat)[start:end])
        return ranges.flat_map(lambda row: _records_in(file, compression, row[0], row[1], row[2]))

    return elements, records_of


def _records_in(file, compression, offset, skipped, count) -> tf.data.Dataset:
    """Returns a dataset of the serialized records, string[], of one range."""
    import tensorflow as tf

    # The class tf.data.TFRecordDataset has no offset. This operation works only in a function that another dataset
    # maps: as a part of the outermost dataset it cannot be serialized, which iteration needs.
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=[file], compression_type=compression, buffer_size=_BUFFER_BYTES, byte_offsets=[offset]
    )
    records = tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))
    return records.skip(skipped).take(count)
