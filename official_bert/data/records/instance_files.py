"""Writes pre-training instances to their files and logs the first ones, as the original does."""

from collections.abc import Iterable, Mapping

from absl import logging

from official_bert.data.corpus.instances import Features
from official_bert.data.example_log import log_example
from official_bert.data.records.framing import ExampleFiles
from official_bert.progress import Progress

_LOGGED_EXAMPLES = 20


def write_features(batches: Iterable[Features], example_files: ExampleFiles, inv_vocab: Mapping[int, str]):
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
