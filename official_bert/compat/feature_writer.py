"""The original's functions of run_squad.py.

They make windows of contexts, TFRecord files of windows, and files of answers.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from absl import logging

from official_bert.compat.input_functions import InputFn, record_input_fn
from official_bert.data.records.framing import open_example_files
from official_bert.features import squad_features
from official_bert.tasks.squad.answers import (
    RawResult,
    choose_answers,
    extract_candidates,
    write_json,
)
from official_bert.tasks.squad.answers import softmax as _compute_softmax  # noqa: F401
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import InputFeatures, make_windows
from official_bert.tokenization import FullTokenizer

_RECORDS_AT_A_TIME = 256


def _get_best_indexes(logits: Sequence[float], n_best_size: int) -> list[int]:
    """Returns the positions of the highest logits, the first among equals."""
    return np.argsort(-np.asarray(logits, float), kind="stable")[:n_best_size].tolist()


def record_arrays(features: Sequence[InputFeatures], is_training: bool) -> dict[str, np.ndarray]:
    """Converts windows to arrays by record name.

    Args:
        features: the windows of a batch.
        is_training: whether the arrays of the answers are included.

    Returns:
        int[batch, max_seq_length] or int[batch, 1] for each name.
    """
    attributes = {
        "unique_ids": "unique_id",
        "start_positions": "start_position",
        "end_positions": "end_position",
    }
    arrays = {}
    for name, length, _ in squad_features(len(features[0].input_ids), is_training):
        attribute = attributes.get(name, name)
        values = [getattr(feature, attribute) for feature in features]
        arrays[name] = np.array(values, int).reshape(len(features), length)
    return arrays


def input_fn_builder(
    input_file: str, seq_length: int, is_training: bool, drop_remainder: bool
) -> InputFn:
    """Builds an input function for a file of a FeatureWriter, plain or gzip.

    It reads "batch_size" from its `params`, and returns a Dataset of `input_ids`, `input_mask` and
    `segment_ids`, int32[B, seq_length], and `unique_ids`, int32[B]. In training the Dataset also
    has `start_positions` and `end_positions`, int32[B].

    Args:
        input_file: the path of the file.
        seq_length: the number of tokens of a window, which is that of the file.
        is_training: whether the windows have answers, and are shuffled and repeated without end.
        drop_remainder: whether a last batch of fewer windows is left out.
    """
    all_features = squad_features(seq_length, is_training)
    features = [feature for feature in all_features if feature.name != "is_impossible"]
    return record_input_fn(input_file, features, is_training, drop_remainder)


class FeatureWriter:
    """Writes windows to a TFRecord file, which gets its name only when it is closed; also a context
    manager.

    In training the positions of the answers are written, too; `num_features` counts the windows
    received so far.
    """

    def __init__(self, filename: str, is_training: bool):
        self.filename, self.is_training = filename, is_training
        self.num_features = 0
        self._waiting: list[InputFeatures] = []
        self._stack = contextlib.ExitStack()
        self._files = self._stack.enter_context(open_example_files([filename]))
        self._stack.push(self._write_rest)  # runs at exit, before the file gets its name

    def process_feature(self, feature: InputFeatures) -> None:
        """Writes a window, and adds it to `num_features`.

        The last windows are in the file only when it is closed.

        Args:
            feature: the window; in training with the positions of its answer.
        """
        self.num_features += 1
        self._waiting.append(feature)
        if len(self._waiting) == _RECORDS_AT_A_TIME:
            self._write()

    def close(self) -> None:
        """Completes the file and gives it its name."""
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *error: Any):
        return self._stack.__exit__(*error)

    def _write_rest(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ):
        if error_type is None and self._waiting:
            self._write()

    def _write(self):
        self._files.write(record_arrays(self._waiting, self.is_training))
        self._waiting.clear()


def convert_examples_to_features(  # noqa: PLR0913 - the original's arguments
    examples: Iterable[SquadExample],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    is_training: bool,
    output_fn: Callable[[InputFeatures], object],
) -> None:
    """Passes the windows of every question to a function, in order.

    Args:
        examples: the questions with their contexts.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens in a window.
        doc_stride: the number of tokens between the starts of two windows.
        max_query_length: the maximum number of tokens in a question.
        is_training: whether the windows have the positions of the answers.
        output_fn: the function.
    """
    rules = SquadRules(
        max_seq_length=max_seq_length, doc_stride=doc_stride, max_query_length=max_query_length
    )
    for window in make_windows(examples, tokenizer, rules, is_training):
        output_fn(window)


def write_predictions(  # noqa: PLR0913 - the original's arguments
    all_examples: Sequence[SquadExample],
    all_features: Iterable[InputFeatures],
    all_results: Iterable[RawResult],
    n_best_size: int,
    max_answer_length: int,
    do_lower_case: bool,
    output_prediction_file: str,
    output_nbest_file: str,
    output_null_log_odds_file: str | None,
    version_2_with_negative: bool = False,
    null_score_diff_threshold: float = 0.0,
    verbose_logging: bool = False,
    strip_accents: bool | None = None,
) -> None:
    """Answers every question and writes the answers, the n-best lists and the null odds.

    Args:
        all_examples: the questions with their contexts.
        all_features: the windows of all questions.
        all_results: the logits of all windows.
        n_best_size: the number of start and end positions considered in a window, and the size of
            an n-best list. With version 2 the list has a further entry for "no answer".
        max_answer_length: the maximum number of tokens in an answer.
        do_lower_case: whether the tokenizer lower-cases.
        output_prediction_file: the file of the answers.
        output_nbest_file: the file of the n-best lists.
        output_null_log_odds_file: the file of the null odds, which version 2 needs.
        version_2_with_negative: whether questions may have no answer.
        null_score_diff_threshold: the null odds above which a question has no answer.
        verbose_logging: whether words that cannot be aligned with the text are logged.
        strip_accents: whether the tokenizer strips accents; None for as it lower-cases.

    Raises:
        TypeError: version 2 has no file for the null odds. The other files are written, as in the
            original.
    """
    logging.info("Writing predictions to: %s", output_prediction_file)
    logging.info("Writing nbest to: %s", output_nbest_file)
    rules = SquadRules(
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
        do_lower_case=do_lower_case,
        strip_accents=strip_accents,
        version_2_with_negative=version_2_with_negative,
        verbose_logging=verbose_logging,
    )
    nbest, null_odds = extract_candidates(all_examples, all_features, all_results, rules)
    write_json(output_prediction_file, choose_answers(nbest, null_odds, null_score_diff_threshold))
    write_json(output_nbest_file, nbest)
    if version_2_with_negative:
        if output_null_log_odds_file is None:
            raise TypeError(
                "output_null_log_odds_file: is None, but version 2 has null odds; give a path"
            )
        write_json(output_null_log_odds_file, null_odds)
