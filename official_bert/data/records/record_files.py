"""Writes whole files of records: encoded data sets, and pre-training instances with the original's log; finds files.

In: features of examples, or names and globs. Out: TFRecord files, which get their names when they are complete.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from absl import logging

from official_bert.data.records.framing import ExampleFiles, open_example_files
from official_bert.data.text_lines import log_example
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.io.progress import Progress

MANIFEST_SUFFIX = ".manifest.json"  # beside sharded record files; a glob may match it although it is none
_EXAMPLES_AT_ONCE = 1_000
_EXAMPLES_BETWEEN_LINES = 10_000
_LOGGED_EXAMPLES = 20


def write_encoded_set(path: str, num_examples: int, records: Callable[[np.ndarray], Mapping[str, np.ndarray]]):
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


def write_features(batches: Iterable[dict[str, np.ndarray]], example_files: ExampleFiles, inv_vocab: Mapping[int, str]):
    """Writes batches of record features; instance k goes to file k mod n.

    Args:
        batches: batches of the seven features, name -> int or float32[batch, length].
        example_files: the files.
        inv_vocab: id -> token, for the log.
    """
    progress = Progress("instances written")
    for features in batches:
        for row in range(min(len(features["input_ids"]), _LOGGED_EXAMPLES - example_files.num_written)):
            example = {name: values[row].tolist() for name, values in features.items()}
            _log_example(example, inv_vocab, is_first=not example_files.num_written + row)
        example_files.write(features)
        progress(example_files.num_written)
    logging.info("Wrote %d total instances", example_files.num_written)


def log_files(title: str, paths: Iterable[str]):
    """Logs a heading and the paths below it."""
    logging.info("*** %s ***", title)
    for path in paths:
        logging.info("  %s", path)


def _log_example(example: Mapping[str, list], inv_vocab: Mapping[int, str], is_first: bool):
    tokens = [inv_vocab[i] for i in example["input_ids"][: sum(example["input_mask"])]]

    def details():
        yield f"tokens: {' '.join(tokens)}"
        for name, values in example.items():
            yield f"{name}: {' '.join(map(str, values))}"

    log_example(tokens, is_first, details)


def expand_records(patterns: Iterable[str], flag: str) -> list[str]:
    """Returns the record files that a list of names and globs matches, without the manifests that globs match.

    Args:
        patterns: names or globs.
        flag: the flag with the list, for the error message.

    Raises:
        InputError: a pattern matches no file, or there is no pattern.
    """
    named = set(patterns)
    found = files.expand(patterns, flag)
    records = [path for path in found if path in named or not path.endswith(MANIFEST_SUFFIX)]
    if not records:
        raise InputError(f"--{flag}: no file of records matches {','.join(named)!r}; check the path or the glob")
    return records
