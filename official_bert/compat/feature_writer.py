"""Windows of SQuAD as arrays and TFRecord files, and the original's functions to write and read these files."""

import contextlib
from collections.abc import Sequence

import numpy as np

from official_bert.compat.input_functions import InputFn, record_input_fn
from official_bert.data.records.framing import open_example_files
from official_bert.features import squad_features
from official_bert.tasks.squad.windows import InputFeatures

_RECORDS_AT_A_TIME = 256


def record_arrays(features: Sequence[InputFeatures], is_training: bool) -> dict[str, np.ndarray]:
    """Converts windows to arrays by record name, int[batch, max_seq_length] or int[batch, 1], in the table's order."""
    attribute_of = {
        "unique_ids": "unique_id",
        "start_positions": "start_position",
        "end_positions": "end_position",
    }
    return {
        name: np.array([getattr(feature, attribute_of.get(name, name)) for feature in features], int).reshape(
            len(features), length
        )
        for name, length, _ in squad_features(len(features[0].input_ids), is_training)
    }


def input_fn_builder(input_file: str, seq_length: int, is_training: bool, drop_remainder: bool) -> InputFn:
    """Builds an input function for a file of a FeatureWriter.

    Args:
        input_file: the record file; compressed with gzip if its name ends in .gz.
        is_training: whether the positions of the answers are read, and the windows are shuffled and repeated without
            end; otherwise they are read once, in order.

    Returns:
        A function of `params`, from which it reads "batch_size", to a Dataset of `input_ids`, `input_mask` and
        `segment_ids`, int32[B, seq_length], `unique_ids` and, in training, `start_positions` and `end_positions`,
        int32[B].
    """
    features = [one for one in squad_features(seq_length, is_training) if one.name != "is_impossible"]
    return record_input_fn(input_file, features, is_training, drop_remainder)


class FeatureWriter:
    """Writes windows to a TFRecord file, which gets its name only when it is closed; also a context manager.

    Args:
        filename: the file.
        is_training: whether the positions of the answers are written.

    Attributes:
        num_features: number of windows received so far.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, filename: str, is_training: bool):
        self.filename, self.is_training = filename, is_training
        self.num_features = 0
        self._waiting: list[InputFeatures] = []
        self._stack = contextlib.ExitStack()
        self._files = self._stack.enter_context(open_example_files([filename]))
        self._stack.push(self._write_rest)  # runs at exit, before the file gets its name

    def process_feature(self, feature: InputFeatures):
        """Appends a window."""
        self.num_features += 1
        self._waiting.append(feature)
        if len(self._waiting) == _RECORDS_AT_A_TIME:
            self._write()

    def close(self):
        """Completes the file and gives it its name."""
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def _write_rest(self, error_type, error, traceback):
        if error_type is None and self._waiting:
            self._write()

    def _write(self):
        self._files.write(record_arrays(self._waiting, self.is_training))
        self._waiting.clear()
