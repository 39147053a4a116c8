"""Writes an encoded data set, padded to one length, as a TFRecord file, as the original's fine-tuning scripts do."""

from collections.abc import Callable, Mapping

import numpy as np
from absl import logging

from official_bert.data.records.framing import open_example_files

_EXAMPLES_AT_ONCE = 1_000
_EXAMPLES_BETWEEN_LINES = 10_000


def write_encoded_set(
    path: str, num_examples: int, records: Callable[[np.ndarray], Mapping[str, np.ndarray]]
):
    """Writes a record for each example.

    Args:
        path: of the file, which takes this name when it is complete.
        num_examples: of the set.
        records: a function from numbers of examples, int[b], to their features by name, each [b, ...].

    Raises:
        InputError: the file cannot be written.
    """
    with open_example_files([path]) as file:
        for start in range(0, num_examples, _EXAMPLES_AT_ONCE):
            log_progress(start, num_examples)
            rows = np.arange(start, min(start + _EXAMPLES_AT_ONCE, num_examples))
            file.write({name: values.reshape(len(rows), -1) for name, values in records(rows).items()})


def log_progress(index: int, num_examples: int):
    """Logs every ten thousandth example, as the original does."""
    if index % _EXAMPLES_BETWEEN_LINES == 0:
        logging.info("Writing example %d of %d", index, num_examples)
