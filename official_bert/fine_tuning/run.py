"""Fine-tuning from the flags to the results, for all fine-tuning scripts.

It writes into output_dir: checkpoints and logs, record files of the task's sets, eval_results.txt,
the task's prediction files, and the files of model_dir.py. With --search, output_dir has one such
folder for each run.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from official_bert import model_dir
from official_bert.checkpoints.folder import latest_checkpoint, run_folders
from official_bert.config import BertConfig
from official_bert.data.model_inputs import check_unknown_in
from official_bert.data.records.record_files import write_encoded_set
from official_bert.features import EncodedSet, content_digest
from official_bert.fine_tuning.finetuner import Finetuner, Score, count_examples, log_set
from official_bert.fine_tuning.plugin import TrainingPlugin, TrainingRun, make_plugin
from official_bert.fine_tuning.search import search
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_source import ModelSource, resolve
from official_bert.options.fields import list_typed_flags
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.options.shared import MULTI_WORKER
from official_bert.serving.export import check_export
from official_bert.tasks import registry
from official_bert.tasks.base import DataFiles, Task
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint
from official_bert.training import distribution, reporting, run_log, starting_point
from official_bert.training.workers import Workers, output_folder


@dataclasses.dataclass(frozen=True)
class Sets:
    """The encoded sets that a run needs.

    Attributes:
        train: the training set; None without training.
        dev: the dev sets by the suffix of their result files.
        test: the test sets by the suffix of their result files.
    """

    train: EncodedSet | None
    dev: Mapping[str, EncodedSet]
    test: Mapping[str, EncodedSet]

    def digests(self) -> dict[str, list[str]]:
        """Returns digests of the contents of all sets. Sets that differ have different digests."""
        sets = {
            "training": [self.train] if self.train else [],
            "dev": self.dev.values(),
            "test": self.test.values(),
        }
        return {
            f"the {name} set": [
                content_digest(encoded, includes_computed=True) for encoded in encoded_sets
            ]
            for name, encoded_sets in sets.items()
        }

    def first(self) -> EncodedSet:
        """Returns the training set or, without training, the first of the others."""
        if self.train is not None:
            return self.train
        return next(iter((self.dev or self.test).values()))

    @property
    def counts(self) -> Mapping[str, int]:
        """The result of `count_examples` for the training set; empty without training."""
        return {} if self.train is None else count_examples(self.train)


def fine_tune(
    options: FineTuningOptions,
    loaded_sets: Mapping[str, Any] = MappingProxyType({}),
    metadata: Mapping[str, object] = MappingProxyType({}),
) -> Score | None:
    """Trains, evaluates and predicts, in this order, or runs a search over such runs.

    Args:
        options: the flags of a fine-tuning script.
        loaded_sets: sets in memory that replace their files, in the form of `DataFiles.named`.
        metadata: further values of the start line of run_log.py.

    Returns:
        The task's main metric on the first evaluated set; None without an evaluation.

    Raises:
        InputError: the flags do not fit each other, the model or the data.
    """
    # Resolve the flags, and check them before any set is read.
    entry = registry.find(options.task_name, options.script)
    typed_options = options
    source = resolve(options, entry.family)
    options = source.options
    _check_flags(options)
    source.check_task(options.task_name, registry.is_same)
    config, tokenizer = _read_model(source)
    task = _make_task(source, entry)
    strategy = distribution.make_strategy(options)
    if options.search:
        run_trial = functools.partial(_run_trial, typed_options, options)
        plugin = make_plugin("fine_tuning", options, config, task)
        search(options, run_trial, strategy.num_replicas_in_sync)
        plugin.end_search(options.output_dir)
        return None
    _check_run(source, strategy.num_replicas_in_sync)
    plugin = make_plugin("fine_tuning", options, config, task)
    task = plugin.wrap_task(task, functools.partial(_make_task, source, entry))
    metadata = {run_log.TYPED_FLAGS: list_typed_flags(typed_options), **metadata}
    contents = {"bert_config_file": config.to_dict(), "vocab_file": tokenizer.vocab}
    workers = Workers(strategy)
    with output_folder(typed_options, workers, contents) as folder:
        worker_options = dataclasses.replace(options, output_dir=folder)

        # Read and encode all sets now, so that a corrupt file stops the run before the training.
        examples = _read(source, task, loaded_sets, plugin)
        sets = _encode(worker_options, task, tokenizer, examples)
        if workers.count > 1:
            workers.check_equal(sets.digests())
        if task.predicts_without_model:
            _predict_without_model(worker_options, task, sets)
            seed = worker_options.random_seed
            return run_log.write_start(folder, worker_options, seed, strategy, metadata)
        check_unknown_in(tokenizer, sets.first(), worker_options.max_seq_length)

        # Build the model.
        if options.do_train:
            run = TrainingRun(
                options=worker_options,
                config=config,
                task=task,
                strategy=strategy,
                training_set=sets.train,
                make_tokenizer=lambda: tokenizer,
            )
            metadata = {**metadata, **plugin.prepare(run)}
        finetuner = Finetuner(
            worker_options,
            options.output_dir,
            config,
            strategy,
            task,
            sets.counts,
            metadata,
            plugin,
        )
        is_third_party = registry.is_outside(entry.family)
        if worker_options.do_train and is_third_party and not distribution.is_tpu(strategy):
            check_export(entry.name, task, finetuner.trainer.model, config, tokenizer)
        # The records come after these checks, so a model that cannot be used leaves none.
        _write_records(worker_options, sets)

        # Train, then evaluate and predict.
        if sets.train is not None:
            _write_model_files(worker_options, source, entry, task)
            dev = sets.dev or sets.test
            finetuner.train(sets.train, dev[""] if options.evaluates_during_training else None)
            sets = dataclasses.replace(sets, train=None)  # frees the memory of the training set
        old_settings = task.settings()
        _use_model(options, finetuner, sets)
        _record_tuned(worker_options, old_settings, task.settings())
        if workers.is_chief:
            plugin.end(folder)
        return finetuner.score


def _run_trial(
    typed_options: FineTuningOptions, options: FineTuningOptions, trial_options: FineTuningOptions
) -> Score | None:
    """Fine-tunes with the flags of a trial.

    Args:
        typed_options: the flags of the search as typed.
        options: the same, without an open value.
        trial_options: the flags of the trial, without an open value.
    """
    trial_values = vars(trial_options)
    changes = {
        name: trial_values[name]
        for name, value in vars(options).items()
        if trial_values[name] != value
    }
    return fine_tune(dataclasses.replace(typed_options, **changes))


def _use_model(options: FineTuningOptions, finetuner: Finetuner, sets: Sets):
    """Calibrates, evaluates and predicts, each if its flag is set."""
    if options.calibrate:
        finetuner.calibrate(sets.dev[""])
    if options.do_eval:
        for suffix, encoded in sets.dev.items():
            finetuner.evaluate(encoded, suffix)
    if options.do_predict:
        for suffix, encoded in sets.test.items():
            finetuner.predict(encoded, suffix)


def _check_flags(options: FineTuningOptions):
    """Validates the flags that do not depend on the task."""
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    if not any(options.steps.values()):
        *others, last = (f"--{name}" for name in options.steps)
        raise InputError(f"nothing to do: give {', '.join(others)} or {last}")
    if options.eval_every_steps and options.eval_every_epochs:
        raise InputError(
            "--eval_every_steps and --eval_every_epochs: set the same interval; give only one"
        )
    if options.search and options.distribution_strategy == MULTI_WORKER:
        raise InputError(
            "--search: runs on the devices of one machine; give another --distribution_strategy "
            f"than {MULTI_WORKER}"
        )


def _read_model(source: ModelSource) -> tuple[BertConfig, FullTokenizer]:
    config, num_bilstm_layers = source.config, source.options.num_bilstm_layers
    if num_bilstm_layers not in (None, config.num_layers_on_top):
        config.num_bilstm_layers = num_bilstm_layers
        config.validate("--num_bilstm_layers")
    return config, source.tokenizer


def _make_task(
    source: ModelSource,
    entry: registry.Entry,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> Task:
    """Makes the task of a run.

    Args:
        source: the model and the flags of the run.
        entry: the entry of the task.
        changes: values of flags by name that replace those of the run.
    """
    options, record = source.options, source.task
    settings = {}
    keeps_settings = source.resumes or not options.do_train
    if record and record.family == entry.family and keeps_settings:
        settings = dict(record.settings)
    settings |= {"task_name": entry.name} | vars(options) | dict(changes)
    # A training run reads its labels from the training file.
    settings["checkpoint_labels"] = None if options.do_train else source.labels
    task = entry.make(settings)
    if not isinstance(task, Task):
        raise InputError(f"--task_name={entry.name}: is exported only and cannot be fine-tuned")
    if not getattr(task, "main_metric", None):
        raise InputError(
            f"--task_name={entry.name}: has no main_metric; name the metric that compares its runs"
        )
    if options.calibrate and type(task).calibrate is Task.calibrate:
        raise InputError(
            f"--calibrate: {type(task).__name__} has no method calibrate; leave the flag out"
        )
    return task


def _check_run(source: ModelSource, num_replicas: int):
    """Validates the folder, the batch size and the checkpoint before any set is read."""
    options = source.options
    starting_point.check_output_dir(source)
    if options.do_train:
        distribution.check_divides(
            options.train_batch_size,
            num_replicas,
            "train_batch_size",
            options.num_accumulation_steps,
        )
    if options.calibrate and not (options.do_train or source.resumes):
        raise InputError(
            "--calibrate: writes into the folder of a model; give --do_train, or its --output_dir"
        )
    if options.init_checkpoint and not latest_checkpoint(options.output_dir):
        _ = source.checkpoint  # This opens it, and raises an error if that fails.


def _read(
    source: ModelSource, task: Task, loaded_sets: Mapping[str, Any], plugin: TrainingPlugin
) -> dict[str, dict[str, Any]]:
    """Reads the sets that the run needs.

    The training set comes first, because it may define the labels of the task.
    """
    options = source.options
    evaluates = options.evaluates_during_training
    needed = {
        "train": options.do_train,
        "dev": options.has_dev_set and (options.do_eval or evaluates or options.calibrate),
        "test": options.do_predict or (evaluates and not options.has_dev_set),
    }
    set_files = options.set_files
    data_files = DataFiles(options.data_dir, set_files | loaded_sets)
    examples: dict[str, dict[str, Any]] = {}
    if plugin.splits_training_set and (needed["train"] or needed["dev"]):
        train, dev = plugin.split_training_set(task.read(data_files, "train")[""])
        examples = {"train": {"": train}, "dev": {"": dev}}
    examples = {
        name: examples[name] if name in examples else task.read(data_files, name)
        for name, is_needed in needed.items()
        if is_needed
    }
    source.check_labels(task.labels)
    needs_labels = needed["dev"] and (evaluates or options.calibrate or not options.do_predict)
    if needs_labels and not examples["dev"]:
        flag = options.eval_interval_flag if evaluates else "calibrate"
        if options.do_eval:
            flag = "do_eval"
        data = data_files.data_dir or set_files["dev"] or options.task_name
        raise InputError(f"--{flag}: {data} has no labels to evaluate with; give --do_predict")
    return examples


def _encode(
    options: FineTuningOptions, task: Task, tokenizer: FullTokenizer, examples: dict
) -> Sets:
    """Encodes each set once, and frees the memory of its examples."""

    def encoded(set_name: str) -> dict[str, EncodedSet]:
        sets = examples.get(set_name, {})
        return {
            suffix: task.encode(sets.pop(suffix), tokenizer, options.max_seq_length, set_name)
            for suffix in list(sets)
        }

    return Sets(encoded("train").get(""), encoded("dev"), encoded("test"))


def _write_records(options: FineTuningOptions, sets: Sets):
    """Writes the record files that the original's scripts wrote."""
    train = {} if sets.train is None else {"": sets.train}
    for suffix, encoded in (*train.items(), *sets.dev.items(), *sets.test.items()):
        if stem := getattr(encoded, "record_stem", None):
            path = os.path.join(options.output_dir, f"{stem}{suffix}.tf_record")
            record = getattr(encoded, "record", encoded.features)
            records = functools.partial(record, length=options.max_seq_length)
            write_encoded_set(path, len(encoded.lengths), records)


