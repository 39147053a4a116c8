"""SQuAD as a task: loss of a span, choice of answers, official metrics. Devlin et al. (2019),
sections 4.2 and 4.3.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.metrics.squad import Question, best_null_odds_threshold, evaluate_v1, evaluate_v2
from official_bert.modeling import BertSpans
from official_bert.modeling.losses import cross_entropy
from official_bert.tasks.base import DataFiles, Task, TaskObjective
from official_bert.tasks.clients import ServedModel
from official_bert.tasks.settings import TaskSettings
from official_bert.tasks.squad.answers import (
    Candidates,
    RawResult,
    average_results,
    choose_answers,
    extract_candidates,
    raw_results,
    read_logits,
    write_json,
    write_logits,
)
from official_bert.tasks.squad.client import SquadClient
from official_bert.tasks.squad.examples import SquadExample, read_gold_answers, read_squad_examples
from official_bert.tasks.squad.graph_answers import answer_questions
from official_bert.tasks.squad.rules import NO_POSITION, SquadRules
from official_bert.tasks.squad.windows import (
    EncodedQuestions,
    EncodedWindows,
    encode_questions,
    encode_training,
)

if TYPE_CHECKING:
    import keras

    from official_bert.config import BertConfig
    from official_bert.graph_text.text_reader import TextReader
    from official_bert.modeling.layers import Tensor
    from official_bert.tokenization import FullTokenizer

UNTUNED_THRESHOLD = 0.0
_TUNING = (
    "tune the threshold on; give a number as --null_score_diff_threshold, or a file that has them "
    "as --null_score_diff_file"
)
SHUFFLE_SEED = 12345  # shuffles the training questions before they are cut into windows


class QuestionSet(NamedTuple):
    """The questions of a file; `gold` is None in training, and if the file has no answers."""

    path: str
    examples: list[SquadExample]
    gold: list[Question] | None = None
    tunes_threshold: bool = False


class SpanObjective(TaskObjective):
    """The mean loss of spans, with a softmax over positions that include padding."""

    reads_padding = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadSettings(TaskSettings):
    """The flags of run_squad.py; the settings of a record are those of `SquadRules`."""

    vocab_file: str | None = None
    train_file: str | None = None
    predict_file: str | None = None
    do_predict: bool = False
    eval_every_steps: int | None = None
    eval_every_epochs: float | None = None
    search: str | None = None
    ensemble_dirs: Sequence[str] | None = None
    null_score_diff_threshold: float | str | None = None
    null_score_diff_file: str | None = None

    @property
    def is_export(self) -> bool:
        """Whether the settings are those of an export, which reads no file of questions."""
        return "predict_file" not in self.values

    @property
    def eval_interval_flag(self) -> str | None:
        """The flag that makes the training evaluate; None without one."""
        if self.eval_every_steps is not None:
            return "eval_every_steps"
        return None if self.eval_every_epochs is None else "eval_every_epochs"


class SquadTask(Task):
    """The task of run_squad.py; `write_predictions` tunes a threshold that has to be tuned."""

    settings_class = SquadSettings
    text_inputs: ClassVar = {"question": [None], "context": [None]}

    def __init__(
        self,
        rules: SquadRules | None = None,
        vocab_file: str | None = None,
        threshold_file: str | None = None,
        ensemble_dirs: Sequence[str] = (),
        answers_serve: str = "",
    ):
        """Sets how answers are chosen; by default by the original's rules.

        A threshold is tuned on the questions of `threshold_file`, None for those that are
        predicted. The logits are averaged over the runs in `ensemble_dirs`, or are those of the
        model. `answers_serve` says what the true answers are needed for, "" if they are not needed.
        """
        self.rules = rules or SquadRules()
        self.main_metric = "best_f1" if self.rules.is_tuned else "f1"
        self.predicts_without_model = bool(ensemble_dirs)
        self._reports_threshold = self.rules.is_tuned
        self._vocab_file, self._threshold_file = vocab_file, threshold_file
        self._ensemble_dirs, self._answers_serve = ensemble_dirs, answers_serve

    @classmethod
    def from_settings(cls, variant: None, settings: SquadSettings) -> Self:
        """Makes the task of run_squad.py or of an export; see `ServedTask.from_settings`."""
        rules = SquadRules.from_values(settings.values)
        if settings.is_export:
            return cls(rules)
        _check_flags(settings, rules)
        return cls(
            rules,
            settings.vocab_file,
            threshold_file=settings.null_score_diff_file if settings.do_predict else None,
            ensemble_dirs=settings.ensemble_dirs or (),
            answers_serve=_answers_serve(settings, rules),
        )

    def read(self, data_files: DataFiles, set_name: str) -> dict[str, QuestionSet]:
        """Reads the questions of the set's file; those that tune the threshold come before those
        of the test set.
        """
        path = data_files.path(set_name, [])
        if set_name == "train":
            return {"": self._read_training(path)}
        if set_name == "dev":  # of an export that measures its loss
            return {
                "": _read_questions(
                    path, "measure a loss with; give a file with answers", "dev_file"
                )
            }
        tuning = {}
        if self._threshold_file:
            questions = _read_questions(self._threshold_file, _TUNING, "null_score_diff_file")
            tuning["_threshold"] = questions._replace(tunes_threshold=True)
        questions = _read_questions(path, self._answers_serve)
        if not self.rules.version_2_with_negative:
            _warn_of_unanswerable(questions)
        return tuning | {"": questions}

    def _read_training(self, path: str) -> QuestionSet:
        """Reads the questions of a training file and shuffles them as in the original."""
        examples = read_squad_examples(path, True, self.rules.version_2_with_negative)
        if not examples:
            raise InputError(
                f"{path}: has no question whose answer is in its document; correct its answers "
                "or give another file"
            )
        random.Random(SHUFFLE_SEED).shuffle(examples)
        return QuestionSet(path, examples)

    def encode(
        self, examples: QuestionSet, tokenizer: FullTokenizer, max_seq_length: int, set_name: str
    ) -> EncodedWindows:
        path, questions, gold, tunes_threshold = examples
        if set_name != "train":
            more = {"path": path, "tunes_threshold": tunes_threshold}
            return encode_questions(questions, tokenizer, self.rules, gold, **more)
        encoded = encode_training(questions, tokenizer, self.rules)
        if not len(encoded.lengths):
            raise InputError(f"{path}: its documents are empty; give another file")
        return encoded

    def build_model(self, config: BertConfig, **arguments: Any) -> BertSpans:
        return BertSpans(config, **arguments)

    def objective(self, model: keras.Model) -> SpanObjective:
        return SpanObjective(model, self.losses, self.weights)

    def losses(self, model: keras.Model, features: dict) -> Tensor:
        """Computes the mean cross-entropy of the answer's start and end.

        The softmax includes padding. A position outside the sequence adds no loss.

        Args:
            model: the model, a function from features to the logits of starts and ends, float[B, S]
                each.
            features: the encoder features, `start_positions` and `end_positions`, int32[B].

        Returns:
            float32[B].
        """
        logits = model(features)
        targets = features["start_positions"], features["end_positions"]
        start, end = (_position_loss(*pair) for pair in zip(logits, targets, strict=True))
        return (start + end) / 2.0

    def weights(self, features: dict) -> Tensor:
        """Returns the weight of each window in the loss, float32[B], which is 1.

        Args:
            features: the features of a batch, with `start_positions`, int32[B].
        """
        return ops.ones_like(features["start_positions"], dtype="float32")

    def outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `start_logits` and `end_logits`, float32[B, max_seq_length]; -10000 beyond the
        batch's length.
        """
        outputs = self.serving_outputs(model, features)
        missing = self.rules.max_seq_length - ops.shape(features["input_ids"])[1]
        padding = [[0, 0], [0, missing]]
        return {
            name: ops.pad(logits, padding, constant_values=NO_POSITION)
            for name, logits in outputs.items()
        }

    def metrics(
        self, encoded: EncodedQuestions, outputs: dict[str, np.ndarray]
    ) -> dict[str, float]:
        results = raw_results(encoded.windows, outputs)
        candidates = extract_candidates(encoded.examples, encoded.windows, results, self.rules)
        threshold = math.inf if self.rules.is_tuned else self.rules.null_score_diff_threshold
        answers = choose_answers(*candidates, threshold)
        assert encoded.gold is not None  # A file that evaluates has been read with its answers.
        return self.scores(encoded.gold, answers, candidates.null_odds)

    def scores(
        self, gold: Sequence[Question], answers: Mapping[str, str], null_odds: Mapping[str, float]
    ) -> dict[str, float]:
        """Computes the official script's scores of answers.

        Version 2's infinite threshold leaves the answers unchanged.

        Args:
            gold: the questions with their true answers.
            answers: the predicted answer by the id of the question.
            null_odds: the odds of "no answer" by the id of the question; version 1 ignores them.

        Returns:
            The scores by the names of the script.
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
        """Writes logits and answers; tunes a threshold on a set of its own, which gets no
        answers, or on the set.
        """
        results = self._results(output_dir, encoded, outputs)
        candidates = extract_candidates(encoded.examples, encoded.windows, results, self.rules)
        is_tuned_here = self.rules.is_tuned
        if is_tuned_here:
            self._tune(encoded, candidates)
        if encoded.tunes_threshold:
            return None
        scores = self._write_answers(output_dir, encoded, candidates, suffix)
        if not self._reports_threshold:
            return scores
        threshold = self.rules.null_score_diff_threshold
        assert threshold is not None  # It was tuned here or on a set of its own.
        scores = (scores or {}) | {"null_score_diff_threshold": threshold}
        return scores | self._untuned_scores(encoded, candidates) if is_tuned_here else scores

    def _results(
        self, output_dir: str, encoded: EncodedQuestions, outputs: dict
    ) -> list[RawResult]:
        """Returns the logits of the model, which it writes for ensembles, or the mean of those
        of an ensemble.
        """
        name = f"{'threshold_' if encoded.tunes_threshold else ''}logits.npz"
        settings = (
            "do_lower_case",
            "strip_accents",
            "max_seq_length",
            "doc_stride",
            "max_query_length",
        )
        assert self._vocab_file is not None  # A run has a vocabulary.
        source_record = {
            "file": files.sha256(encoded.path),
            "vocabulary": files.sha256(self._vocab_file),
        }
        source_record |= {setting: getattr(self.rules, setting) for setting in settings}
        if self._ensemble_dirs:
            return average_results(
                [_read_run_logits(folder, name, source_record) for folder in self._ensemble_dirs]
            )
        results = raw_results(encoded.windows, outputs)
        path = os.path.join(output_dir, name)
        write_logits(path, results, source_record)
        logging.info("Wrote %s", path)
        return results

    def _tune(self, encoded: EncodedQuestions, candidates: Candidates):
        """Sets the threshold that gives the best F1 on a set with true answers."""
        answers = choose_answers(*candidates, math.inf)
        assert encoded.gold is not None  # A file that tunes has been read with its answers.
        threshold = best_null_odds_threshold(encoded.gold, answers, candidates.null_odds)
        self.rules = dataclasses.replace(self.rules, null_score_diff_threshold=threshold)
        logging.info("  Null score diff threshold = %r", threshold)

    def _write_answers(
        self, output_dir: str, encoded: EncodedQuestions, candidates: Candidates, suffix: str
    ) -> dict[str, float] | None:
        """Writes predictions.json, nbest_predictions.json and, with version 2, null_odds.json;
        returns the scores.
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

    def _untuned_scores(
        self, encoded: EncodedQuestions, candidates: Candidates
    ) -> dict[str, float]:
        """Returns the scores with an untuned threshold, and a mark that the other one was tuned
        on the same file.
        """
        logging.warning(
            "The threshold was tuned on the predicted file: its scores are too good; see "
            "untuned_exact and untuned_f1"
        )
        answers = choose_answers(*candidates, UNTUNED_THRESHOLD)
        assert encoded.gold is not None  # The threshold was tuned on them.
        scores = self.scores(encoded.gold, answers, candidates.null_odds)
        untuned = {f"untuned_{name}": value for name, value in scores.items() if "best" not in name}
        return untuned | {"threshold_is_tuned_on_predicted_file": 1}

    def serving_outputs(self, model: keras.Model, features: dict) -> dict:
        """Returns `start_logits` and `end_logits`, float32[B, S] each."""
        start, end = (ops.cast(logits, "float32") for logits in model(features))
        return {"start_logits": start, "end_logits": end}

    def serving_text(self, model: keras.Model, texts: dict, reader: TextReader) -> dict:
        """Returns `answer`, string[B], with its offsets and its score; see
        tasks/squad/graph_answers.py.
        """
        self.rules.check_room()

        def logits(features: dict):
            return tf.stack(list(self.serving_outputs(model, features).values()), axis=-1)

        return answer_questions(logits, texts["question"], texts["context"], reader, self.rules)

    def settings(self) -> dict[str, Any]:
        """Returns the rules; a tuned threshold is a number."""
        return dataclasses.asdict(self.rules)

    @classmethod
    def client(cls, model: ServedModel, settings: SquadSettings) -> SquadClient:
        return SquadClient(model, SquadRules.from_values(settings.values))


