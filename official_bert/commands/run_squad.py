"""Fine-tuning and prediction on SQuAD: the runner of run_squad.py.

In: SQuAD files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: the files of a fine-tuning run,
predictions.json, nbest_predictions.json, null_odds.json, logits.npz, eval_results.txt.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping

import numpy as np
from absl import logging

from official_bert import model_dir, tokenization
from official_bert.checkpoints.folder import with_best
from official_bert.fine_tuning.finetuner import FineTuning, Score
from official_bert.fine_tuning.run import RunSets, fine_tune
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_source import read_model_files, resolved
from official_bert.options.fine_tuning import AUTO, SquadOptions
from official_bert.tasks.squad.answers import Candidates, RawResult, choose_answers, raw_results
from official_bert.tasks.squad.examples import read_gold_answers
from official_bert.tasks.squad.logits import average_results, file_digest, read_logits, write_logits
from official_bert.tasks.squad.rules import SquadRules
from official_bert.tasks.squad.task import QuestionSet, SquadTask
from official_bert.tasks.squad.windows import EncodedQuestions, EncodedWindows
from official_bert.tokenization import FullTokenizer
from official_bert.training import distribution, reporting, run_log
from official_bert.training.output_folder import own_folder

UNTUNED_THRESHOLD = 0.0
_LOGGED_WINDOWS = 1000
_LOGITS, _THRESHOLD_LOGITS = "logits.npz", "threshold_logits.npz"

# Returns the logits of each window of a set, and writes them to, or reads them from, files of the given name.
_Results = Callable[[EncodedQuestions, str, Mapping[str, object]], list[RawResult]]


def run(options: SquadOptions) -> Score | None:
    """Trains and predicts, in this order, or runs a search over such runs.

    Returns:
        The score on --predict_file, if it has answers.

    Raises:
        InputError: an option or a file cannot be used.
    """
    options = resolved(options, "squad")
    _check(options)
    threshold_set = _read_threshold_set(options)
    if options.ensemble_dirs:
        _predict_with_ensemble(options, threshold_set)
        return None
    predict = functools.partial(_predict_with_model, threshold_set=threshold_set)
    return fine_tune(options, "squad", "run_squad", predict=predict)


def _check(options: SquadOptions):
    """Makes the original's checks in its order, then those of the new flags."""
    tokenization.validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    if not (options.do_train or options.do_predict):
        raise InputError("nothing to do: give --do_train or --do_predict")
    if options.do_train and not options.train_file:
        raise InputError("--train_file: must be given with --do_train")
    if options.do_predict and not options.predict_file:
        raise InputError("--predict_file: must be given with --do_predict")
    SquadRules.from_settings(vars(options)).check_room()
    is_auto = options.null_score_diff_threshold == AUTO
    if is_auto and not options.version_2_with_negative:
        raise InputError("--null_score_diff_threshold=auto: only goes with --version_2_with_negative")
    if options.threshold_file and not is_auto:
        raise InputError("--threshold_file: only goes with --null_score_diff_threshold=auto")
    if options.evaluates_during_training and not options.predict_file:
        raise InputError("--predict_file: must be given for evaluations during training")
    if options.ensemble_dirs is not None:
        _check_ensemble(options)
    if options.search and not options.predict_file:
        raise InputError("--predict_file: must be given with --search")
    _check_answers(options)


def _check_ensemble(options: SquadOptions):
    if not all(options.ensemble_dirs or [""]):
        raise InputError(
            "--ensemble_dirs: the name of a folder is empty; give output folders of runs, separated by commas"
        )
    if options.do_train or not options.do_predict:
        raise InputError("--ensemble_dirs: only goes with --do_predict, and without --do_train")


