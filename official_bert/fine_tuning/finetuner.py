"""A task and its model for training, evaluation and prediction, the parts that run.py combines."""

import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import BEST_FOLDER
from official_bert.config import BertConfig
from official_bert.features import EncodedSet
from official_bert.fine_tuning.plugin import Evaluation, TrainingPlugin
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.tasks.base import Task
from official_bert.training import distribution, reporting, run_log
from official_bert.training.batches import ExampleBatches
from official_bert.training.loop import compiled_outputs, predict
from official_bert.training.periodic_evaluation import PeriodicEvaluation
from official_bert.training.plan import TrainPlan
from official_bert.training.trainer import Trainer

# Gains on a constant prediction that say nothing: they may be chance, or too small to matter.
_CHANCE_STANDARD_ERRORS, _SMALL_SHARE = 2.0, 0.01
_CORRELATIONS = ("pearson", "spearman")
_MIN_CORRELATED = 3  # two examples are always correlated


class Score(NamedTuple):
    """The value of the metric by which models are compared; higher is better.

    `has_learnt` is False if the training of this run ended no better than a constant prediction,
    unless its scores are correlated with the right ones.
    """

    metric: str
    value: float
    has_learnt: bool = True


def count_examples(encoded: EncodedSet) -> Mapping[str, int]:
    """Returns the sizes of a set by kind of example; the first kind defines an epoch.

    Args:
        encoded: the set.
    """
    return getattr(encoded, "counts", {"": len(encoded.lengths)})


def log_set(title: str, encoded: EncodedSet, batch_size: int) -> None:
    """Logs the sizes of a set that is evaluated or predicted.

    Args:
        title: the heading in the log, such as "Running evaluation".
        encoded: the set.
        batch_size: the number of examples in a batch.
    """
    logging.info("***** %s *****", title)
    for kind, count in count_examples(encoded).items():
        logging.info("  Num %sexamples = %d (%d actual, %d padding)", kind, count, count, 0)
    logging.info("  Batch size = %d", batch_size)


def has_learnt(loss: float, num_examples: int, constant_losses: np.ndarray) -> bool:
    """Returns whether a model is better than one with the same output for all examples.

    The loss of a constant output differs between samples, so a gain must exceed two standard
    errors.

    Args:
        loss: the training loss at the end.
        num_examples: the number of examples that the loss is a mean over.
        constant_losses: the losses of the best constant output, float[n].
    """
    constant = constant_losses.mean()
    error = constant_losses.std() / math.sqrt(num_examples)
    smallest_gain = max(_CHANCE_STANDARD_ERRORS * error, _SMALL_SHARE * constant)
    return bool(loss < constant - smallest_gain)


def is_correlated(metric: str, value: float, num_examples: int) -> bool:
    """Returns whether a metric is a correlation that is unlikely to be chance.

    Args:
        metric: the name of the metric.
        value: its value.
        num_examples: the number of examples of the set.
    """
    if not metric.endswith(_CORRELATIONS) or num_examples < _MIN_CORRELATED:
        return False
    return value > _CHANCE_STANDARD_ERRORS / math.sqrt(num_examples - 1)