def _position_loss(logits: Tensor, positions: Tensor):
    """Cross-entropy of float[B, S] and int32[B]: float32[B], 0 for a position outside the
    sequence.
    """
    inside = ops.logical_and(positions >= 0, positions < ops.shape(logits)[-1])
    loss = cross_entropy(logits, ops.where(inside, positions, ops.zeros_like(positions)))
    return ops.where(inside, loss, ops.zeros_like(loss))


def _read_questions(path: str, answers_serve: str, flag: str = "predict_file") -> QuestionSet:
    """Reads the questions of a file for prediction, with their true answers, which it must have
    if they serve.
    """
    examples = read_squad_examples(path, False, flag=flag)
    if not examples:
        raise InputError(f"{path}: has no question; give a file with at least one")
    gold = read_gold_answers(path)
    if gold is None and answers_serve:
        raise InputError(f"{path}: has no answers to {answers_serve}")
    return QuestionSet(path, examples, gold)


def _warn_of_unanswerable(questions: QuestionSet):
    """Warns of questions without an answer where the answer is always a text."""
    gold = questions.gold or ()
    num_without = sum(not question.answers for question in gold)
    if num_without:
        logging.warning(
            "%s: %d of %d questions have no answer and count as wrong; for files of SQuAD 2.0, "
            "pass --version_2_with_negative",
            questions.path,
            num_without,
            len(gold),
        )