def _check_answers(options: SquadOptions):
    """Refuses, before training, files that lack the true answers that a search, an evaluation or tuning needs."""
    has_answers = functools.cache(lambda path: read_gold_answers(path) is not None)
    if options.search and not has_answers(options.predict_file):
        raise InputError(
            f"{options.predict_file}: has no answers to compare the runs of a search by; give a file with answers"
        )
    if options.evaluates_during_training and not has_answers(options.predict_file):
        raise InputError(
            f"{options.predict_file}: has no answers to evaluate with; leave out --eval_every, "
            "or give a file with answers"
        )
    is_auto = options.null_score_diff_threshold == AUTO
    if is_auto and options.do_predict and not (options.threshold_file or has_answers(options.predict_file)):
        raise _nothing_to_tune_on(options.predict_file)


def _read_threshold_set(options: SquadOptions) -> QuestionSet | None:
    """The questions of --threshold_file, read before any training."""
    if not (options.threshold_file and options.do_predict):
        return None
    questions = SquadTask().read_questions(options.threshold_file)
    if questions.gold is None:
        raise _nothing_to_tune_on(options.threshold_file)
    return questions


def _nothing_to_tune_on(path: str) -> InputError:
    return InputError(
        f"{path}: has no answers to tune the threshold on; give a file with answers as --threshold_file, "
        "or a number as --null_score_diff_threshold"
    )


def _predict_with_model(fine_tuning: FineTuning, sets: RunSets, threshold_set: QuestionSet | None):
    """Answers --predict_file with the model, and writes its logits for ensembles."""
    options = fine_tuning.options

    def results(encoded: EncodedQuestions, logits_name: str, made_from: Mapping[str, object]):
        found = []
        if encoded.windows:
            outputs = fine_tuning.outputs(_Announced(encoded), options.predict_batch_size)
            found = raw_results(encoded.windows, outputs)
        path = os.path.join(options.output_dir, logits_name)
        write_logits(path, found, made_from)
        logging.info("Wrote %s", path)
        return found

    prediction = _Prediction(options, fine_tuning.task, sets.tokenizer, results, threshold_set)
    scores = prediction.answer(sets.encoded("test"))
    if scores is not None:
        fine_tuning.write_results(scores)
    if fine_tuning.task.rules.is_tuned:
        _record_threshold(options.output_dir, prediction.task.rules.null_score_diff_threshold)
    fine_tuning.task = prediction.task  # its threshold goes into the record of an export


def _record_threshold(output_dir: str, threshold: float):
    """Adds a tuned threshold to what the folders of the model know."""
    for folder in with_best(output_dir):
        record = model_dir.ModelFolder(folder).task() if files.is_folder(folder) else None
        if record:
            settings = record.settings | {"null_score_diff_threshold": threshold}
            model_dir.write_record(folder, record._replace(settings=settings))


def _predict_with_ensemble(options: SquadOptions, threshold_set: QuestionSet | None):
    """Answers --predict_file with the mean of the logits of several runs, without building a model."""
    strategy = distribution.make_strategy(options)
    _, tokenizer = read_model_files(options)
    task = SquadTask(SquadRules.from_settings(vars(options)))

    def results(encoded: EncodedQuestions, logits_name: str, made_from: Mapping[str, object]):
        return average_results(
            [_logits_of_run(folder, logits_name, made_from) for folder in options.ensemble_dirs]
        )

    with own_folder(options.output_dir, strategy) as folder:
        options = dataclasses.replace(options, output_dir=folder)
        questions = task.read_questions(options.predict_file)
        run_log.write_run_record(options.output_dir, "run_squad", options, options.random_seed, strategy)
        encoded = task.encode(questions, tokenizer, options.max_seq_length, "test")
        scores = _Prediction(options, task, tokenizer, results, threshold_set).answer(encoded)
        if scores is not None:
            reporting.write_eval_results(options.output_dir, scores, step=0)