class Finetuner:
    """A task and its model for training, evaluation and prediction.

    `score` is the task's main metric on the first evaluated set; None before an evaluation.
    """

    def __init__(  # noqa: PLR0913 - each is named in a call
        self,
        options: FineTuningOptions,
        run_dir: str,
        config: BertConfig,
        strategy: tf.distribute.Strategy,
        task: Task,
        counts: Mapping[str, int],
        metadata: Mapping[str, object],
        plugin: TrainingPlugin,
    ):
        """Builds the model and loads its weights.

        Args:
            options: the flags of the run; `output_dir` is the folder that this worker writes to.
            run_dir: the folder of the checkpoints, which the chief writes and all workers read.
            config: the configuration of the model.
            strategy: the devices.
            task: the task, which has read its sets.
            counts: the sizes of the training set, as of `count_examples`.
            metadata: further values of the start line of run_log.py.
            plugin: what extensions change in the run.
        """
        self.options = options
        self.config = config
        self.strategy = strategy
        self.task = task
        self._run_dir = run_dir
        self._plugin = plugin
        is_on_tpu = distribution.is_tpu(strategy)
        self._pads_to_longest = options.length_aware_batches and not is_on_tpu
        self._num_train_examples = next(iter(counts.values()), 0)
        # True division, rounded down once at the end: MRPC's 3,668 examples are 343 steps of 32 in
        # three epochs.
        num_train_steps = int(self._epoch_steps * options.num_train_epochs)
        if options.do_train and not num_train_steps:
            raise InputError(
                f"--train_batch_size={options.train_batch_size}: the {self._num_train_examples} "
                f"training examples are no whole batch in {options.num_train_epochs:g} epochs; "
                "lower it, or raise --num_train_epochs"
            )
        recomputing = {"recompute_layers": True} if options.recompute_layers else {}
        plan = TrainPlan(
            run_dir=run_dir,
            build_model=lambda: plugin.adapt_model(
                task.build_model(config, use_one_hot_embeddings=is_on_tpu, **recomputing)
            ),
            num_train_steps=max(num_train_steps, 1),
            num_warmup_steps=int(num_train_steps * options.warmup_proportion),
            weights=plugin.weight_plan(),
        )
        self.trainer = Trainer(options, strategy, config, plan)
        plugin.check_weights(self.trainer)
        model = self.trainer.model
        self._compiled = compiled_outputs(strategy, lambda features: task.outputs(model, features))
        self.score: Score | None = None
        self._beats_constant_prediction = True
        self._best = self.trainer.weights_in(os.path.join(run_dir, BEST_FOLDER))
        if not options.do_train and not self._best.restore():
            self._check_no_best_is_lost()
        run_log.write_start(
            options.output_dir,
            options,
            self.trainer.seed,
            strategy,
            {**self.trainer.run_metadata, **metadata},
        )

    @property
    def _epoch_steps(self) -> float:
        return self._num_train_examples / self.options.train_batch_size

    def _check_no_best_is_lost(self):
        """Raises if the log tells of best weights that are gone: the newest ones do not replace
        them.
        """
        if run_log.periodic_evaluations(self._run_dir):
            log = os.path.join(self._run_dir, run_log.FILE)
            raise InputError(
                f"{self._best.output_dir}: the best checkpoint of the evaluations in {log} is "
                "gone; put it back, or give another checkpoint as --init_checkpoint with another "
                "--output_dir"
            )

    def train(self, encoded: EncodedSet, dev_set: EncodedSet | None) -> None:
        """Trains on a set.

        After a run with evaluations on `dev_set` the model has its best weights.

        Args:
            encoded: the training set.
            dev_set: the set of the evaluations during training; None for no evaluations.

        Raises:
            InputError: `dev_set` is None, but the folder holds the best checkpoint of a run with
                evaluations.
        """
        options, trainer = self.options, self.trainer
        logging.info("***** Running training *****")
        for kind, count in count_examples(encoded).items():
            logging.info("  Num %sexamples = %d", kind, count)
        logging.info("  Batch size = %d", options.train_batch_size)
        logging.info("  Num steps = %d", trainer.num_train_steps)
        objective = self._plugin.wrap_objective(self.task.objective(trainer.model))
        buffer_size = options.shuffle_buffer_size
        batches = ExampleBatches(
            self._plugin.wrap_training_set(self._prepare(encoded)),
            self.strategy,
            options.train_batch_size,
            trainer.seed,
            buffer_size=getattr(encoded, "shuffle_buffer_size", 0)
            if buffer_size is None
            else buffer_size,
            max_length=options.max_seq_length,
            pad_to_longest=self._pads_to_longest and not getattr(objective, "reads_padding", False),
        )
        evaluation = self._periodic_evaluation(dev_set)
        self._best.remove_leftovers()
        trainer.fit(objective, batches, [evaluation] if evaluation else [])
        self._warn_if_not_learning(objective, encoded)
        if evaluation:
            # For the chief, which may still write the best checkpoint.
            trainer.workers.wait()
            self._best.restore()
        self._plugin.finish(trainer)

    def _warn_if_not_learning(self, objective: Any, encoded: EncodedSet):
        """Warns if the training ends no better than a model that gives every example the same
        output.
        """
        final = self.trainer.final_loss()
        if final is None or not hasattr(objective, "constant_losses"):
            return
        losses = objective.constant_losses(encoded)
        if losses is None:
            return
        loss, num_steps = final
        self._beats_constant_prediction = has_learnt(
            loss, num_steps * self.options.train_batch_size, losses
        )
        if not self._beats_constant_prediction:
            consequence = "the model has learnt nothing"
            if self.task.main_metric.endswith(_CORRELATIONS):
                consequence = "the scores are wrong, although their order may be right"
            logging.warning(
                "The training loss is %.4g at the end, no better than the %.4g of a constant "
                "prediction: %s. This can happen by chance, after too few updates (here %d), or "
                "because the learning rate is too high; raise --num_train_epochs, or %stry a "
                "longer warm-up (--warmup_proportion), a lower --learning_rate or another "
                "--random_seed",
                loss,
                losses.mean(),
                consequence,
                self.trainer.global_step,
                self.options.bias_remedy,
            )

    def _periodic_evaluation(self, encoded: EncodedSet | None) -> PeriodicEvaluation | None:
        options, best = self.options, self._best
        if encoded is None:
            if best.latest:
                raise InputError(
                    f"{best.output_dir}: holds the best checkpoint of a run with evaluations "
                    "during training; give its --eval_every_steps or --eval_every_epochs again, or "
                    "another --output_dir"
                )
            return None
        steps = options.eval_every_steps
        if steps is None:
            assert options.eval_every_epochs is not None  # One of the two flags is set.
            # It is rounded up. After rounding down, a last evaluation would follow that of the last
            # pass by a few updates.
            steps = max(1, math.ceil(round(options.eval_every_epochs * self._epoch_steps, 6)))
        batch_size = options.dev_batch_size
        return PeriodicEvaluation(
            output_dir=options.output_dir,
            run_dir=self._run_dir,
            every_steps=steps,
            patience=options.early_stopping_patience,
            main_metric=self.task.main_metric,
            measure=lambda: self._metrics(encoded, self.outputs(encoded, batch_size), batch_size),
            best=best,
            first_step=self.trainer.global_step,
            finish_saving=self.trainer.finish_saving,
        )

    def _prepare(self, encoded: EncodedSet) -> EncodedSet:
        """Returns the set that batches are read from."""
        with self.strategy.scope():
            return self.task.prepare_set(self.trainer.model, encoded)

    def outputs(self, encoded: EncodedSet, batch_size: int) -> dict[str, np.ndarray]:
        """Computes the task's outputs of every example of a set.

        Args:
            encoded: the set.
            batch_size: the number of examples in a batch.

        Returns:
            The outputs by name, each [n, ...], in the order of the set; empty for a set without
            examples.
        """
        if not len(encoded.lengths):
            return {}
        outputs = predict(
            self._compiled,
            self.strategy,
            self._prepare(encoded),
            batch_size,
            self.options.max_seq_length,
            self._pads_to_longest,
        )
        return self.task.example_outputs(encoded, outputs)

    def calibrate(self, encoded: EncodedSet) -> None:
        """Calibrates the probabilities of the model.

        Args:
            encoded: a set with labels.
        """
        batch_size = self.options.dev_batch_size
        log_set("Running calibration", encoded, batch_size)
        self.task.calibrate(encoded, self.outputs(encoded, batch_size))

    def evaluate(self, encoded: EncodedSet, suffix: str = "") -> None:
        """Evaluates a set with labels and writes eval_results.txt.

        Args:
            encoded: the set.
            suffix: the ending of the names of the result files, such as "_mm"; "" for a task's
                first set.

        Raises:
            InputError: the main metric of the task is none of its metrics.
        """
        batch_size = self.options.dev_batch_size
        log_set("Running evaluation", encoded, batch_size)
        outputs = self.outputs(encoded, batch_size)
        results = self._metrics(encoded, outputs, batch_size)
        self._write_results(results, suffix, len(encoded.lengths))
        self.task.report(self.options.output_dir, encoded, outputs, suffix)
        self._show_plugin(encoded, outputs, results, suffix)

    def predict(self, encoded: EncodedSet, suffix: str = "") -> None:
        """Writes the prediction files of a test set, and its scores if the task knows the true
        answers.

        Args:
            encoded: the set.
            suffix: the ending of the names of the files, such as "_mm"; "" for a task's first set.
        """
        output_dir, batch_size = self.options.output_dir, self.options.predict_batch_size
        log_set("Running prediction", encoded, batch_size)
        outputs = self.outputs(encoded, batch_size)
        results = self.task.write_predictions(output_dir, encoded, outputs, suffix)
        self._plugin.add_predictions(output_dir, outputs, suffix)
        if results is not None:
            self._write_results(results, suffix, len(encoded.lengths))
            self._show_plugin(encoded, outputs, results, suffix)

    def _show_plugin(
        self,
        encoded: EncodedSet,
        outputs: dict[str, np.ndarray],
        results: Mapping[str, float],
        suffix: str,
    ):
        """Hands an evaluated set to the extensions."""
        evaluation = Evaluation(
            output_dir=self.options.output_dir,
            task=self.task,
            encoded=encoded,
            outputs=outputs,
            results=results,
            suffix=suffix,
            step=self.trainer.global_step,
        )
        self._plugin.read_evaluation(evaluation)

    def _write_results(self, results: Mapping[str, float], suffix: str, num_examples: int):
        """Writes the metrics of a set into eval_results.txt; the first set's main metric becomes
        the run's score.
        """
        metric = self.task.main_metric
        reporting.write_eval_results(
            self.options.output_dir,
            results,
            self.trainer.global_step,
            suffix,
            main_metric=metric,
        )
        if metric in results:
            value = float(results[metric])
            has_learnt_order = is_correlated(metric, value, num_examples)
            self.score = self.score or Score(
                metric, value, self._beats_constant_prediction or has_learnt_order
            )

    def _metrics(
        self, encoded: EncodedSet, outputs: dict[str, np.ndarray], batch_size: int
    ) -> dict[str, float]:
        """Returns the task's metrics and, if the outputs contain losses, both of the original's
        mean losses.
        """
        results = dict(self.task.metrics(encoded, outputs))
        if self.task.main_metric not in results:
            raise InputError(
                f"--task_name: its main_metric, {self.task.main_metric}, is none of its metrics, "
                f"{', '.join(results) or 'of which there are none'}; correct the class of the task"
            )
        if "loss" not in outputs:
            return results
        losses = outputs["loss"].astype(np.float64)
        weights = outputs.get("loss_weight", np.ones_like(losses))
        batches = [slice(start, start + batch_size) for start in range(0, len(losses), batch_size)]
        batches = [batch for batch in batches if weights[batch].any()]
        return results | {
            "eval_loss": np.average(losses, weights=weights),
            # The original's second value: the mean over batches, in which a shorter last batch has
            # the same weight.
            "loss": np.mean(
                [np.average(losses[batch], weights=weights[batch]) for batch in batches]
            ),
        }
