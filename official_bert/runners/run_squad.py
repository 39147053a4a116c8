"""Fine-tuning and prediction on SQuAD: the job of run_squad.py.

In: SQuAD files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every training job leaves,
feature records, predictions.json, nbest_predictions.json, null_odds.json, logits.npz, eval_results.txt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
from collections.abc import Mapping

import numpy as np
from absl import logging

from official_bert import files, tokenization
from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.jobs.fine_tuning import (
    FineTuning,
    Score,
    check_training_flags,
    evaluates_during_training,
    read_model_files,
)
from official_bert.jobs.search import search
from official_bert.metrics.squad import Question, best_null_odds_threshold
from official_bert.options.squad import AUTO, SquadOptions
from official_bert.tasks.squad.answers import Candidates, RawResult, choose_answers, write_json
from official_bert.tasks.squad.ensembles import average_results
from official_bert.tasks.squad.examples import SquadExample, read_gold_answers, read_squad_examples
from official_bert.tasks.squad.logits import file_digest, read_logits, write_logits
from official_bert.tasks.squad.records import FeatureWriter
from official_bert.tasks.squad.task import (
    AnswerRules,
    EncodedQuestions,
    EncodedWindows,
    SquadTask,
    TextRules,
    WindowCollector,
    raw_results,
)
from official_bert.tasks.squad.windows import convert_examples_to_features
from official_bert.tokenization import FullTokenizer
from official_bert.training import distribution, reporting

SHUFFLE_SEED = 12345
ORIGINAL_BUFFER_SIZE = 100
UNTUNED_THRESHOLD = 0.0
_LOGGED_WINDOWS = 1000
_LOGITS, _THRESHOLD_LOGITS = "logits.npz", "threshold_logits.npz"


def run(options: SquadOptions) -> Score | None:
    """Trains and predicts, in this order; or makes a search of such runs.

    Returns:
        The score of the predicted file, if it has answers.

    Raises:
        InputError: options or files that cannot be used.
    """
    _check(options)
    if options.search:
        _check_search(options)
        return search(options, run, {"do_predict": True})
    strategy = distribution.make_strategy(options)
    config, tokenizer = read_model_files(options, options.max_seq_length)
    files.make_folder(options.output_dir)
    return Squad(options, config, strategy, tokenizer).run()


def _check(options: SquadOptions):
    """The original's checks in its order, then those of the new flags."""
    tokenization.validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    if not (options.do_train or options.do_predict):
        raise InputError("at least one of --do_train and --do_predict must be True")
    if options.do_train and not options.train_file:
        raise InputError("--train_file: must be given with --do_train")
    if options.do_predict and not options.predict_file:
        raise InputError("--predict_file: must be given with --do_predict")
    if options.max_seq_length <= options.max_query_length + 3:
        raise InputError(
            f"--max_seq_length={options.max_seq_length}: must be greater than --max_query_length="
            f"{options.max_query_length} + 3"
        )
    is_auto = options.null_score_diff_threshold == AUTO
    if is_auto and not options.version_2_with_negative:
        raise InputError("--null_score_diff_threshold=auto: only goes with --version_2_with_negative")
    if is_auto and options.export_text and not options.do_predict:
        raise InputError(
            "--null_score_diff_threshold=auto: is known after --do_predict, and --export_text needs it; add that flag"
        )
    if options.threshold_file and not is_auto:
        raise InputError("--threshold_file: only goes with --null_score_diff_threshold=auto")
    if evaluates_during_training(options) and not options.predict_file:
        raise InputError("--predict_file: must be given for evaluations during training")
    check_training_flags(options)
    if options.ensemble_dirs is not None:
        _check_ensemble(options)


def _check_ensemble(options: SquadOptions):
    if not all(options.ensemble_dirs or [""]):
        raise InputError(
            "--ensemble_dirs: the name of a folder is empty; give output folders of runs, separated by commas"
        )
    if options.do_train or not options.do_predict:
        raise InputError("--ensemble_dirs: only goes with --do_predict, and without --do_train")
    if options.export_dir or options.export_text:
        flag = "export_dir" if options.export_dir else "export_text"
        raise InputError(f"--{flag}: an ensemble has no model of its own to export; leave the flag out")


def _check_search(options: SquadOptions):
    """Refuses before the first run what would only show after it."""
    if not options.predict_file:
        raise InputError("--predict_file: must be given with --search")
    if read_gold_answers(options.predict_file) is None:
        raise InputError(
            f"{options.predict_file}: has no answers to compare the runs of a search by; give a file with answers"
        )


