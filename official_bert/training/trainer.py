"""The common part of all training: building and loading a model, resuming, training, saving.

`Trainer.fit` shows a run from its first step to its last.
"""

import contextlib
import functools
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import keras
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import (
    CheckpointManager,
    log_trainable_variables,
    named_variables,
    names,
)
from official_bert.checkpoints.folder import check_not_lost
from official_bert.config import BertConfig
from official_bert.io import processes
from official_bert.io.errors import Diverged, Terminated
from official_bert.optimization import make_optimizer
from official_bert.optimization.adam import has_xla
from official_bert.options.shared import FLOAT16
from official_bert.options.training import PER_REPLICA, TrainingOptions
from official_bert.training import distribution, loop, precision, run_log, starting_point, workers
from official_bert.training.loop import Batches, Stops, Sums, compiled_steps
from official_bert.training.reporting import TrainingReport
from official_bert.training.step import Objective, TrainingStep


class Hook(Protocol):
    """What happens every few updates of a training, such as an evaluation.

    It is called at the multiples of `every_steps` and at the end, each time after a checkpoint,
    which a thread may still write: before a hook keeps results of its own, it calls
    `Trainer.finish_saving`. It is also called at the step from which a run goes on, because the
    earlier one may have been killed before it was called.
    """

    every_steps: int

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Receives the step and the metrics of the last progress line; returns whether training
        stops here.
        """


class Trainer:
    """A model with its optimizer and checkpoints, and the weights of the newest checkpoint, if
    there is one.

    Attributes:
        seed: the seed of the run, that of the newest checkpoint, if there is one.
        num_train_steps: updates in total, including earlier runs.
        trained: the variables that the training changes, by name.
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
        has_own_input: bool = False,
        redrawn: Sequence[str] = (),
        rate_factor: Callable[[str], float] | None = None,
        max_train_hours: float | None = None,
    ):
        """Builds everything in the strategy's scope and loads the weights.

        All workers read checkpoints from `run_dir`, which the chief writes; `options.output_dir` is
        the folder that this worker writes to. Weights with a prefix in `frozen`, beside those that
        the model does not use, have no gradient, no slots and no decay; those with a prefix in
        `redrawn` start with random values. `rate_factor` is the optimizer's. With `has_own_input`
        each worker reads records of its own, and saves its own position in them. With
        `max_train_hours` the training ends after these hours, if it does not end before.
        """
        self.options, self.strategy, self.config = options, strategy, config
        self.num_train_steps, self._report = num_train_steps, None

        # The devices, and the type of their matrix products.
        precision.check_dtype(options.dtype, strategy)
        dtype, self._device_facts = precision.choose(options.dtype, strategy)

        # The checkpoints of the folder, and the seed that they go on with.
        check_not_lost(run_dir)
        wait = functools.partial(workers.wait_for_all, strategy) if has_own_input else None
        worker = workers.worker_index(strategy)
        is_true_of_any = functools.partial(workers.is_true_of_any, strategy)
        self.checkpoints = CheckpointManager(
            run_dir,
            {},
            options.keep_checkpoint_max,
            worker,
            wait,
            in_background=True,
            is_true_of_any=is_true_of_any,
        )
        starting_point.check_config(options, self.checkpoints, config)
        self.seed = workers.from_chief(
            strategy, starting_point.choose_seed(options, self.checkpoints)
        )
        logging.info("Random seed = %d", self.seed)
        starting_point.seed_initial_weights(self.seed)

        # The model and the optimizer.
        with strategy.scope(), precision.computing_in(dtype):
            self.model = build_model()
            weights = {
                name: variable.value for name, variable in named_variables(self.model).items()
            }
            unused = getattr(self.model, "unused_weights", ())
            untrained = (*frozen, *unused)
            trained = {
                name: value
                for name, value in weights.items()
                if not name.startswith(untrained) or names.is_adapter(name)
            }
            self.optimizer = make_optimizer(options, num_train_steps, num_warmup_steps)
            self.optimizer.build(trained.items(), rate_factor)
            self._loss_scale = precision.LossScale() if dtype == FLOAT16 else None
            self._limit = max_train_hours and loop.TimeLimit(max_train_hours, num_train_steps)
            if self._limit:
                self.optimizer.position = self._limit.position
        self.trained = trained
        self._weights_and_step = weights | {"global_step": self.optimizer.global_step}
        self.checkpoints.variables = self._weights_and_step | self.optimizer.slots

        # The weights to begin with.
        newest = self.checkpoints.latest
        loaded = starting_point.load_weights(
            options, self.checkpoints, self.model, self._weights_and_step, unused, redrawn
        )
        # Which is corrupt; the older one may have another seed.
        if self.checkpoints.latest != newest:
            self.seed = starting_point.choose_seed(options, self.checkpoints)
            starting_point.seed_initial_weights(self.seed)
        if self.checkpoints.latest:
            self.optimizer.global_step.assign(self.checkpoints.latest_step())
        else:
            self.optimizer.start_averages()
        if self._limit:
            used = self.checkpoints.saved_input_value("train_millisecs")
            self._limit.restore(used, functools.partial(workers.from_chief, strategy))
        log_trainable_variables(self.model, loaded)
        starting_point.check_same_folder(strategy, self.checkpoints)
        starting_point.check_same_weights(strategy, weights)
        if not worker and self.num_updates and self.global_step:
            starting_point.warn_of_changed_flags(options, run_dir, self.global_step)

    @property
    def global_step(self) -> int:
        """The number of updates that the weights have had."""
        return int(self.optimizer.global_step.numpy())

    @property
    def num_updates(self) -> int | None:
        """The number of updates that the training still has to make; None without --do_train."""
        if not self.options.do_train:
            return None
        return 0 if self._is_out_of_time() else max(0, self.num_train_steps - self.global_step)

    def _is_out_of_time(self) -> bool:
        return self._limit is not None and not self._limit.secs_left

    @property
    def facts(self) -> dict[str, object]:
        """What the start line of run_log.py keeps of the training and its devices."""
        return {
            "num_updates": self.num_updates,
            "first_step": self.global_step,
        } | self._device_facts

    def final_loss(self) -> tuple[float, int] | None:
        """Returns the loss at the end of the training, as `TrainingReport.final_loss`; None
        before a training.
        """
        return self._report and self._report.final_loss()

    def weights_in(self, folder: str) -> CheckpointManager:
        """Returns the checkpoints of a folder that hold the weights and the step, not the state
        for resuming.
        """
        worker = workers.worker_index(self.strategy)
        goes_on = self.options.do_train
        return CheckpointManager(
            folder, self._weights_and_step, keep_max=1, worker=worker, goes_on=goes_on
        )

    @property
    def steps_per_loop(self) -> int:
        """The maximum number of updates in one call into TensorFlow."""
        options = self.options
        is_tpu = distribution.is_tpu(self.strategy)
        wanted = options.iterations_per_loop if is_tpu else options.steps_per_loop
        return min(
            wanted, self.log_every_steps, options.save_checkpoints_steps, self.num_train_steps
        )

    @property
    def log_every_steps(self) -> int:
        """The number of updates between two progress lines; on TPU a multiple of the device loop
        (original).
        """
        options = self.options
        if not distribution.is_tpu(self.strategy):
            return options.log_every_steps
        loop_steps = options.iterations_per_loop
        return -(-options.log_every_steps // loop_steps) * loop_steps

    def fit(
        self,
        objective: Objective,
        batches: Batches,
        hooks: Sequence[Hook] = (),
        ramp: loop.Ramp | None = None,
    ):
        """Trains to `num_train_steps`, from the newest checkpoint of output_dir on.

        An update has as many batches as the ramp says; the objective has a method `of_batches`
        then.

        Afterwards, as for the hooks, the model has the averages of its weights, if --ema_decay asks
        for them.

        Raises Diverged, after which nothing is saved, if the loss is not finite, and Terminated,
        after the step that was reached is saved, if SIGTERM or SIGHUP arrived here or in another
        process.
        """
        step = self._restore(batches)
        is_out_of_time = self._is_out_of_time()
        if step >= self.num_train_steps or is_out_of_time:
            total = (
                "its hours are over" if is_out_of_time else f"{self.num_train_steps} is the total"
            )
            logging.warning(
                "Skipping training: %s already holds step %d, and %s; other flags of the training, "
                "such as "
                "--learning_rate, change nothing", self.checkpoints.output_dir, step, total,
            )  # fmt: skip
            self.optimizer.use_averages()
            for hook in hooks:
                hook(step, {})  # the earlier run may have been killed before this call
            return
        ramp, multiple = ramp or loop.Ramp(), 0
        stops = self._stops(hooks)._replace(single_steps=ramp.starts)
        report = self._report = TrainingReport(
            self.options,
            self.num_train_steps,
            objective,
            self.optimizer,
            self._loss_scale,
            self._limit,
        )

        def is_stopped_by_hooks(step: int) -> bool:
            due = [hook for hook in hooks if stops.is_due(step, hook.every_steps)]
            if not due:
                # A disk that is full ends the run now, not at the next checkpoint.
                self.finish_saving(if_ended=True)
                return False
            with self.optimizer.using_averages():
                answers = [hook(step, report.metrics) for hook in due]
            return any(answers)

        if self.checkpoints.latest is None:
            self._save(step, batches)
        with self._summarised(report):
            is_over = step > 0 and is_stopped_by_hooks(step)
            while step < stops.num_train_steps and not is_over:
                if (wanted := ramp.multiple_at(self._position())) != multiple:
                    multiple, most_steps = wanted, 1
                    of_update = objective if multiple == 1 else objective.of_batches(multiple)
                    report.begin(of_update, multiple)
                    run_steps = self._step_function(of_update, multiple)
                num_steps = min(stops.next_count(step), most_steps)
                with processes.deferred() as arrived:
                    start_secs = time.monotonic()
                    sums = run_steps(batches, num_steps)
                    # Fewer updates than steps if float16 overflows.
                    batches.have_run(num_steps * multiple)
                    num_updates = report.add(num_steps, sums)
                    step += num_updates
                    if self._limit and self._limit.look(
                        functools.partial(workers.from_chief, self.strategy)
                    ):
                        is_out_of_time, stops = True, stops._replace(num_train_steps=step)
                        report.num_train_steps = step
                    secs_of_step = (time.monotonic() - start_secs) / num_steps
                    most_steps = self._most_steps_of_a_call(
                        secs_of_step, is_ending=arrived() is not None
                    )
                    is_ending = most_steps == 0
                    if is_ending or stops.logs_at(step):
                        report.write()
                    if is_ending or ((num_updates or is_out_of_time) and stops.saves_at(step)):
                        self._save(step, batches)
                    if is_ending:
                        self.finish_saving()
                        workers.wait_for_all(self.strategy)  # for the process that saves
                        raise Terminated(arrived() or signal.SIGTERM)
                is_over = (num_updates > 0 or is_out_of_time) and is_stopped_by_hooks(step)
            report.write()
            self.optimizer.use_averages()

    def _most_steps_of_a_call(self, secs_of_step: float, is_ending: bool) -> int:
        """Returns how many updates the next call into TensorFlow may make for a signal not to wait,
        in all workers.

        That is 0 if one of them is ending. Only a TPU, whose loops are the original's, makes all
        that it is told to.
        """
        most = (
            self.steps_per_loop
            if distribution.is_tpu(self.strategy)
            else int(loop.SECS_OF_A_CALL / secs_of_step)
        )
        return int(workers.from_all(self.strategy, 0 if is_ending else max(1, most)).min())

    def _restore(self, batches: Batches) -> int:
        """Restores the position in the data, if these are the same as before, and returns the step.

        The loss scale of float16 is restored with any data; after a run without one it is the
        first.
        """
        checkpoints = self.checkpoints
        if checkpoints.latest is not None:
            if checkpoints.saved_input_value("key") in (None, batches.key):
                checkpoints.restore_input(batches.state)
            else:
                logging.warning(
                    "Other input files, lengths, batch size or version than before: the input "
                    "starts anew"
                )
        if self._loss_scale:
            self._loss_scale.restore(checkpoints.saved_input_value)
        for restored in filter(None, (self._loss_scale, self._limit)):
            # Saved from now on, with what was restored.
            for name, variable in restored.state.items():
                setattr(batches.state, name, variable)
        # Before the chief changes the folder that the others still read.
        workers.wait_for_all(self.strategy)
        checkpoints.remove_leftovers()
        return self.global_step

    def _position(self) -> float:
        """Returns where the training stands, in updates: their number, or the share of the time
        if that is more.
        """
        return max(self.global_step, float(self._limit.position.numpy()) if self._limit else 0.0)

    def _step_function(
        self, objective: Objective, num_batches: int
    ) -> Callable[[Batches, int], Sums]:
        """Returns a function that makes several updates, each with so many batches; its first
        call compiles.
        """
        options = self.options
        with self.strategy.scope():
            step = TrainingStep(
                objective,
                list(self.trained.values()),
                self.optimizer,
                self.seed,
                self._jit_compile(),
                options.num_accumulation_steps * num_batches,
                clips_per_replica=options.gradient_clipping == PER_REPLICA,
                loss_scale=self._loss_scale,
                all_reduce_dtype=options.all_reduce_dtype,
            )
        logging.info("Compiling the training step ...")
        return compiled_steps(self.strategy, step, num_batches)

    def _jit_compile(self) -> bool:
        """Returns --jit_compile, or False where TensorFlow cannot do it or, on a TPU, does it
        anyway.
        """
        if not self.options.jit_compile or has_xla():
            return self.options.jit_compile
        if not distribution.is_tpu(self.strategy):
            logging.warning(
                "--jit_compile has no effect: tensorflow-tpu cannot compile for the CPU; install "
                "tensorflow instead"
            )
        return False

    def _stops(self, hooks: Sequence[Hook]) -> Stops:
        save_every_steps = (
            self.options.save_checkpoints_steps,
            *(hook.every_steps for hook in hooks),
        )
        steps = self.global_step, self.num_train_steps, self.steps_per_loop, self.log_every_steps
        return Stops(*steps, save_every_steps)

    def _save(self, step: int, batches: Batches):
        self.finish_saving()
        self.checkpoints.save(step, batches.state)

    def finish_saving(self, if_ended: bool = False):
        """Waits for the checkpoint that a thread writes, if there is one, and keeps a line of it in
        run_log.py.

        Raises what ended the writing before its time. With `if_ended` it does not wait.
        """
        if path := self.checkpoints.wait(if_ended):
            checkpoint = {"step": int(path.rpartition("-")[2]), "path": path}
            run_log.write_if_possible(self.options.output_dir, run_log.CHECKPOINT, checkpoint)

    @contextlib.contextmanager
    def _summarised(self, report: TrainingReport) -> Iterator[None]:
        """Writes the summary at the end of a training, and says how it goes on after an end
        before its time.
        """
        try:
            try:
                yield
            finally:  # an error of the writing, which came first, replaces that of a later step
                self.finish_saving()
        except BaseException as error:
            latest = self.checkpoints.latest
            if not isinstance(error, Exception):  # Ctrl-C or SIGTERM
                logging.warning(
                    "Stopped after step %d; %s is saved, and the same command goes on from it",
                    self.global_step,
                    latest,
                )
            report.write_summary(latest, error)
            if isinstance(error, Diverged):
                raise Diverged(
                    f"{error}; {starting_point.way_out(self.options, latest)}"
                ) from error
            raise
        report.write_summary(self.checkpoints.latest)
