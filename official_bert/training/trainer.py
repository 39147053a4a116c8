"""The common part of all training: building and loading a model, resuming, training, saving.

In: options, a model and an objective. Out, in output_dir: checkpoints under the original's names, and TensorBoard
events.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import keras
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import (
    CheckpointManager,
    load_checkpoint,
    log_trainable_variables,
    named_variables,
)
from official_bert.checkpoints.folder import check_not_lost
from official_bert.config import BertConfig
from official_bert.io.errors import Diverged, InputError
from official_bert.model_source import check_config_beside, difference_beside
from official_bert.modeling.encoder import set_recomputation
from official_bert.optimization import (
    EXCLUDED_FROM_DECAY,
    AdamWeightDecayOptimizer,
    LambOptimizer,
    WarmupLinearDecay,
)
from official_bert.optimization.adam import has_xla
from official_bert.options.shared import FLOAT16
from official_bert.options.training import LAMB, PER_REPLICA, TrainingOptions
from official_bert.training import distribution, loop, precision, run_log, seeds, workers
from official_bert.training.reporting import TrainingReports
from official_bert.training.step import Objective, TrainingStep

WEIGHT_DECAY_RATE = 0.01
# Flags on which the updates depend, beside those of the data and the model, which are compared elsewhere.
_OF_UPDATES = (
    "optimizer_type",
    "adam_bias_correction",
    "gradient_clipping",
    "learning_rate",
    "num_train_steps",
    "num_train_epochs",
    "num_warmup_steps",
    "warmup_proportion",
    "train_batch_size",
    "dtype",
)

_STEPS_OF_A_CALL = 10  # of a CPU or a GPU, where more save no time


class Batches(Protocol):
    """The source of training batches.

    Attributes:
        state: the state for a checkpoint, which includes `key` and `seed`.
        key: identifies the data; a saved position is valid only for the same key.
    """

    state: tf.train.Checkpoint
    key: int

    def draw(self, num_steps: int) -> loop.Drawn:
        """Draws the batches of the next steps."""


class TrainingJob:
    """A model with its optimizer and checkpoints.

    Attributes:
        model: the model with the weights of the newest checkpoint in output_dir, else of --init_checkpoint, else with
            initial weights.
        seed: the seed of the run; the seed of the newest checkpoint, if there is one.
        num_train_steps: updates in total, including earlier runs.
        facts: what the run record keeps of the devices.
    """

    def __init__(
        self,
        options: TrainingOptions,
        run_dir: str,
        strategy: tf.distribute.Strategy,
        config: BertConfig,
        build_model: Callable[[], keras.Model],
        num_train_steps: int,
        num_warmup_steps: int,
        frozen: Sequence[str] = (),
        unused: Sequence[str] = (),
        has_own_input: bool = False,
    ):
        """Builds everything in the strategy's scope and loads the weights.

        Args:
            options: the options of the script; `output_dir` is the folder that this worker writes to.
            unused: name prefixes of the weights on which no output depends; they are frozen, and may be missing.

        Raises:
            InputError: a checkpoint does not fit the model or its configuration, or without training it lacks weights;
                it is damaged, and training finds no older one that is whole.
        """
        self.options, self.strategy = options, strategy
        self._reports: TrainingReports | None = None
        self.num_train_steps = num_train_steps
        self.config = config
        self._worker = workers.worker_index(strategy)
        precision.check_dtype(options.dtype, strategy)
        dtype, self.facts = precision.choose(options.dtype, strategy)
        self._peak_flops = options.peak_flops if options.do_train else None
        self._num_frozen_layers = sum(name.startswith("bert/encoder/layer_") for name in frozen)
        check_not_lost(run_dir)
        wait = functools.partial(workers.wait_for_all, strategy)
        self.manager = CheckpointManager(
            run_dir, {}, options.keep_checkpoint_max, self._worker, wait if has_own_input else None
        )
        self._check_config()
        self.seed = workers.from_chief(strategy, self._choose_seed())
        logging.info("Random seed = %d", self.seed)
        seeds.seed_initial_weights(self.seed)
        with strategy.scope(), precision.computing_in(dtype):
            self.model = build_model()
            weights = {name: variable.value for name, variable in named_variables(self.model).items()}
            trained = {
                name: value for name, value in weights.items() if not name.startswith((*frozen, *unused))
            }
            set_recomputation(self.model, options.recompute_layers)
            rate = WarmupLinearDecay(options.learning_rate, num_train_steps, num_warmup_steps)
            self.optimizer = make_optimizer(options, rate)
            self.optimizer.build(trained.items())
            self._loss_scale = precision.LossScale() if dtype == FLOAT16 else None
        self._trained = list(trained.values())
        self._weights_and_step = weights | {"global_step": self.optimizer.global_step}
        self.manager.variables = self._weights_and_step | self.optimizer.slots
        self._load_initial_weights(unused)
        self._check_same_folder()
        self._tell_changed_flags()

    @property
    def global_step(self) -> int:
        """The number of updates that the weights have had."""
        return int(self.optimizer.global_step.numpy())

    @property
    def num_updates(self) -> int | None:
        """The number of updates that the training still has to make; None without --do_train."""
        return max(0, self.num_train_steps - self.global_step) if self.options.do_train else None

    def final_loss(self) -> tuple[float, int] | None:
        """Returns the loss at the end of the training, as `TrainingReports.final_loss`; None before a training."""
        return self._reports and self._reports.final_loss()

    def weights_in(self, folder: str) -> CheckpointManager:
        """Returns the checkpoints of a folder that hold the weights and the step, not the state for resuming."""
        return CheckpointManager(folder, self._weights_and_step, keep_max=1, worker=self._worker)

    @property
    def steps_per_loop(self) -> int:
        """The maximum number of updates in one call into TensorFlow."""
        options = self.options
        wanted = options.iterations_per_loop
        if not distribution.is_tpu(self.strategy):
            wanted = min(wanted, _STEPS_OF_A_CALL)
        return min(wanted, self.log_every_steps, options.save_checkpoints_steps, self.num_train_steps)

    @property
    def log_every_steps(self) -> int:
        """The number of updates between two progress lines; on TPU a multiple of the device loop (original)."""
        options = self.options
        if not distribution.is_tpu(self.strategy):
            return options.log_every_steps
        loop_steps = options.iterations_per_loop
        return -(-options.log_every_steps // loop_steps) * loop_steps

    def train(
        self,
        objective: Objective,
        batches: Batches,
        metrics: Callable[[loop.Sums, int], dict[str, float]],
        evaluation: loop.Evaluation | None = None,
        unshown: Collection[str] = (),
    ):
        """Trains to the total, from the newest checkpoint of output_dir on.

        Args:
            evaluation: the evaluation during training; None for none.
            unshown: metrics that only TensorBoard and train_log.jsonl get.
        """
        options = self.options
        self._resume(batches)
        workers.wait_for_all(self.strategy)  # before the chief changes the folder that the others still read
        self.manager.remove_leftovers()
        if self.global_step >= self.num_train_steps:
            logging.warning(
                "Skipping training: %s already holds step %d, and %d is the total; other flags of the training, "
                "such as --learning_rate, change nothing",
                self.manager.output_dir,
                self.global_step,
                self.num_train_steps,
            )
            if evaluation:
                evaluation(self.global_step)  # the earlier run may have been killed before this evaluation
            return
        with self.strategy.scope():
            step = TrainingStep(
                objective,
                self._trained,
                self.optimizer,
                self.seed,
                self._jit_compile(),
                options.num_accumulation_steps,
                clips_per_replica=options.gradient_clipping == PER_REPLICA,
                loss_scale=self._loss_scale,
            )
        reports = self._reports = TrainingReports(
            options,
            self.strategy,
            self.config,
            self.optimizer,
            self._loss_scale,
            self.num_train_steps,
            self._num_frozen_layers,
            self._peak_flops,
        )

        def report(step_number, num_steps, sums):
            reports.report(step_number, num_steps, sums, metrics(sums, num_steps), unshown)

        def save(step_number):
            self.manager.save(step_number, batches.state)

        if self.manager.latest is None:
            save(self.global_step)
        try:
            loop.train(
                run_steps=reports.watching(loop.compiled_steps(self.strategy, step)),
                draw=batches.draw,
                first_step=self.global_step,
                num_train_steps=self.num_train_steps,
                steps_per_loop=self.steps_per_loop,
                log_every_steps=self.log_every_steps,
                save_every_steps=options.save_checkpoints_steps,
                report=report,
                save=save,
                evaluation=evaluation,
                is_true_of_any=lambda condition: workers.is_true_of_any(self.strategy, condition),
            )
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C or SIGTERM
                logging.warning(
                    "Stopped after step %d; %s is saved, and the same command goes on from it",
                    self.global_step,
                    self.manager.latest,
                )
            reports.summarise(self.manager.latest, error)
            if isinstance(error, Diverged):
                raise Diverged(f"{error}; {self._way_out()}") from error
            raise
        reports.summarise(self.manager.latest)

    def _way_out(self) -> str:
        """Returns what a user can do about a training that diverged, as the end of a sentence."""
        options = self.options
        warmup = "num_warmup_steps" if hasattr(options, "num_warmup_steps") else "warmup_proportion"
        can_correct = options.optimizer_type != LAMB and not options.adam_bias_correction
        correction = ", or give --adam_bias_correction" if can_correct else ""
        return (
            f"the last checkpoint is sound: {self.manager.latest}, from which the same command goes on; lower "
            f"--learning_rate, lengthen its warm-up (--{warmup}){correction}; to go further back, give an older "
            "checkpoint as --init_checkpoint, and another --output_dir"
        )

    def _jit_compile(self) -> bool:
        """Returns --jit_compile, or False where TensorFlow cannot do it or, on a TPU, does it anyway."""
        if not self.options.jit_compile or has_xla():
            return self.options.jit_compile
        if not distribution.is_tpu(self.strategy):
            logging.warning(
                "--jit_compile has no effect: tensorflow-tpu cannot compile for the CPU; install tensorflow instead"
            )
        return False

    def _resume(self, batches: Batches):
        """Restores the position in the data, if these are the same as before.

        The loss scale of float16 is restored with any data; after a run without one it is the first.
        """
        if self.manager.latest is not None:
            if self.manager.saved_input_value("key") in (None, batches.key):
                self.manager.restore_input(batches.state)
            else:
                logging.warning("Other input files, lengths or batch size than before: the input starts anew")
        if self._loss_scale:
            self._loss_scale.restore(self.manager.saved_input_value)
            for name, variable in self._loss_scale.state.items():  # saved from now on, with what was restored
                setattr(batches.state, name, variable)

    def _choose_seed(self) -> int:
        """Returns the seed of the newest checkpoint; in training, of the newest whose input state is whole."""

        def read():
            return self.manager.saved_input_value("seed")

        saved = self.manager.from_newest_whole(read) if self.options.do_train else read()
        given = self.options.random_seed
        if saved is not None and given not in (None, saved):
            logging.warning("--random_seed=%d is not used: the run goes on with its seed", given)
        return seeds.choose_seed(given) if saved is None else saved

    def _check_same_folder(self):
        """Refuses workers that find other checkpoints than the chief, before anything is written."""
        found = -1 if self.manager.latest is None else self.manager.latest_step()
        of_chief = workers.from_chief(self.strategy, found)
        if workers.is_true_of_any(self.strategy, found != of_chief):
            if found == of_chief:
                raise InputError("--output_dir: another worker finds other checkpoints in it; see its log")
            raise InputError(
                f"--output_dir={self.manager.output_dir}: worker {self._worker} finds {_described(found)} in it, and "
                f"the chief {_described(of_chief)}; name a folder on a file system that all workers share"
            )

    def _tell_changed_flags(self):
        """Warns of flags that make the rest of a training differ from its beginning, which may be on purpose."""
        earlier = run_log.trainings(self.manager.output_dir)
        if self._worker or not (self.num_updates and self.global_step and earlier):
            return
        now = dataclasses.asdict(self.options)
        if changed := run_log.changed_flags(earlier[-1].get("flags") or {}, now, _OF_UPDATES):
            logging.warning(
                "%s goes on from step %d with other flags than before: %s",
                self.manager.output_dir,
                self.global_step,
                changed,
            )

    def _check_config(self):
        """Compares the configuration with that of the checkpoint; only training may begin with another one."""
        options = self.options
        if self.manager.latest:
            check_config_beside(self.manager.latest, self.config, in_training=options.do_train)
        elif options.init_checkpoint and not options.do_train:
            check_config_beside(options.init_checkpoint, self.config)
        elif options.init_checkpoint and (
            difference := difference_beside(options.init_checkpoint, self.config)
        ):
            logging.warning("%s: the weights were trained with another model", difference)

    def _load_initial_weights(self, unused: Sequence[str]):
        """Loads the checkpoint in output_dir or, as in the original, --init_checkpoint only without it.

        Training restores all of the checkpoint here, also the slots, so that its files are read once.
        """
        options, initialized = self.options, []
        is_complete = options.do_train or options.allow_missing_weights
        if options.do_train and self.manager.latest:
            self._restore_newest_whole()
            initialized = list(self._weights_and_step)
        elif source := self.manager.latest or options.init_checkpoint:
            report = load_checkpoint(self.model, source)
            if not is_complete:
                report.check_complete(unused)
            initialized = report.matched
        elif not is_complete:
            raise InputError(
                f"--init_checkpoint: is not given, and {self.manager.output_dir} holds no checkpoint, so the weights "
                "would be random; give one of the two, or --allow_missing_weights to use random weights on purpose"
            )
        if latest := self.manager.latest:
            if options.init_checkpoint:
                logging.info(
                    "--init_checkpoint is not used: %s goes on from %s", self.manager.output_dir, latest
                )
            self.optimizer.global_step.assign(self.manager.latest_step())
        log_trainable_variables(self.model, initialized)

    def _restore_newest_whole(self):
        """Restores the weights, slots and step of the newest checkpoint that is whole, which may have its own seed."""
        newest = self.manager.latest
        self.manager.from_newest_whole(self.manager.restore)
        if self.manager.latest != newest:
            self.seed = self._choose_seed()
            seeds.seed_initial_weights(self.seed)


def make_optimizer(options: TrainingOptions, rate: WarmupLinearDecay) -> AdamWeightDecayOptimizer:
    """Makes the optimizer that the flags name, without variables."""
    decay = {"weight_decay_rate": WEIGHT_DECAY_RATE, "exclude_from_weight_decay": EXCLUDED_FROM_DECAY}
    if options.optimizer_type == LAMB:
        return LambOptimizer(rate, **decay)
    return AdamWeightDecayOptimizer(rate, **decay, bias_correction=options.adam_bias_correction)


def _described(step: int) -> str:
    """Names the newest checkpoint of a folder; -1 stands for none."""
    return "no checkpoint" if step < 0 else f"model.ckpt-{step}"


def log_input_files(names: Sequence[str]):
    """Logs the names of the input files, as the original does."""
    logging.info("*** Input Files ***")
    for name in names:
        logging.info("  %s", name)
