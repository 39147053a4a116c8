"""What every trainer does around its task: build, load, resume, train, save.

In: options, a model and an objective. Out, in output_dir: checkpoints under the original's names, TensorBoard events,
the configuration, and a record of the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

import keras
import tensorflow as tf
from absl import logging

from official_bert import files
from official_bert.checkpoints import (
    CheckpointManager,
    load_checkpoint,
    log_trainable_variables,
    named_variables,
)
from official_bert.config import BertConfig
from official_bert.optimization import EXCLUDED_FROM_DECAY, AdamWeightDecayOptimizer, WarmupLinearDecay
from official_bert.options.training import TrainingOptions
from official_bert.training import distribution, loop, reporting, rng
from official_bert.training.step import Objective, TrainingStep

WEIGHT_DECAY_RATE = 0.01


class Batches(Protocol):
    """Where training batches come from.

    Attributes:
        state: what a checkpoint keeps of them, `key` and `seed` among it.
        key: of the data; a saved position fits data of the same key only.
    """

    state: tf.train.Checkpoint
    key: int

    def draw(self, num_steps: int) -> dict: ...


class TrainingJob:
    """A model with its optimizer and checkpoints.

    Attributes:
        model: with weights of the newest checkpoint in output_dir, else of --init_checkpoint, else fresh ones.
        seed: of the run; that of the newest checkpoint, if there is one.
        first_step: updates that the weights have had.
    """

    def __init__(
        self,
        options: TrainingOptions,
        strategy: tf.distribute.Strategy,
        build_model: Callable[[], keras.Model],
        num_train_steps: int,
        num_warmup_steps: int,
        frozen: Sequence[str] = (),
    ):
        """Builds everything in the strategy's scope and loads the weights.

        Args:
            options: of the script.
            strategy: whose replicas share each batch.
            build_model: makes the model, its weights drawn.
            num_train_steps: updates in total, earlier runs included.
            num_warmup_steps: updates of warm-up.
            frozen: name prefixes of the frozen weights: they get no gradient, no slots and no decay.
        """
        self.options, self.strategy = options, strategy
        self.num_train_steps = num_train_steps
        self.manager = CheckpointManager(options.output_dir, {}, options.keep_checkpoint_max)
        self.seed = self._choose_seed()
        rng.seed_initial_weights(self.seed)
        with strategy.scope():
            self.model = build_model()
            weights = {name: variable.value for name, variable in named_variables(self.model).items()}
            trained = {name: value for name, value in weights.items() if not name.startswith(tuple(frozen))}
            self.optimizer = AdamWeightDecayOptimizer(
                WarmupLinearDecay(options.learning_rate, num_train_steps, num_warmup_steps),
                weight_decay_rate=WEIGHT_DECAY_RATE,
                exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
            )
            self.optimizer.build(trained.items())
        self._trained = list(trained.values())
        self._weights_and_step = weights | {"global_step": self.optimizer.global_step}
        self.manager.variables = self._weights_and_step | self.optimizer.slots
        self._load_initial_weights()

    @property
    def global_step(self) -> int:
        """Updates that the weights have had."""
        return int(self.optimizer.global_step.numpy())

    def weights_in(self, folder: str) -> CheckpointManager:
        """Checkpoints of a folder that hold the weights and the step, not what only further training needs."""
        return CheckpointManager(folder, self._weights_and_step, keep_max=1)

    @property
    def steps_per_loop(self) -> int:
        """The most updates that one call into TensorFlow makes."""
        options = self.options
        wanted = options.steps_per_loop
        if distribution.is_tpu(self.strategy):
            wanted = options.iterations_per_loop
        return min(wanted, self.log_every_steps, options.save_checkpoints_steps, self.num_train_steps)

    @property
    def log_every_steps(self) -> int:
        """Updates between two progress lines. On TPU they come after whole device loops, as in the original."""
        options = self.options
        if not distribution.is_tpu(self.strategy):
            return options.log_every_steps
        loop_steps = options.iterations_per_loop
        return -(-options.log_every_steps // loop_steps) * loop_steps

    def train(
        self,
        config: BertConfig,
        objective: Objective,
        batches: Batches,
        metrics: Callable[[loop.Sums, int], dict[str, float]],
        evaluation: loop.Evaluation | None = None,
    ):
        """Trains to the total, going on where the newest checkpoint of output_dir stopped.

        Args:
            config: of the model, written beside its checkpoints.
            objective: what is minimised.
            batches: to learn from.
            metrics: of the progress line, from the objective's sums and the number of steps that they are of.
            evaluation: in the middle of training; None for none.
        """
        options = self.options
        self._resume(batches)
        if self.global_step >= self.num_train_steps:
            logging.info(
                "Skipping training: %s already holds step %d, and %d is the total",
                options.output_dir,
                self.global_step,
                self.num_train_steps,
            )
            if evaluation:
                evaluation(self.global_step)  # the run may have been killed before it came to this
            return
        with files.replacing(os.path.join(options.output_dir, "bert_config.json")) as file:
            file.write(config.to_json_string())
        with self.strategy.scope():
            step = TrainingStep(objective, self._trained, self.optimizer, self.seed, options.jit_compile)
        reporter = reporting.ProgressReporter(
            options.output_dir, self.num_train_steps, options.train_batch_size, self.global_step
        )

        def report(step_number, num_steps, sums):
            rate = float(self.optimizer.current_rate())
            reporter.report(step_number, metrics(sums, num_steps) | {"learning_rate": rate})

        def save(step_number):
            self.manager.save(step_number, batches.state)

        if self.manager.latest is None:
            save(self.global_step)
        loop.train(
            run_steps=reporter.watching(loop.compiled_steps(self.strategy, step)),
            draw=batches.draw,
            first_step=self.global_step,
            num_train_steps=self.num_train_steps,
            steps_per_loop=self.steps_per_loop,
            log_every_steps=self.log_every_steps,
            save_every_steps=options.save_checkpoints_steps,
            report=report,
            save=save,
            evaluation=evaluation,
        )

    def _resume(self, batches: Batches):
        """Every variable and, if they are the same data, the batches go where the newest checkpoint left them."""
        fits = self.manager.saved_input_value("key") in (None, batches.key)
        if not fits:
            logging.warning("Other input files, lengths or batch size than before: the input starts anew")
        self.manager.restore(batches.state if fits else None)

    def _choose_seed(self) -> int:
        saved, given = self.manager.saved_input_value("seed"), self.options.random_seed
        if saved is not None and given not in (None, saved):
            logging.warning("--random_seed=%d is not used: the run goes on with its seed", given)
        seed = rng.choose_seed(given) if saved is None else saved
        logging.info("Random seed = %d", seed)
        return seed

    def _load_initial_weights(self):
        """A checkpoint in output_dir beats --init_checkpoint, as in the original."""
        options, initialized = self.options, []
        source = self.manager.latest or options.init_checkpoint
        if source:
            initialized = load_checkpoint(self.model, source).matched
        elif not options.do_train:
            logging.warning(
                "No checkpoint in %s and no --init_checkpoint: the weights are random", options.output_dir
            )
        if self.manager.latest:
            if options.init_checkpoint:
                logging.info("--init_checkpoint is not used: %s goes on from %s", options.output_dir, source)
            self.optimizer.global_step.assign(self.manager.latest_step())
        log_trainable_variables(self.model, initialized)


def log_input_files(names: Sequence[str]):
    """Logs the files that are read, as the original does."""
    logging.info("*** Input Files ***")
    for name in names:
        logging.info("  %s", name)
