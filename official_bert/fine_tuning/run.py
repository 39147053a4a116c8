"""Fine-tuning from the flags to the results: the common skeleton of all fine-tuning scripts.

In: options and the name of a task. Out, in output_dir: the files of a training job, record files of the task's sets,
eval_results.txt, the task's prediction files, and the files of model_folder.py; with --search one such
folder for each run.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from absl import logging

from official_bert import model_dir
from official_bert.checkpoints.folder import with_best
from official_bert.config import BertConfig
from official_bert.data.records.record_files import write_encoded_set
from official_bert.features import EncodedSet
from official_bert.fine_tuning.finetuner import FineTuning, Score, check_run
from official_bert.fine_tuning.search import search
from official_bert.fine_tuning.trained_task import check_labels, check_task, read_labels
from official_bert.io.errors import InputError
from official_bert.model_source import read_model_files, resolved, tokenizer_config_of
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.shared import MULTI_WORKER
from official_bert.tasks import registry
from official_bert.tasks.base import DataFiles, Task
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint
from official_bert.training import distribution
from official_bert.training.model_card import write_model_card
from official_bert.training.output_folder import own_folder

_SETS = ("train", "dev", "test")


class RunSets:
    """The sets of a run. Each file is read once, before training; each set is encoded once, when it is first needed."""

    def __init__(self, options: FineTuningOptions, task: Task, tokenizer: FullTokenizer):
        """Reads the files that the run needs; reading the training set may define the labels of the task."""
        self._options, self._task, self.tokenizer = options, task, tokenizer
        self.counts: dict[str, int] = {}  # of the training set, set when it is encoded
        data_files = DataFiles(options.data_dir, {name: options.file(name) for name in _SETS})
        self._examples: dict[str, dict[str, Any]] = {
            name: task.read(data_files, name) for name in _needed_sets(options)
        }
        self._encoded: dict[tuple[str, str], EncodedSet] = {}

    def suffixes(self, set_name: str) -> list[str]:
        """Returns the suffixes of the result files of all sets with this name."""
        return list(self._examples[set_name])

    def encoded(self, set_name: str, suffix: str = "") -> EncodedSet:
        """Returns an encoded set; the first call encodes it and writes its record file into output_dir."""
        key = set_name, suffix
        if key not in self._encoded:
            examples, options = self._examples[set_name][suffix], self._options
            encoded = self._task.encode(examples, self.tokenizer, options.max_seq_length, set_name)
            if set_name == "train":
                self.counts = self._task.counts(examples, encoded)
            self._examples[set_name][suffix] = None  # only the encoded set is needed from here on
            self._encoded[key] = encoded
            if stem := self._task.record_files.get(set_name):
                path = os.path.join(options.output_dir, f"{stem}{suffix}.tf_record")
                length = options.max_seq_length
                write_encoded_set(
                    path, len(encoded.lengths), lambda rows: self._task.record(encoded, rows, length)
                )
        return self._encoded[key]

    def forget(self, set_name: str):
        """Frees the memory of an encoded set that the run does not need any more."""
        for suffix in self._examples[set_name]:
            self._encoded.pop((set_name, suffix), None)


def fine_tune(
    options: FineTuningOptions,
    task_name: str,
    script: str,
    *,
    family: str | None = None,
    predict: Callable[[FineTuning, RunSets], None] | None = None,
) -> Score | None:
    """Trains, evaluates and predicts, in this order, as the flags say, or runs a search over such runs.

    Args:
        family: the only family whose tasks the script accepts, besides `module:Class`; None for any family.
        predict: runs --do_predict; None for `predict_test_sets`.

    Returns:
        The task's main metric on the first evaluated set; None without an evaluation.

    Raises:
        InputError: an option or a file cannot be used.
    """
    options = resolved(options, registry.family_of(task_name, family))
    if options.search and options.distribution_strategy == MULTI_WORKER:
        raise InputError(
            f"--search: runs on the devices of one machine; give another --distribution_strategy than {MULTI_WORKER}"
        )
    if options.search:
        return search(
            options,
            lambda trial: fine_tune(trial, task_name, script, family=family, predict=predict),
            options.scoring_flags,
            distribution.make_strategy(options).num_replicas_in_sync,
        )
    _check_flags(options)
    check_task(options, task_name)
    strategy = distribution.make_strategy(options)
    config, tokenizer = read_model_files(options)
    if options.num_bilstm_layers not in (None, config.num_layers_on_top):
        config.num_bilstm_layers = options.num_bilstm_layers
        config.validate("--num_bilstm_layers")
    task = _make_task(options, task_name, family)
    check_run(options, config)
    with own_folder(options.output_dir, strategy) as folder:
        own = dataclasses.replace(options, output_dir=folder)
        # All files are read before training, so that a bad file does not stop the run after training.
        sets = RunSets(own, task, tokenizer)
        check_labels(options, task.labels)
        needs_labels = options.evaluates_during_training or (options.do_eval and not options.do_predict)
        if needs_labels and not sets.suffixes(options.development_set):
            raise InputError(
                f"--do_eval: {options.data_dir or task_name} has no labels to evaluate with; give --do_predict"
            )
        if options.do_train:
            sets.encoded("train")  # which counts the examples
        fine_tuning = FineTuning(own, options.output_dir, config, strategy, task, sets.counts, script)
        if options.do_train:
            _write_model_files(own, config, task_name, task)
            fine_tuning.train(sets.encoded("train"), dev_set=lambda: sets.encoded(options.development_set))
            sets.forget("train")
        if options.do_eval:
            for suffix in sets.suffixes("dev"):
                fine_tuning.evaluate(sets.encoded("dev", suffix), options.eval_batch_size, suffix)
        if options.do_predict:
            (predict or predict_test_sets)(fine_tuning, sets)
        write_model_card(own.output_dir, task_name, options)
        return fine_tuning.score


def predict_test_sets(fine_tuning: FineTuning, sets: RunSets):
    """Writes the prediction files of every test set, and the scores of test sets with true answers."""
    batch_size = fine_tuning.options.predict_batch_size
    for suffix in sets.suffixes("test"):
        encoded = sets.encoded("test", suffix)
        num_examples = len(encoded.lengths)
        logging.info("***** Running prediction*****")
        logging.info("  Num examples = %d (%d actual, %d padding)", num_examples, num_examples, 0)
        logging.info("  Batch size = %d", batch_size)
        outputs = fine_tuning.outputs(encoded, batch_size)
        output_dir = fine_tuning.options.output_dir
        results = fine_tuning.task.write_predictions(output_dir, encoded, outputs, suffix)
        if results is not None:
            fine_tuning.write_results(results, suffix)


def _write_model_files(options: FineTuningOptions, config: BertConfig, task_name: str, task: Task):
    """Writes what a user of the model needs beside its weights, before training begins."""
    record = model_dir.TaskRecord(
        registry.canonical_name(task_name),
        registry.family_of(task_name),
        {"max_seq_length": options.max_seq_length} | task.settings(),
    )
    folders = with_best(options.output_dir) if options.evaluates_during_training else [options.output_dir]
    for folder in folders:
        model_dir.write(
            folder, config, options.vocab_file, tokenizer_config_of(options, config), record, task.labels
        )


def _check_flags(options: FineTuningOptions):
    """Refuses runs without a task to do, checkpoints of the other case, and flags that contradict each other."""
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    if not (options.do_train or options.do_eval or options.do_predict):
        raise InputError("nothing to do: give --do_train, --do_eval or --do_predict")


def _make_task(options: FineTuningOptions, task_name: str, family: str | None) -> Task:
    settings = {"task_name": task_name} | vars(options)
    # A training run takes its labels from the training file.
    settings["checkpoint_labels"] = None if options.do_train else read_labels(options)
    task = registry.make_task(task_name, settings, family)
    if not isinstance(task, Task):
        raise InputError(f"--task_name={task_name}: is exported only and cannot be fine-tuned")
    if not getattr(task, "main_metric", None):
        raise InputError(
            f"--task_name={task_name}: has no main_metric; name the metric that compares its runs"
        )
    return task


def _needed_sets(options: FineTuningOptions) -> list[str]:
    """Returns the sets that the run reads; the training set comes first, because it may define the labels."""
    evaluates = {options.development_set} if options.evaluates_during_training else set()
    needed = {"train": options.do_train, "dev": options.do_eval, "test": options.do_predict}
    return [name for name in _SETS if needed[name] or name in evaluates]