class _Prediction:
    """Answers a file with the logits of a model or of an ensemble.

    Attributes:
        task: the task with the threshold that chose the answers.
    """

    def __init__(
        self,
        options: SquadOptions,
        task: SquadTask,
        tokenizer: FullTokenizer,
        results: _Results,
        threshold_set: QuestionSet | None,
    ):
        self.task = task
        self._options, self._tokenizer, self._results = options, tokenizer, results
        self._threshold_set = threshold_set

    def answer(self, encoded: EncodedQuestions) -> dict[str, float] | None:
        """Writes the answers to the questions of --predict_file.

        Returns:
            The scores and the tuned threshold for eval_results.txt; None if there is neither.
        """
        options = self._options
        logging.info("***** Running predictions *****")
        candidates = self._candidates(encoded, options.predict_file, _LOGITS)
        is_tuned = self.task.rules.is_tuned
        if is_tuned:
            self._tune(encoded, candidates)
        scores = self.task.write_answers(options.output_dir, encoded, candidates)
        if not is_tuned:
            return scores
        threshold = {"null_score_diff_threshold": self.task.rules.null_score_diff_threshold}
        if options.threshold_file:
            return (scores or {}) | threshold
        return scores | threshold | self._untuned(encoded, candidates)

    def _tune(self, encoded: EncodedQuestions, candidates: Candidates):
        """Sets the threshold that gives the best F1 on --threshold_file, or on the predicted file itself."""
        questions = self._threshold_set
        if questions:
            encoded = self.task.encode(questions, self._tokenizer, self._options.max_seq_length, "test")
            logging.info("***** Running predictions of the threshold file *****")
            candidates = self._candidates(encoded, questions.path, _THRESHOLD_LOGITS)
        self.task = self.task.tuned(encoded, candidates)
        logging.info("  Null score diff threshold = %r", self.task.rules.null_score_diff_threshold)

    def _untuned(self, encoded: EncodedQuestions, candidates: Candidates) -> dict[str, float]:
        """Returns the scores with an untuned threshold, and a mark that the other one was tuned on the same file."""
        logging.warning(
            "The threshold was tuned on the predicted file: its scores are too good; see untuned_exact and untuned_f1"
        )
        answers = choose_answers(*candidates, UNTUNED_THRESHOLD)
        scores = self.task.scores(encoded.gold, answers, candidates.null_odds)
        untuned = {f"untuned_{name}": value for name, value in scores.items() if "best" not in name}
        return untuned | {"threshold_is_tuned_on_predicted_file": 1}

    def _candidates(self, encoded: EncodedQuestions, path: str, logits_name: str) -> Candidates:
        """Extracts the n-best lists of a file."""
        options = self._options
        logging.info("  Num orig examples = %d", len(encoded.examples))
        logging.info("  Num split examples = %d", len(encoded.windows))
        logging.info("  Batch size = %d", options.predict_batch_size)
        made_from = {
            "file": file_digest(path),
            "vocabulary": file_digest(options.vocab_file),
            "do_lower_case": options.do_lower_case,
            "strip_accents": options.strip_accents,
            "max_seq_length": options.max_seq_length,
            "doc_stride": options.doc_stride,
            "max_query_length": options.max_query_length,
        }
        return self.task.candidates(encoded, self._results(encoded, logits_name, made_from))


def _logits_of_run(folder: str, name: str, made_from: Mapping[str, object]) -> list[RawResult]:
    """Reads the logits of a member of an ensemble."""
    path = os.path.join(folder, name)
    if not files.exists(path):
        flags = "--do_predict" if name == _LOGITS else "--do_predict and --threshold_file"
        raise InputError(f"{path}: no such file; run_squad.py with {flags} writes it into its --output_dir")
    return read_logits(path, made_from)


class _Announced:
    """An encoded set that logs how many of its windows were requested, as the original logs its results."""

    def __init__(self, encoded: EncodedWindows):
        self._encoded, self.lengths = encoded, encoded.lengths
        self._num_asked_for = 0

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        before, self._num_asked_for = self._num_asked_for, self._num_asked_for + len(rows)
        if before // _LOGGED_WINDOWS < self._num_asked_for // _LOGGED_WINDOWS:
            logging.info("Processing example: %d", self._num_asked_for)
        return self._encoded.features(rows, length)