def _read_run_logits(
    folder: str, name: str, source_record: Mapping[str, object]
) -> list[RawResult]:
    path = os.path.join(folder, name)
    if not files.exists(path):
        tuned = " and --null_score_diff_file" if name.startswith("threshold") else ""
        raise InputError(
            f"{path}: no such file; run_squad.py with --do_predict{tuned} writes it into its "
            "--output_dir"
        )
    return read_logits(path, source_record)


def _check_flags(settings: SquadSettings, rules: SquadRules):
    """Validates the flags of run_squad.py: the original's checks in its order, then those of the
    new flags.
    """
    evaluates = settings.do_train and settings.eval_interval_flag
    if settings.do_train and not settings.train_file:
        raise InputError("--train_file: must be given with --do_train")
    for is_needed, purpose in (
        (settings.do_predict, "with --do_predict"),
        (evaluates, "for evaluations during training"),
        (settings.search, "with --search"),
    ):
        if is_needed and not settings.predict_file:
            raise InputError(f"--predict_file: must be given {purpose}")
    rules.check_room()
    if rules.null_score_diff_threshold is None and not rules.version_2_with_negative:
        raise InputError(
            "--null_score_diff_threshold=auto: only goes with --version_2_with_negative; add it"
        )
    if settings.ensemble_dirs is not None:
        if not all(settings.ensemble_dirs or [""]):
            raise InputError(
                "--ensemble_dirs: the name of a folder is empty; give output folders of runs, "
                "separated by commas"
            )
        if settings.do_train or not settings.do_predict:
            raise InputError(
                "--ensemble_dirs: only goes with --do_predict, and without --do_train; give it to "
                "a command that only predicts"
            )
    # The runs of a search, which start one by one, would read the file too late.
    if settings.search and settings.predict_file:
        _read_questions(
            settings.predict_file, "compare the runs of a search by; give a file with answers"
        )


def _answers_serve(settings: SquadSettings, rules: SquadRules) -> str:
    """Returns what the flags need the answers of --predict_file for, with the remedy; "" if they
    are not needed.
    """
    interval_flag = settings.eval_interval_flag
    if settings.do_train and interval_flag:
        return f"evaluate with; leave out --{interval_flag}, or give a file with answers"
    tunes_here = rules.is_tuned and settings.do_predict and not settings.null_score_diff_file
    return _TUNING if tunes_here else ""
