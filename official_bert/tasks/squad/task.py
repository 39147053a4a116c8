"""SQuAD as a task: the loss of a span, the answers chosen by logits, the official metrics.

In: SQuAD files. Out: the methods of Task in tasks/base.py. Devlin et al. (2019), sections 4.2 and 4.3.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.io.errors import InputError
from official_bert.metrics.squad import Question, best_null_odds_threshold, evaluate_v1, evaluate_v2
from official_bert.modeling import BertSpans
from official_bert.modeling.losses import cross_entropy
from official_bert.tasks.base import ORIGINAL_BUFFER_SIZE, DataFiles, Settings, Task
from official_bert.tasks.clients import ServedModel
from official_bert.tasks.squad.answers import (
    Candidates,
    RawResult,
    choose_answers,
    extract_candidates,
    raw_results,
    write_json,
)
from official_bert.tasks.squad.client import SquadClient
from official_bert.tasks.squad.examples import SquadExample, read_gold_answers, read_squad_examples
from official_bert.tasks.squad.rules import NO_POSITION, SquadRules
from official_bert.tasks.squad.windows import (
    EncodedQuestions,
    EncodedWindows,
    encode_questions,
    encode_training,
)

SHUFFLE_SEED = 12345  # shuffles the training questions before they are cut into windows


class QuestionSet(NamedTuple):
    """The questions of a file.

    Attributes:
        path: the path of the file.
        examples: the questions.
        gold: the true answers; None in training, and if the file has none.
    """

    path: str
    examples: list[SquadExample]
    gold: list[Question] | None = None


class SquadTask(Task):
    """The task of run_squad.py."""

    unused_weights = ("bert/pooler",)  # the span head does not read the pooled output
    text_inputs: ClassVar = {"question": [None], "context": [None]}
    record_files: ClassVar = {"train": "train", "test": "eval"}
    shuffle_buffer_size = ORIGINAL_BUFFER_SIZE
    loss_reads_padding = True

    def __init__(self, rules: SquadRules | None = None):
        """Args: rules: None for the original's defaults."""
        self.rules = rules or SquadRules()

    @classmethod
    def from_settings(cls, variant: None, settings: Settings) -> Self:
        """Makes the task with the rules that the flags give."""
        return cls(SquadRules.from_settings(settings))

    @property
    def main_metric(self) -> str:
        """The key of F1; of the F1 at the best threshold while the threshold has to be tuned."""
        return "best_f1" if self.rules.is_tuned else "f1"

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, QuestionSet]:
        """Reads the questions of the set's file; training questions are shuffled as in the original."""
        path = data_files.path(set_name, [])
        return {"": self.read_training(path) if set_name == "train" else self.read_questions(path)}

    def read_training(self, path: str) -> QuestionSet:
        """Reads the questions of a training file."""
        examples = read_squad_examples(path, True, self.rules.version_2_with_negative)
        if not examples:
            raise InputError(
                f"{path}: has no question whose answer stands in its document; correct its answers or give another file"
            )
        random.Random(SHUFFLE_SEED).shuffle(examples)
        return QuestionSet(path, examples)

    def read_questions(self, path: str) -> QuestionSet:
        """Reads the questions of a file for prediction, with their true answers if the file has them."""
        examples = read_squad_examples(path, False)
        if not examples:
            raise InputError(f"{path}: has no question; give a file with at least one")
        return QuestionSet(path, examples, read_gold_answers(path))

    def encode(self, examples: QuestionSet, tokenizer, max_seq_length, set_name) -> EncodedWindows:
        """Cuts the questions and their documents into windows."""
        if set_name != "train":
            return encode_questions(examples.examples, tokenizer, self.rules, examples.gold)
        encoded = encode_training(examples.examples, tokenizer, self.rules)
        if not len(encoded.lengths):
            raise InputError(f"{examples.path}: its documents are empty; there is nothing to train on")
        return encoded

    def counts(self, examples: QuestionSet, encoded: EncodedWindows) -> dict[str, int]:
        """Counts the questions, which define an epoch in the original, and the windows, which are trained on."""
        return {"orig ": len(examples.examples), "split ": len(encoded.lengths)}

    def record(self, encoded: EncodedWindows, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the features of a record file, which include `unique_ids`."""
        return encoded.record(rows, length)

    def build_model(self, config, use_one_hot_embeddings: bool) -> BertSpans:
        """Returns a BertSpans."""
        return BertSpans(config, use_one_hot_embeddings)

    def losses(self, model, features: dict):
        """Float32[B]: the mean cross-entropy of the answer's start and end, with a softmax that includes padding."""
        logits = model(features)
        targets = features["start_positions"], features["end_positions"]
        start, end = (_position_loss(*pair) for pair in zip(logits, targets, strict=True))
        return (start + end) / 2.0

    def weights(self, features: dict):
        """Float32[B]: 1 for every window."""
        return ops.ones_like(features["start_positions"], dtype="float32")

    def outputs(self, model, features: dict) -> dict:
        """Returns `start_logits` and `end_logits`, float32[B, max_seq_length]; -10000 beyond the batch's length."""
        found = self.serving_outputs(model, features)
        missing = self.rules.max_seq_length - ops.shape(features["input_ids"])[1]
        padding = [[0, 0], [0, missing]]
        return {name: ops.pad(logits, padding, constant_values=NO_POSITION) for name, logits in found.items()}

    def metrics(self, encoded: EncodedQuestions, outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns the official scores of a set that has true answers."""
        candidates = self.candidates(encoded, raw_results(encoded.windows, outputs))
        threshold = math.inf if self.rules.is_tuned else self.rules.null_score_diff_threshold
        answers = choose_answers(*candidates, threshold)
        return self.scores(encoded.gold, answers, candidates.null_odds)

    def candidates(self, encoded: EncodedQuestions, results: Sequence[RawResult]) -> Candidates:
        """Extracts n-best lists and null odds from a result for each window."""
        return extract_candidates(encoded.examples, encoded.windows, results, self.rules)

    def tuned(self, encoded: EncodedQuestions, candidates: Candidates) -> SquadTask:
        """Returns the task with the threshold that gives the best F1 on a set with true answers."""
        answers = choose_answers(*candidates, math.inf)
        threshold = best_null_odds_threshold(encoded.gold, answers, candidates.null_odds)
        return SquadTask(dataclasses.replace(self.rules, null_score_diff_threshold=threshold))

    def scores(
        self, gold: Sequence[Question], answers: Mapping[str, str], null_odds: Mapping[str, float]
    ) -> dict[str, float]:
        """Computes the scores that the official script prints for a file of answers.

        The script of version 2 receives the null odds for its search of the best threshold, and an infinite threshold,
        which leaves the answers unchanged.
        """
        if self.rules.version_2_with_negative:
            return evaluate_v2(gold, answers, null_odds, null_odds_threshold=np.inf)
        return evaluate_v1(gold, answers)

    def write_predictions(
        self,
        output_dir: str,
        encoded: EncodedQuestions,
        outputs: dict[str, np.ndarray],
        suffix: str = "",
    ) -> dict[str, float] | None:
        """Writes the original's files of answers; a threshold that has to be tuned is tuned on the same set."""
        candidates = self.candidates(encoded, raw_results(encoded.windows, outputs))
        task = self.tuned(encoded, candidates) if self.rules.is_tuned else self
        return task.write_answers(output_dir, encoded, candidates, suffix)

    def write_answers(
        self, output_dir: str, encoded: EncodedQuestions, candidates: Candidates, suffix: str = ""
    ) -> dict[str, float] | None:
        """Writes predictions.json, nbest_predictions.json and, with version 2, null_odds.json.

        Returns:
            The official scores; None for a set without true answers.
        """
        answers = choose_answers(*candidates, self.rules.null_score_diff_threshold)
        contents = {"predictions": answers, "nbest_predictions": candidates.nbest}
        if self.rules.version_2_with_negative:
            contents["null_odds"] = candidates.null_odds
        for name, content in contents.items():
            path = os.path.join(output_dir, f"{name}{suffix}.json")
            write_json(path, content)
            logging.info("Wrote %s", path)
        if encoded.gold is None:
            return None
        return self.scores(encoded.gold, answers, candidates.null_odds)

    def serving_outputs(self, model, features: dict) -> dict:
        """Returns `start_logits` and `end_logits`, float32[B, S] each."""
        start, end = (ops.cast(logits, "float32") for logits in model(features))
        return {"start_logits": start, "end_logits": end}

    def serving_text(self, model, texts: dict, reader) -> dict:
        """Returns `answer`, string[B], with its offsets and its score; see tasks/squad/in_graph.py."""
        self.rules.check_room()
        # Imported here because it needs tensorflow_text, which only exports of text need.
        from official_bert.tasks.squad.in_graph import answer_questions

        def logits(features):
            return tf.stack(list(self.serving_outputs(model, features).values()), axis=-1)

        return answer_questions(logits, texts["question"], texts["context"], reader, self.rules)

    def settings(self) -> dict[str, Any]:
        """Returns the rules; a tuned threshold is a number."""
        return dataclasses.asdict(self.rules)

    @classmethod
    def client(cls, model: ServedModel, settings: Settings) -> SquadClient:
        """Returns a client that asks for the answer to a question about a context."""
        return SquadClient(model, SquadRules.from_settings(settings))


def _position_loss(logits, positions):
    """Cross-entropy of float[B, S] and int32[B]: float32[B], 0 for a position outside the sequence."""
    inside = ops.logical_and(positions >= 0, positions < ops.shape(logits)[-1])
    loss = cross_entropy(logits, ops.where(inside, positions, ops.zeros_like(positions)))
    return ops.where(inside, loss, ops.zeros_like(loss))
