"""SQuAD as a task: the loss of a span, logits into answers, the official metrics.

In: windows of questions. Out: what tasks/base.py asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from official_bert.metrics.squad import Question, evaluate_v1, evaluate_v2
from official_bert.tasks.squad.answers import Candidates, RawResult, choose_answers, extract_candidates
from official_bert.tasks.squad.examples import SquadExample
from official_bert.tasks.squad.windows import InputFeatures

NO_POSITION = -1e4  # finite, and below every logit


@dataclass(frozen=True, eq=False)
class EncodedWindows:
    """Windows as a model reads them.

    Attributes:
        input_ids: int32[n, max_seq_length], padded with 0.
        lengths: int64[n], tokens of each window.
        offsets: int64[n], where the document begins behind the question.
        positions: int32[n, 2], where the answer begins and ends; None in prediction.
    """

    input_ids: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    positions: np.ndarray | None = None

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """A batch: the encoder's features, int32[b, length], and in training `start_positions` and `end_positions`.

        Args:
            rows: int[b], which windows, in order.
            length: that they are padded to; none may be longer.
        """
        place, ends = np.arange(length), self.lengths[rows, None]
        batch = {
            "input_ids": self.input_ids[rows, :length],
            "input_mask": (place < ends).astype(np.int32),
            "segment_ids": ((place >= self.offsets[rows, None]) & (place < ends)).astype(np.int32),
        }
        if self.positions is not None:
            batch["start_positions"], batch["end_positions"] = self.positions[rows].T
        return batch


@dataclass(frozen=True, eq=False)
class EncodedQuestions(EncodedWindows):
    """A set to be answered.

    Attributes:
        examples: the questions.
        windows: of the questions, n.
        gold: the true answers; None if the file has none.
    """

    examples: Sequence[SquadExample] = ()
    windows: Sequence[InputFeatures] = ()
    gold: Sequence[Question] | None = None


class WindowCollector:
    """Takes windows one by one and keeps the numbers of them."""

    def __init__(self):
        self._input_ids, self._places, self._positions = [], [], []

    def add(self, window: InputFeatures):
        """Appends a window."""
        self._input_ids.append(window.input_ids)
        self._places.append((len(window.tokens), np.argmax(window.segment_ids)))
        if window.start_position is not None:
            self._positions.append((window.start_position, window.end_position))

    def arrays(self) -> dict[str, np.ndarray | None]:
        """The fields of EncodedWindows."""
        lengths, offsets = np.array(self._places, np.int64).reshape(-1, 2).T
        return {
            "input_ids": np.array(self._input_ids, np.int32),
            "lengths": lengths,
            "offsets": offsets,
            "positions": np.array(self._positions, np.int32) if self._positions else None,
        }


@dataclass(frozen=True, kw_only=True)
class AnswerRules:
    """How logits become answers; the fields are arguments of `squad_answers.extract_candidates`."""

    n_best_size: int = 20
    max_answer_length: int = 30
    do_lower_case: bool = True
    version_2_with_negative: bool = False
    verbose_logging: bool = False
    strip_accents: bool | None = None


@dataclass(frozen=True, kw_only=True)
class TextRules:
    """What an export that reads text must know beside.

    Attributes:
        doc_stride: tokens from the start of a window to that of the next.
        max_query_length: tokens of a question that are kept.
        null_score_diff_threshold: null odds above which the answer is ""; read with version 2 only.
        ranks_padding: whether padding up to the longest window takes part in the choice of the best starts and ends,
            as in the script; then every window costs as much as the longest.
    """

    doc_stride: int = 128
    max_query_length: int = 64
    null_score_diff_threshold: float = 0.0
    ranks_padding: bool = True


class SquadTask:
    """The task of run_squad.py. Devlin et al. (2019), sections 4.2 and 4.3."""

    untrained = ("bert/pooler",)  # the spans do not read it
    labels = num_choices = None
    text_inputs: ClassVar = {"question": [None], "context": [None]}

    def __init__(
        self,
        rules: AnswerRules | None = None,
        null_score_diff_threshold: float | None = 0.0,
        max_seq_length: int | None = None,
        text_rules: TextRules | None = None,
    ):
        """Sets how logits become answers.

        Args:
            rules: the original's defaults if None.
            null_score_diff_threshold: null odds above which `metrics` takes a question as left unanswered; None for
                the best threshold of the set that is measured.
            max_seq_length: length that the logits of shorter batches are filled up to; none are if None.
            text_rules: for exports that read text; the defaults if None.
        """
        self.rules, self.text_rules = rules or AnswerRules(), text_rules or TextRules()
        self.max_seq_length = max_seq_length
        is_tuned = null_score_diff_threshold is None and self.rules.version_2_with_negative
        self.main_metric = "best_f1" if is_tuned else "f1"
        self._threshold = np.inf if is_tuned else null_score_diff_threshold

    def build_model(self, config, use_one_hot_embeddings: bool):
        """A BertSpans."""
        from official_bert.modeling import BertSpans

        return BertSpans(config, use_one_hot_embeddings)

    def losses(self, model, features: dict):
        """Float32[B]: the mean of the cross-entropies of the answer's beginning and end, over padding, too."""
        logits = model(features)
        targets = features["start_positions"], features["end_positions"]
        start, end = (_position_loss(*pair) for pair in zip(logits, targets, strict=True))
        return (start + end) / 2.0

    def weights(self, features: dict):
        """Float32[B]: every window counts as much."""
        from keras import ops

        return ops.ones_like(features["start_positions"], dtype="float32")

    def outputs(self, model, features: dict) -> dict:
        """`start_logits` and `end_logits`, float32[B, S] each; of -10000 where the batch has no position."""
        from keras import ops

        found = self.serving_outputs(model, features)
        if not self.max_seq_length:
            return found
        missing = self.max_seq_length - ops.shape(features["input_ids"])[1]
        padding = [[0, 0], [0, missing]]
        return {name: ops.pad(logits, padding, constant_values=NO_POSITION) for name, logits in found.items()}

    def serving_outputs(self, model, features: dict) -> dict:
        """`start_logits` and `end_logits`, float32[B, S] each."""
        from keras import ops

        start, end = (ops.cast(logits, "float32") for logits in model(features))
        return {"start_logits": start, "end_logits": end}

    def serving_text(self, model, texts: dict, reader) -> dict:
        """`answer`, string[B], with its place and its score; see squad_text.py."""
        import tensorflow as tf

        from official_bert.tasks.squad.in_graph import answer_questions

        def logits(features):
            return tf.stack(list(self.serving_outputs(model, features).values()), axis=-1)

        return answer_questions(
            logits, texts["question"], texts["context"], reader, self.rules, self.text_rules
        )

    def metrics(self, encoded: EncodedQuestions, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The official figures of a set that has true answers."""
        candidates = self.candidates(encoded, raw_results(encoded.windows, outputs))
        answers = choose_answers(*candidates, self._threshold)
        return self.scores(encoded.gold, answers, candidates.null_odds)

    def candidates(self, encoded: EncodedQuestions, results: Sequence[RawResult]) -> Candidates:
        """N-best lists and null odds from a result for each window."""
        return extract_candidates(encoded.examples, encoded.windows, results, **vars(self.rules))

    def scores(
        self, gold: Sequence[Question], answers: Mapping[str, str], null_odds: Mapping[str, float]
    ) -> dict[str, float]:
        """What the official script prints of a file of answers.

        Version 2's gets the null odds for its search of the best threshold, and a threshold that leaves the answers
        as they are.
        """
        if self.rules.version_2_with_negative:
            return evaluate_v2(gold, answers, null_odds, null_odds_threshold=np.inf)
        return evaluate_v1(gold, answers)


def raw_results(windows: Sequence[InputFeatures], outputs: Mapping[str, np.ndarray]) -> list[RawResult]:
    """A task's outputs for windows, in their order, as the original's results."""
    if not windows:
        return []
    rows = zip(windows, outputs["start_logits"], outputs["end_logits"], strict=True)
    return [RawResult(window.unique_id, start, end) for window, start, end in rows]


def _position_loss(logits, positions):
    """Float[B, S] and int32[B] to float32[B]; 0 where a position is none of the S."""
    from keras import ops

    from official_bert.modeling.losses import cross_entropy

    inside = ops.logical_and(positions >= 0, positions < ops.shape(logits)[-1])
    loss = cross_entropy(logits, ops.where(inside, positions, ops.zeros_like(positions)))
    return ops.where(inside, loss, ops.zeros_like(loss))