def _write_model_files(
    options: FineTuningOptions, source: ModelSource, entry: registry.Entry, task: Task
):
    """Writes the model's files except its weights, before training begins."""
    settings = {"max_seq_length": options.max_seq_length} | task.settings()
    record = model_dir.TaskRecord(registry.canonical_name(entry.name), entry.family, settings)
    folders = (
        run_folders(options.output_dir)
        if options.evaluates_during_training
        else [options.output_dir]
    )
    for folder in folders:
        model_dir.write(
            folder, source.config, options.vocab_file, source.tokenizer_config, record, task.labels
        )


def _record_tuned(
    options: FineTuningOptions, old_settings: Mapping[str, Any], new_settings: Mapping[str, Any]
):
    """Adds settings to the task records in the model's folders.

    They are those that a calibration, an evaluation or a prediction has changed.
    """
    tuned = {name: value for name, value in new_settings.items() if value != old_settings.get(name)}
    for folder in run_folders(options.output_dir) if tuned else ():
        record = model_dir.ModelFolder(folder).task() if files.is_folder(folder) else None
        if record:
            model_dir.write_record(folder, record._replace(settings=record.settings | tuned))


def _predict_without_model(options: FineTuningOptions, task: Task, sets: Sets):
    for suffix, encoded in sets.test.items():
        log_set("Running prediction", encoded, options.predict_batch_size)
        results = task.write_predictions(options.output_dir, encoded, {}, suffix)
        if results is not None:
            reporting.write_eval_results(options.output_dir, results, 0, suffix)
