"""Encoded questions: the ids of their windows, in arrays.

In: `SquadExample`s and a tokenizer. Out: `EncodedWindows`, and for prediction `EncodedQuestions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from official_bert.metrics.squad import Question
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.windows import FIRST_UNIQUE_ID, LOGGED_EXAMPLES, InputFeatures, windows_of
from official_bert.tokenization import FullTokenizer


@dataclass(frozen=True, eq=False)
class EncodedWindows:
    """The windows of a set as arrays.

    Attributes:
        input_ids: int32[n, max_seq_length], padded with 0.
        lengths: int64[n], tokens of each window.
        offsets: int64[n], position of the document's first piece, after the question.
        positions: int32[n, 2], first and last position of the answer; None in prediction.
        is_impossible: int32[n], 1 for the windows of questions without an answer; None in prediction.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    positions: np.ndarray | None = None
    is_impossible: np.ndarray | None = None

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns a batch: encoder features, int32[b, length], and in training `start_positions` and `end_positions`.

        Args:
            rows: int[b], indices of the windows, in order.
            length: the padded length in tokens; no window may be longer.
        """
        columns, ends = np.arange(length), self.lengths[rows, None]
        batch = {
            "input_ids": self.input_ids[rows, :length],
            "input_mask": (columns < ends).astype(np.int32),
            "segment_ids": ((columns >= self.offsets[rows, None]) & (columns < ends)).astype(np.int32),
        }
        if self.positions is not None:
            batch["start_positions"], batch["end_positions"] = self.positions[rows].T
        return batch

    def record(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of some windows in the form of the original's record files."""
        found = {"unique_ids": FIRST_UNIQUE_ID + rows} | self.features(rows, length)
        if self.is_impossible is not None:
            found["is_impossible"] = self.is_impossible[rows]
        return found


@dataclass(frozen=True, eq=False)
class EncodedQuestions(EncodedWindows):
    """An encoded set of questions for prediction.

    Attributes:
        examples: the questions.
        windows: the n windows of the questions.
        gold: the true answers; None if the file has none.
    """

    examples: Sequence[SquadExample] = ()
    windows: Sequence[InputFeatures] = ()
    gold: Sequence[Question] | None = None


def encode_training(
    examples: Iterable[SquadExample], tokenizer: FullTokenizer, rules: SquadRules
) -> EncodedWindows:
    """Encodes training questions, and drops the tokens and word maps of their windows, which only prediction needs."""
    return EncodedWindows(**_arrays(windows_of(examples, tokenizer, rules, is_training=True)))


def encode_questions(
    examples: Sequence[SquadExample],
    tokenizer: FullTokenizer,
    rules: SquadRules,
    gold: Sequence[Question] | None = None,
    num_logged: int = LOGGED_EXAMPLES,
) -> EncodedQuestions:
    """Encodes questions for prediction.

    Args:
        examples: the questions.
        tokenizer: the tokenizer with the vocabulary.
        rules: the rules, which contain the lengths.
        gold: the true answers, if they are known.
        num_logged: number of questions whose windows are logged.
    """
    windows = list(windows_of(examples, tokenizer, rules, is_training=False, num_logged=num_logged))
    return EncodedQuestions(**_arrays(windows), examples=examples, windows=windows, gold=gold)


def _arrays(windows: Iterable[InputFeatures]) -> dict[str, np.ndarray | None]:
    """Collects the fields of EncodedWindows without keeping the windows in memory."""
    input_ids, extents, positions, is_impossible = [], [], [], []
    for window in windows:
        input_ids.append(window.input_ids)
        extents.append((len(window.tokens), np.argmax(window.segment_ids)))
        if window.start_position is not None:
            positions.append((window.start_position, window.end_position))
            is_impossible.append(window.is_impossible)
    lengths, offsets = np.array(extents, np.int64).reshape(-1, 2).T
    return {
        "input_ids": np.array(input_ids, np.int32),
        "lengths": lengths,
        "offsets": offsets,
        "positions": np.array(positions, np.int32) if positions else None,
        "is_impossible": np.array(is_impossible, np.int32) if positions else None,
    }
