"""Fine-tuning, evaluation and prediction of a text classifier: the job of run_classifier.py.

In: a task's files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every training job leaves,
feature records, eval_results.txt, test_results.tsv, labels.txt.
"""

from __future__ import annotations

import dataclasses
import os

from absl import logging

from official_bert import files
from official_bert.errors import InputError
from official_bert.options.classifier import ClassifierOptions
from official_bert.runners.fine_tuning import (
    FineTuning,
    Score,
    check_task_flags,
    log_prediction,
    read_labels,
    read_model_files,
    write_labels,
)
from official_bert.runners.search import search
from official_bert.tasks import glue, registry
from official_bert.tasks.classification import ClassificationTask
from official_bert.tasks.examples import (
    EncodedExamples,
    InputExample,
    encoded_examples,
    file_based_convert_examples_to_features,
)
from official_bert.training import distribution

ORIGINAL_BUFFER_SIZE = 100


def run(options: ClassifierOptions) -> Score | None:
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
    processor = registry.make_processor(_with_learnt_labels(options))
    if options.glue_submission_dir and not isinstance(processor, glue.GlueProcessor):
        raise InputError(f"--glue_submission_dir: {options.task_name} is no task of GLUE; leave the flag out")
    files.make_folder(options.output_dir)

    train_examples = processor.get_train_examples(options.data_dir) if options.do_train else []
    labels = processor.get_labels()
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
            dev_set=lambda: encoded(processor.get_dev_examples(options.data_dir), "eval.tf_record"),
            eval_batch_size=options.eval_batch_size,
        )
    if options.do_eval:
        for suffix, examples in processor.dev_sets(options.data_dir).items():
            fine_tuning.evaluate(
                encoded(examples, f"eval{suffix}.tf_record"), options.eval_batch_size, suffix
            )
    if options.do_predict:
        for suffix, examples in processor.test_sets(options.data_dir).items():
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


def _with_learnt_labels(options: ClassifierOptions) -> ClassifierOptions:
    """Labels that an earlier run learnt of its training file lie beside its checkpoints."""
    if options.do_train or options.labels or options.regression:
        return options
    labels = read_labels(options)
    return dataclasses.replace(options, labels=labels) if labels else options


def _class_weights(options: ClassifierOptions) -> list[float] | None:
    if options.class_weights is None:
        return None
    try:
        return [float(weight) for weight in options.class_weights]
    except ValueError:
        raise InputError(
            f"--class_weights={','.join(options.class_weights)}: give numbers separated by commas"
        ) from None


def _buffer_size(options: ClassifierOptions) -> int:
    if options.shuffle_buffer_size is not None:
        return options.shuffle_buffer_size
    is_original = glue.plain_name(options.task_name) in registry.ORIGINAL_TASKS
    return ORIGINAL_BUFFER_SIZE if is_original else 0
