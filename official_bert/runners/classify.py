"""Fine-tuning, evaluation and prediction of a text classifier: the job of run_classifier.py.

In: a task's files, a vocabulary, a configuration, a checkpoint. Out, in output_dir: what every training job leaves,
feature records, eval_results.txt, test_results.tsv, labels.txt.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import files, tokenization
from official_bert.config import BertConfig
from official_bert.data.model_inputs import check_vocabulary
from official_bert.errors import InputError
from official_bert.options.classifier import ClassifierOptions
from official_bert.runners.job import TrainingJob
from official_bert.tasks import glue, registry
from official_bert.tasks.base import TaskObjective
from official_bert.tasks.classification import ClassificationTask
from official_bert.tasks.examples import (
    EncodedExamples,
    InputExample,
    encoded_examples,
    file_based_convert_examples_to_features,
)
from official_bert.training import distribution, reporting
from official_bert.training.example_batches import ExampleBatches
from official_bert.training.prediction import predict

LABELS_FILE = "labels.txt"
ORIGINAL_BUFFER_SIZE = 100


def run(options: ClassifierOptions):
    """Trains, evaluates and predicts, in this order.

    Raises:
        InputError: options or files that cannot be used.
    """
    if options.bert_hub_module_handle:
        raise InputError(
            "--bert_hub_module_handle: hub modules are not supported; give the model as --init_checkpoint"
        )
    tokenization.validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    if not (options.do_train or options.do_eval or options.do_predict):
        raise InputError("at least one of --do_train, --do_eval and --do_predict must be True")
    strategy = distribution.make_strategy(options)
    config = BertConfig.from_json_file(options.bert_config_file)
    if options.max_seq_length > config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={options.max_seq_length}: the model of {options.bert_config_file} was made for "
            f"sequences up to max_position_embeddings={config.max_position_embeddings}"
        )
    processor = registry.make_processor(_with_learnt_labels(options))
    files.make_folder(options.output_dir)
    tokenizer = tokenization.FullTokenizer(
        options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents
    )
    check_vocabulary(tokenizer, config.vocab_size, options.vocab_file)
    Classification(options, config, strategy, processor, tokenizer).run()


def _with_learnt_labels(options: ClassifierOptions) -> ClassifierOptions:
    """Labels that an earlier run learnt of its training file lie beside its checkpoints."""
    if options.do_train or options.labels or options.regression:
        return options
    for folder in (
        options.output_dir,
        options.init_checkpoint,
        os.path.dirname(options.init_checkpoint or ""),
    ):
        path = os.path.join(folder or "", LABELS_FILE)
        if folder and files.exists(path):
            return dataclasses.replace(options, labels=list(files.read_lines(path)))
    return options


class Classification:
    """One run of a task."""

    def __init__(self, options: ClassifierOptions, config: BertConfig, strategy, processor, tokenizer):
        self.options, self.config, self.strategy = options, config, strategy
        self.processor, self.tokenizer = processor, tokenizer
        self.pads_to_longest = options.length_aware_batches and not isinstance(
            strategy, tf.distribute.TPUStrategy
        )

    def run(self):
        """Builds the model for the labels, then does what the flags ask for."""
        options = self.options
        train_examples = self.processor.get_train_examples(options.data_dir) if options.do_train else []
        self.labels = self._labels()
        weights = options.class_weights and [float(weight) for weight in options.class_weights]
        self.task = ClassificationTask(self.processor, self.labels, weights)
        # True division, cut once at the end: MRPC's 3,668 examples are 343 steps of 32 in three epochs.
        num_train_steps = int(len(train_examples) / options.train_batch_size * options.num_train_epochs)
        if options.do_train and not num_train_steps:
            raise InputError(
                f"{len(train_examples)} training examples are no whole batch of --train_batch_size="
                f"{options.train_batch_size} in {options.num_train_epochs:g} epochs; lower it"
            )
        self.job = TrainingJob(
            options,
            self.strategy,
            lambda: self.task.build_model(self.config, options.use_tpu),
            max(num_train_steps, 1),
            int(num_train_steps * options.warmup_proportion),
        )
        reporting.write_run_record(
            options.output_dir, "run_classifier", options, self.job.seed, self.strategy
        )
        if options.do_train:
            self._train(train_examples, num_train_steps)
        if options.do_eval:
            for suffix, examples in self.processor.dev_sets(options.data_dir).items():
                self._evaluate(suffix, examples)
        if options.do_predict:
            for suffix, examples in self.processor.test_sets(options.data_dir).items():
                self._predict(suffix, examples)

    def _labels(self) -> list[str] | None:
        """The task's labels, written beside the checkpoints when training."""
        labels = self.processor.get_labels()
        if labels is not None and self.options.do_train:
            with files.replacing(os.path.join(self.options.output_dir, LABELS_FILE)) as file:
                file.writelines(f"{label}\n" for label in labels)
        return labels

    def _train(self, examples: list[InputExample], num_train_steps: int):
        options, job = self.options, self.job
        distribution.check_divides(
            options.train_batch_size, self.strategy.num_replicas_in_sync, "train_batch_size"
        )
        encoded = self._encoded(examples, "train.tf_record")
        logging.info("***** Running training *****")
        logging.info("  Num examples = %d", len(examples))
        logging.info("  Batch size = %d", options.train_batch_size)
        logging.info("  Num steps = %d", num_train_steps)
        objective = TaskObjective(self.task, job.model)
        batches = ExampleBatches(
            encoded.features,
            encoded.lengths,
            self.strategy,
            options.train_batch_size,
            job.seed,
            buffer_size=self._buffer_size(),
            max_length=options.max_seq_length,
            most_steps=job.steps_per_loop,
            pad_to_longest=self.pads_to_longest,
        )
        job.train(self.config, objective, batches, objective.progress)

    def _buffer_size(self) -> int:
        given = self.options.shuffle_buffer_size
        if given is not None:
            return given
        is_original = glue.plain_name(self.options.task_name) in registry.ORIGINAL_TASKS
        return ORIGINAL_BUFFER_SIZE if is_original else 0

    def _evaluate(self, suffix: str, examples: list[InputExample]):
        batch_size = self.options.eval_batch_size
        encoded = self._encoded(examples, f"eval{suffix}.tf_record")
        logging.info("***** Running evaluation *****")
        logging.info("  Num examples = %d (%d actual, %d padding)", len(examples), len(examples), 0)
        logging.info("  Batch size = %d", batch_size)
        outputs = self._outputs(encoded, batch_size)
        losses = outputs["loss"].astype(np.float64)
        batch_losses = [
            losses[start : start + batch_size].mean() for start in range(0, len(losses), batch_size)
        ]
        results = self.task.metrics(encoded, outputs) | {
            "eval_loss": losses.mean(),
            "loss": np.mean(
                batch_losses
            ),  # the original's second figure: the last batch counts as much as any
        }
        reporting.write_eval_results(self.options.output_dir, results, self.job.global_step, suffix)

    def _predict(self, suffix: str, examples: list[InputExample]):
        options = self.options
        encoded = self._encoded(examples, f"predict{suffix}.tf_record")
        logging.info("***** Running prediction*****")
        logging.info("  Num examples = %d (%d actual, %d padding)", len(examples), len(examples), 0)
        logging.info("  Batch size = %d", options.predict_batch_size)
        outputs = self._outputs(encoded, options.predict_batch_size)
        logging.info("***** Predict results *****")
        self.task.write_predictions(os.path.join(options.output_dir, f"test_results{suffix}.tsv"), outputs)
        if options.glue_submission_dir:
            if not isinstance(self.processor, glue.GlueProcessor):
                raise InputError(
                    f"--glue_submission_dir: {options.task_name} is no task of GLUE; leave the flag out"
                )
            path = self.processor.write_submission(
                options.glue_submission_dir, options.data_dir, self.task.predictions(outputs), suffix
            )
            logging.info("Wrote %s", path)

    def _encoded(self, examples: list[InputExample], record_file: str) -> EncodedExamples:
        """The examples as numbers; the original's record file is written beside the results, too."""
        arguments = (examples, self.labels, self.options.max_seq_length, self.tokenizer)
        path = os.path.join(self.options.output_dir, record_file)
        file_based_convert_examples_to_features(*arguments, path)
        return encoded_examples(*arguments)

    def _outputs(self, encoded: EncodedExamples, batch_size: int) -> dict[str, np.ndarray]:
        return predict(
            self.strategy,
            lambda features: self.task.outputs(self.job.model, features),
            encoded.features,
            encoded.lengths,
            batch_size,
            self.options.max_seq_length,
            self.pads_to_longest,
        )