class Squad:
    """One run."""

    def __init__(self, options: SquadOptions, config: BertConfig, strategy, tokenizer: FullTokenizer):
        self.options, self.config, self.strategy, self.tokenizer = options, config, strategy, tokenizer
        rules = AnswerRules(
            n_best_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
            do_lower_case=options.do_lower_case,
            version_2_with_negative=options.version_2_with_negative,
            verbose_logging=options.verbose_logging,
            strip_accents=options.strip_accents,
        )
        given = options.null_score_diff_threshold
        threshold = None if given == AUTO else float(given)
        text_rules = TextRules(
            doc_stride=options.doc_stride,
            max_query_length=options.max_query_length,
            null_score_diff_threshold=threshold or 0.0,
            ranks_padding=not options.length_aware_batches,
        )
        self.task = SquadTask(rules, threshold, options.max_seq_length, text_rules)
        self.fine_tuning = None
        self._read: dict[str, tuple[list[SquadExample], list[Question] | None]] = {}

    def run(self) -> Score | None:
        """Does what the flags ask for; an ensemble needs no model."""
        options, train_examples = self.options, []
        if options.do_train:
            train_examples = read_squad_examples(options.train_file, True, options.version_2_with_negative)
            if not train_examples:
                raise InputError(
                    f"{options.train_file}: has no question whose answer stands in its document; correct its answers "
                    "or give another file"
                )
        self._check_questions()
        if options.ensemble_dirs:
            reporting.write_run_record(
                options.output_dir, "run_squad", options, options.random_seed, self.strategy
            )
        else:
            # As in the original, steps are counted in questions, though windows are what is trained on.
            self.fine_tuning = FineTuning(
                options,
                self.config,
                self.strategy,
                self.task,
                len(train_examples),
                options.max_seq_length,
                "run_squad",
            )
        if options.do_train:
            self._train(train_examples)
        if options.do_predict:
            self._predict()
        if not self.fine_tuning:
            return None
        self.fine_tuning.export("squad")
        return self.fine_tuning.score

    def _check_questions(self):
        """Refuses files before the training that they could stop in vain."""
        options = self.options
        evaluates = options.do_train and evaluates_during_training(options)
        if options.do_predict or evaluates:
            _, gold = self._questions(options.predict_file)
            if evaluates and gold is None:
                raise InputError(
                    f"{options.predict_file}: has no answers to evaluate with; leave out --eval_every_steps and "
                    "--eval_every_epochs, or give a file with answers"
                )
        if options.do_predict and options.null_score_diff_threshold == AUTO:
            path = options.threshold_file or options.predict_file
            _, gold = self._questions(path)
            if gold is None:
                raise InputError(
                    f"{path}: has no answers to tune the threshold on; give a file with answers as --threshold_file, "
                    "or a number as --null_score_diff_threshold"
                )

    def _train(self, examples: list[SquadExample]):
        options, num_examples = self.options, len(examples)
        random.Random(SHUFFLE_SEED).shuffle(examples)
        collector = WindowCollector()
        self._convert(examples, "train.tf_record", True, collector.add)
        examples.clear()  # the windows have all of it
        encoded = EncodedWindows(**collector.arrays())
        num_windows = len(encoded.lengths)
        if not num_windows:
            raise InputError(f"{options.train_file}: its documents are empty; there is nothing to train on")
        given = options.shuffle_buffer_size
        self.fine_tuning.train(
            encoded,
            ORIGINAL_BUFFER_SIZE if given is None else given,
            dev_set=lambda: self._encoded(options.predict_file),
            eval_batch_size=options.predict_batch_size,
            pad_to_longest=False,  # the loss is over padding, too
            counts={"orig ": num_examples, "split ": num_windows},
        )

    def _predict(self):
        """Answers the file and writes the answers and, if it has the true ones, their scores."""
        options = self.options
        encoded = self._encoded(options.predict_file, "eval.tf_record")
        logging.info("***** Running predictions *****")
        candidates = self._candidates(encoded, options.predict_file, _LOGITS)
        threshold = self._threshold(encoded, candidates)
        self.task.text_rules = dataclasses.replace(self.task.text_rules, null_score_diff_threshold=threshold)
        answers = choose_answers(*candidates, threshold)
        self._write("predictions", answers)
        self._write("nbest_predictions", candidates.nbest)
        if options.version_2_with_negative:
            self._write("null_odds", candidates.null_odds)
        if encoded.gold is None:
            return
        results = self.task.scores(encoded.gold, answers, candidates.null_odds)
        if options.null_score_diff_threshold == AUTO:
            results["null_score_diff_threshold"] = threshold
            if not options.threshold_file:
                results |= self._untuned(encoded, candidates)
        step = 0  # an ensemble has none
        if self.fine_tuning:
            step = self.fine_tuning.job.global_step
            self.fine_tuning.set_score(results)
        reporting.write_eval_results(options.output_dir, results, step)

    def _untuned(self, encoded: EncodedQuestions, candidates: Candidates) -> dict[str, float]:
        """What a threshold that has not seen the true answers gives, and the mark that the other has."""
        logging.warning(
            "The threshold was tuned on the predicted file: its scores are too good; see untuned_exact and untuned_f1"
        )
        answers = choose_answers(*candidates, UNTUNED_THRESHOLD)
        scores = self.task.scores(encoded.gold, answers, candidates.null_odds)
        untuned = {f"untuned_{name}": value for name, value in scores.items() if "best" not in name}
        return untuned | {"threshold_is_tuned_on_predicted_file": 1}

    def _threshold(self, predicted: EncodedQuestions, candidates: Candidates) -> float:
        """The threshold that was given, or the best one for the F1 of the file to tune on."""
        given, path = self.options.null_score_diff_threshold, self.options.threshold_file
        if given != AUTO:
            return float(given)
        encoded = predicted
        if path:
            encoded = self._encoded(path)
            logging.info("***** Running predictions of the threshold file *****")
            candidates = self._candidates(encoded, path, _THRESHOLD_LOGITS)
        answers = choose_answers(*candidates, math.inf)
        threshold = best_null_odds_threshold(encoded.gold, answers, candidates.null_odds)
        logging.info("  Null score diff threshold = %r", threshold)
        return threshold

    def _candidates(self, encoded: EncodedQuestions, path: str, logits_name: str) -> Candidates:
        """N-best lists of a file, by the model or by the ensemble."""
        options = self.options
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
        if options.ensemble_dirs:
            results = average_results(
                [_logits_of_run(folder, logits_name, made_from) for folder in options.ensemble_dirs]
            )
        else:
            results = self._results(encoded)
            write_logits(os.path.join(options.output_dir, logits_name), results, made_from)
        return self.task.candidates(encoded, results)

    def _results(self, encoded: EncodedQuestions) -> list[RawResult]:
        """The model's logits for each window."""
        if not encoded.windows:
            return []
        outputs = self.fine_tuning.outputs(_Announced(encoded), self.options.predict_batch_size)
        return raw_results(encoded.windows, outputs)

    def _encoded(self, path: str, record_file: str | None = None) -> EncodedQuestions:
        """The questions of a file with their windows; a record file is written beside the results if named."""
        examples, gold = self._questions(path)
        collector, windows = WindowCollector(), []

        def take(window):
            collector.add(window)
            windows.append(window)

        self._convert(examples, record_file, False, take)
        return EncodedQuestions(**collector.arrays(), examples=examples, windows=windows, gold=gold)

    def _questions(self, path: str) -> tuple[list[SquadExample], list[Question] | None]:
        """The questions of a file and, if it has them, their true answers; read once."""
        if path not in self._read:
            examples = read_squad_examples(path, False)
            if not examples:
                raise InputError(f"{path}: has no question; give a file with at least one")
            self._read[path] = examples, read_gold_answers(path)
        return self._read[path]

    def _convert(self, examples: list[SquadExample], record_file: str | None, is_training: bool, take):
        """Hands every window to `take` and, if it is named, to a record file in output_dir."""
        options = self.options
        with contextlib.ExitStack() as stack:
            takers = [take]
            if record_file:
                path = os.path.join(options.output_dir, record_file)
                takers.append(stack.enter_context(FeatureWriter(path, is_training)).process_feature)
            convert_examples_to_features(
                examples,
                self.tokenizer,
                options.max_seq_length,
                options.doc_stride,
                options.max_query_length,
                is_training,
                lambda window: [taker(window) for taker in takers],
            )

    def _write(self, name: str, content):
        path = os.path.join(self.options.output_dir, f"{name}.json")
        logging.info("Writing %s to: %s", name.removesuffix("_predictions"), path)
        write_json(path, content)


def _logits_of_run(folder: str, name: str, made_from: Mapping[str, object]) -> list[RawResult]:
    """What a member of an ensemble said."""
    path = os.path.join(folder, name)
    if not files.exists(path):
        flags = "--do_predict" if name == _LOGITS else "--do_predict and --threshold_file"
        raise InputError(f"{path}: no such file; run_squad.py with {flags} writes it into its --output_dir")
    return read_logits(path, made_from)


class _Announced:
    """A set that logs how many of its windows have been asked for, as the original did of its results."""

    def __init__(self, encoded: EncodedWindows):
        self._encoded, self.lengths = encoded, encoded.lengths
        self._num_asked_for = 0

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        before, self._num_asked_for = self._num_asked_for, self._num_asked_for + len(rows)
        if before // _LOGGED_WINDOWS < self._num_asked_for // _LOGGED_WINDOWS:
            logging.info("Processing example: %d", self._num_asked_for)
        return self._encoded.features(rows, length)
