"""Fine-tuning, evaluation and prediction of a text classifier: the job of run_classifier.py.

In: a task's files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every training job leaves,
feature records, eval_results.txt, test_results.tsv, labels.txt.
"""

from __future__ import annotations

import dataclasses
import math
import os

from absl import logging

from official_bert import files
from official_bert.errors import InputError
from official_bert.jobs.fine_tuning import (
    FineTuning,
    Score,
    check_task_flags,
    evaluates_during_training,
    log_prediction,
    read_model_files,
)
from official_bert.jobs.labels import check_labels, read_labels, write_labels
from official_bert.jobs.search import search
from official_bert.options.classification import ClassificationOptions
from official_bert.options.tsv import TsvOptions
from official_bert.tasks import registry
from official_bert.tasks.classification import glue
from official_bert.tasks.classification.examples import (
    EncodedExamples,
    InputExample,
    encoded_examples,
    file_based_convert_examples_to_features,
)
from official_bert.tasks.classification.processor import DataProcessor
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.training import distribution

ORIGINAL_BUFFER_SIZE = 100


def run(options: ClassificationOptions) -> Score | None:
    """Trains, evaluates and predicts, in this order; or makes a search of such runs.

    Returns:
        The score on the first dev set, if it was evaluated.

    Raises:
        InputError: options or files that cannot be used.
    """
    if options.search:
        return search(options, run, {"do_eval": True, "do_predict": False})
    if options.bert_hub_module_handle:
        raise InputError(
            "--bert_hub_module_handle: hub modules are not supported; give the model as --init_checkpoint"
        )
    check_task_flags(options)
    strategy = distribution.make_strategy(options)
    config, tokenizer = read_model_files(options, options.max_seq_length)
    _check_task(options)
    processor = registry.make_processor(_with_learnt_labels(options))
    if options.glue_submission_dir and not isinstance(processor, glue.GlueProcessor):
        raise InputError(f"--glue_submission_dir: {options.task_name} is no task of GLUE; leave the flag out")
    files.make_folder(options.output_dir)

    # All files are read before the training that they could stop in vain; labels may be learnt from the first.
    train_examples, dev_sets, test_sets = [], {}, {}
    if options.do_train:
        train_examples = processor.get_train_examples(options.data_dir)
        _check_examples(train_examples, options, "training")
    labels = processor.get_labels()
    check_labels(options, labels)
    if options.do_eval or evaluates_during_training(options):
        dev_sets = _dev_sets(processor, options)
    if options.do_predict:
        test_sets = processor.test_sets(options.data_dir)
        for examples in test_sets.values():
            _check_examples(examples, options, "test", labelled=False)
    task = ClassificationTask(processor, labels, _class_weights(options))
    fine_tuning = FineTuning(
        options, config, strategy, task, len(train_examples), options.max_seq_length, "run_classifier"
    )

    def encoded(examples: list[InputExample], record_file: str) -> EncodedExamples:
        """The examples as numbers; the original's record file is written beside the results, too."""
        arguments = (examples, labels, options.max_seq_length, tokenizer)
        file_based_convert_examples_to_features(*arguments, os.path.join(options.output_dir, record_file))
        return encoded_examples(*arguments)

    if options.do_train:
        if labels is not None:
            write_labels(options, labels)
        fine_tuning.train(
            encoded(train_examples, "train.tf_record"),
            _buffer_size(options),
            dev_set=lambda: encoded(dev_sets[""], "eval.tf_record"),
            eval_batch_size=options.eval_batch_size,
        )
    if options.do_eval:
        for suffix, examples in dev_sets.items():
            fine_tuning.evaluate(
                encoded(examples, f"eval{suffix}.tf_record"), options.eval_batch_size, suffix
            )
    if options.do_predict:
        for suffix, examples in test_sets.items():
            log_prediction(len(examples), options.predict_batch_size)
            outputs = fine_tuning.outputs(
                encoded(examples, f"predict{suffix}.tf_record"), options.predict_batch_size
            )
            logging.info("***** Predict results *****")
            task.write_predictions(os.path.join(options.output_dir, f"test_results{suffix}.tsv"), outputs)
            if options.glue_submission_dir:
                path = processor.write_submission(
                    options.glue_submission_dir, options.data_dir, task.predictions(outputs), suffix
                )
                logging.info("Wrote %s", path)
    fine_tuning.export(options.task_name)
    return fine_tuning.score


def _check_task(options: ClassificationOptions):
    """Refuses flags of `tsv` with other tasks, whose files have a layout."""
    if glue.plain_name(options.task_name) == "tsv":
        return
    for field in dataclasses.fields(TsvOptions):
        if getattr(options, field.name) != field.default:
            raise InputError(
                f"--{field.name}: only goes with --task_name=tsv, not {options.task_name}; leave it out"
            )


def _dev_sets(processor: DataProcessor, options: ClassificationOptions) -> dict[str, list[InputExample]]:
    """Every set to evaluate on; none if the task's file has no labels and is predicted, too."""
    dev_sets = processor.dev_sets(options.data_dir)
    if not dev_sets and not options.do_predict:
        raise InputError(
            f"--do_eval: {options.data_dir} has no labels of {options.task_name} to evaluate with; give --do_predict"
        )
    for examples in dev_sets.values():
        _check_examples(examples, options, "development")
    return dev_sets


def _check_examples(
    examples: list[InputExample], options: ClassificationOptions, kind: str, labelled: bool = True
):
    """Refuses what the processor of a task of one's own may let through: no examples, or some without labels."""
    if not examples:
        raise InputError(
            f"{options.data_dir}: holds no {kind} example of {options.task_name}; check --data_dir"
        )
    for example in examples:
        if labelled and example.label is None:
            raise InputError(
                f"{options.data_dir}: the {kind} example {example.guid} has no label; give it one, or leave it out"
            )


def _with_learnt_labels(options: ClassificationOptions) -> ClassificationOptions:
    """Labels that an earlier run learnt of its training file lie beside its checkpoints."""
    if options.do_train or options.labels or options.regression:
        return options
    labels = read_labels(options)
    return dataclasses.replace(options, labels=labels) if labels else options


def _class_weights(options: ClassificationOptions) -> list[float] | None:
    if options.class_weights is None:
        return None
    try:
        weights = [float(weight) for weight in options.class_weights]
    except ValueError:
        weights = []
    if not all(0.0 <= weight < math.inf for weight in weights) or not any(weights):
        raise InputError(
            f"--class_weights={','.join(options.class_weights)}: give numbers separated by commas, none negative and "
            "not all of them 0"
        )
    return weights


def _buffer_size(options: ClassificationOptions) -> int:
    if options.shuffle_buffer_size is not None:
        return options.shuffle_buffer_size
    is_original = glue.plain_name(options.task_name) in registry.ORIGINAL_TASKS
    return ORIGINAL_BUFFER_SIZE if is_original else 0
