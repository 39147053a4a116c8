"""Builds and loads a model, and trains it from its newest checkpoint on.

`Trainer.fit` shows a run from its first step to its last.
"""

import contextlib
import functools
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import tensorflow as tf
from absl import logging

from official_bert.checkpoints import (
    CheckpointManager,
    log_trainable_variables,
    named_variables,
    names,
)
from official_bert.checkpoints.folder import check_not_lost
from official_bert.checkpoints.manager import InferenceCheckpoints, LoneWorker
from official_bert.config import BertConfig
from official_bert.io import processes
from official_bert.io.errors import Diverged
from official_bert.io.progress import NUM_LINES, is_python_call
from official_bert.optimization import make_optimizer
from official_bert.optimization.adam import has_xla
from official_bert.options.shared import FLOAT16
from official_bert.options.training import PER_REPLICA, TrainingOptions
from official_bert.training import distribution, flops, precision, run_log, starting_point
from official_bert.training.calls import MAX_LOG_STEPS, Calls, Ramp, Stops
from official_bert.training.loop import Batches, Sums, compiled_steps
from official_bert.training.plan import TrainPlan
from official_bert.training.profiling import Profile
from official_bert.training.reporting import TrainingReport
from official_bert.training.run_log import EVALUATION_SECS, READ_SECS, SAVE_SECS, UPDATE_SECS
from official_bert.training.step import Objective, RampObjective, TrainingStep
from official_bert.training.time_limit import TimeLimit
from official_bert.training.workers import Workers

# What a command may do besides training.
_OTHER_STEPS = ("do_eval", "do_predict", "calibrate")


class Hook(Protocol):
    """What happens every few updates of a training, such as an evaluation.

    A hook is called at the multiples of `every_steps` and at the end, each time after a checkpoint,
    which a thread may still write: before a hook keeps results of its own, it calls
    `Trainer.finish_saving`. It is also called at the step from which a run resumes, because the
    earlier run may have been killed before the call.
    """

    every_steps: int

    def __call__(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Does the work that is due.

        Args:
            step: the number of updates so far.
            metrics: the metrics of the last progress line.

        Returns:
            Whether the training stops here.
        """
        ...


class Trainer:
    """A model with its optimizer and checkpoints, loaded from the newest checkpoint, if any.

    Attributes:
        model: the model.
        optimizer: its optimizer.
        checkpoints: the checkpoints of the run.
        seed: the seed of the run, which is that of the newest checkpoint, if there is one.
        num_train_steps: the number of updates, with those of earlier runs.
        last_step: the number of updates at which this run ends, at most `num_train_steps`.
        trained: the variables that the training changes, by name.
        loaded: the names of the weights that come from a checkpoint.
        workers: the processes that train together.
    """

    def __init__(
        self,
        options: TrainingOptions,
        strategy: tf.distribute.Strategy,
        config: BertConfig,
        plan: TrainPlan,
    ):
        """Builds everything in the strategy's scope and loads the weights.

        Args:
            options: the flags of the run; `output_dir` is the folder that this worker writes to.
            strategy: the devices.
            config: the configuration of the model.
            plan: what is trained, from where, and for how long.
        """
        self.options = options
        self.strategy = strategy
        self.config = config
        self.workers = Workers(strategy)
        self.num_train_steps = plan.num_train_steps
        self.last_step = plan.num_train_steps
        if plan.stop_at_step is not None:
            self.last_step = min(plan.stop_at_step, plan.num_train_steps)
        self._report: TrainingReport | None = None
        self._example_flops = plan.example_flops

        # The devices, and the type of their matrix products.
        precision.check_dtype(options.dtype, strategy)
        dtype, self._device_metadata = precision.choose(options.dtype, strategy)
        self._dtype = dtype

        # The checkpoints of the folder, and the seed of the run.
        check_not_lost(plan.run_dir)
        self.checkpoints = CheckpointManager(
            plan.run_dir,
            {},
            options.keep_checkpoint_max,
            workers=self.workers,
            saves_all_inputs=plan.reads_worker_files,
            saves_in_background=True,
        )
        starting_point.check_config(options, self.checkpoints, config)
        chosen_seed = starting_point.choose_seed(options, self.checkpoints)
        self.seed = self.workers.broadcast_from_chief(chosen_seed)
        logging.info("Random seed = %d", self.seed)
        starting_point.seed_initial_weights(self.seed)

        self._build(plan, dtype)
        self._load(plan)
        if self.workers.is_chief and self.num_updates and self.global_step:
            starting_point.warn_of_changed_flags(options, plan.run_dir, self.global_step)

    def _build(self, plan: TrainPlan, dtype: str):
        """Builds the model and its optimizer, with initial weights."""
        with self.strategy.scope(), precision.computing_in(dtype):
            self.model = plan.build_model()
            variables = named_variables(self.model)
            weights = {name: variable.value for name, variable in variables.items()}
            untrained = (*plan.weights.frozen, *self.unused_weights)
            self.trained = {
                name: variable.value
                for name, variable in variables.items()
                if names.is_adapter(name) or (variable.trainable and not name.startswith(untrained))
            }
            self.optimizer = make_optimizer(
                self.options, plan.num_train_steps, plan.num_warmup_steps
            )
            self.optimizer.build(self.trained.items(), plan.weights.rate_factor)
            self._loss_scale = precision.LossScale() if dtype == FLOAT16 else None
            self._limit = None
            if plan.max_train_hours:
                self._limit = TimeLimit(plan.max_train_hours, plan.num_train_steps)
                self.optimizer.position = self._limit.position
        self._weights_and_step = weights | {"global_step": self.optimizer.global_step}
        self.checkpoints.variables = self._weights_and_step | self.optimizer.slots

    @property
    def unused_weights(self) -> Sequence[str]:
        """Name prefixes of weights that the model has and does not use."""
        return getattr(self.model, "unused_weights", ())

    def _load(self, plan: TrainPlan):
        """Loads the newest checkpoint, or else the weights that the training starts from."""
        newest = self.checkpoints.latest
        self.loaded = starting_point.load_weights(
            self.options,
            self.checkpoints,
            self.model,
            self._weights_and_step,
            self.unused_weights,
            plan.weights.redrawn,
        )
        if self.checkpoints.latest != newest:
            # The newest one is corrupt. The older one may have another seed.
            self.seed = starting_point.choose_seed(self.options, self.checkpoints)
            starting_point.seed_initial_weights(self.seed)
        if self.checkpoints.latest:
            self.optimizer.global_step.assign(self.checkpoints.latest_step())
        else:
            self.optimizer.start_averages()
        if self._limit:
            used = self.checkpoints.saved_input_value("train_millisecs")
            self._limit.restore(used, self.workers)
        log_trainable_variables(self.model, self.loaded)
        starting_point.check_untrained(self.options, self.model, self.loaded, self.unused_weights)
        starting_point.check_same_folder(self.workers, self.checkpoints)
        weights = dict(self._weights_and_step)
        weights.pop("global_step")
        starting_point.check_same_weights(self.workers, weights)

    @property
    def global_step(self) -> int:
        """The number of updates that the weights have had."""
        return int(self.optimizer.global_step.numpy())

    @property
    def num_updates(self) -> int | None:
        """The number of remaining updates of the training; None without --do_train."""
        if not self.options.do_train:
            return None
        return 0 if self._is_out_of_time() else max(0, self.last_step - self.global_step)

    def _is_out_of_time(self) -> bool:
        return self._limit is not None and not self._limit.secs_left

    @property
    def run_metadata(self) -> dict[str, object]:
        """The values of the training and its devices for the start line of run_log.py."""
        steps = {"num_updates": self.num_updates, "first_step": self.global_step}
        return steps | self._device_metadata

    def final_loss(self) -> tuple[float, int] | None:
        """Returns `TrainingReport.final_loss` at the end of the training; None before it."""
        return self._report and self._report.final_loss()

    def weights_in(self, folder: str) -> CheckpointManager:
        """Returns checkpoints with weights and step, without the state for resuming.

        Args:
            folder: the folder of the checkpoints.
        """
        manager_class = CheckpointManager if self.options.do_train else InferenceCheckpoints
        return manager_class(
            folder,
            self._weights_and_step,
            keep_max=1,
            workers=LoneWorker(self.workers.index),
        )

    @property
    def steps_per_loop(self) -> int:
        """The maximum number of updates in one call into TensorFlow."""
        options = self.options
        is_tpu = distribution.is_tpu(self.strategy)
        maximum = options.iterations_per_loop if is_tpu else options.steps_per_loop
        return min(
            maximum, self.log_every_steps, options.save_checkpoints_steps, self.num_train_steps
        )

    @property
    def log_every_steps(self) -> int:
        """The number of updates between two progress lines.

        On a TPU, as in the original, it is a multiple of the device loop.
        """
        every_steps = self.options.log_every_steps
        if every_steps is None:
            every_steps = min(MAX_LOG_STEPS, max(1, self.num_train_steps // NUM_LINES))
        if not distribution.is_tpu(self.strategy):
            return every_steps
        loop_steps = self.options.iterations_per_loop
        return -(-every_steps // loop_steps) * loop_steps

    def fit(
        self,
        objective: Objective,
        batches: Batches,
        hooks: Sequence[Hook] = (),
        ramp: Ramp | None = None,
    ) -> None:
        """Trains to `last_step`, from the newest checkpoint of output_dir on.

        With --ema_decay, the model then has the averages of its weights, as it has for the hooks.

        Args:
            objective: what training minimises.
            batches: the source of the batches.
            hooks: what happens every few updates.
            ramp: the sizes of the batches; None for one size. The objective of a ramp has a method
                `for_batches`.

        Raises:
            Diverged: the loss is not finite. Nothing is saved after it.
            KeyboardInterrupt: Ctrl-C was pressed. The step is saved.
            Terminated: SIGTERM or SIGHUP arrived, or any of these signals in another process. The
                step is saved.
        """
        # Restore the position in the data.
        step = self._restore(batches)
        if step >= self.last_step or self._is_out_of_time():
            self._skip(step, hooks)
            return
        report = self._report = self._make_report(objective)
        report.read_secs = functools.partial(getattr, batches, READ_SECS, None)
        profile = Profile(self.options.profile_steps, self.options.output_dir)
        calls = self._make_calls(objective, batches, hooks, ramp or Ramp(), report, profile)
        if self.checkpoints.latest is None:
            self._save(step, batches)

        with self._summarised(report), profile:
            is_over = step > 0 and self._call_hooks(hooks, step, calls)
            while step < calls.stops.num_train_steps and not is_over:
                with processes.deferred() as arrived_signal:
                    # Make several updates.
                    profile.update(step)
                    with report.timed(UPDATE_SECS):
                        call = calls.run(step, arrived_signal)
                    step = call.step
                    profile.update(step)

                    # Report and save.
                    if call.is_interrupted or calls.stops.logs_at(step):
                        report.write()
                    report.show_progress()
                    if call.is_interrupted or (call.is_progress and calls.stops.saves_at(step)):
                        with report.timed(SAVE_SECS):
                            self._save(step, batches)
                    if call.is_interrupted:
                        self.finish_saving()
                        self.workers.wait()  # for the process that saves
                        processes.end_by(arrived_signal() or signal.SIGTERM)

                # Evaluate, and whatever else is due.
                with report.timed(EVALUATION_SECS):
                    is_over = call.is_progress and self._call_hooks(hooks, step, calls)
            report.write()
            self.optimizer.use_averages()

    def _restore(self, batches: Batches) -> int:
        """Restores the position in the data, if they are the same as before.

        The loss scale of float16 is restored with any data. After a run without a scale it is the
        first one.

        Returns:
            The number of updates that the weights have had.
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
        for part in (self._loss_scale, self._limit):
            if part:
                # From now on it is saved with the position.
                for name, variable in part.state.items():
                    setattr(batches.state, name, variable)
        # The other workers still read the folder that the chief changes.
        self.workers.wait()
        checkpoints.remove_leftovers()
        return self.global_step

    def _skip(self, step: int, hooks: Sequence[Hook]):
        """Logs that nothing is left to train, and calls what a killed run may have left out.

        It is a warning if a command then does nothing at all. A call in Python returns the model.
        """
        is_out_of_time = self._is_out_of_time()
        limit_flag = self.options.length_flag
        if is_out_of_time:
            limit_flag = "max_train_hours"
        elif self.last_step < self.num_train_steps:
            limit_flag = "stop_at_step"
        has_other_steps = any(getattr(self.options, name, False) for name in _OTHER_STEPS)
        logging.log(
            logging.INFO if has_other_steps or is_python_call() else logging.WARNING,
            "Nothing to train: %s has already reached step %d%s; to train longer, raise --%s; to "
            "train again, use another --output_dir",
            self.checkpoints.output_dir,
            step,
            " and its hours are over" if is_out_of_time else f" of {self.last_step}",
            limit_flag,
        )
        self.optimizer.use_averages()
        for hook in hooks:
            hook(step, {})

    def _make_report(self, objective: Objective) -> TrainingReport:
        report = TrainingReport(
            self.options,
            self.last_step,
            objective,
            self.optimizer,
            self._loss_scale,
            self._limit,
        )
        report.utilization = self._utilization()
        return report

    def _utilization(self) -> float | None:
        """Returns the share of the devices' peak that one example a second uses; None if unknown.

        --peak_flops replaces the peak of a known device.
        """
        if self._example_flops is None:
            return None
        peak = getattr(self.options, "peak_flops", None)
        if peak is None:
            peak = flops.find_peak(self._dtype, distribution.device_kind(self.strategy))
        if peak is None:
            return None
        return self._example_flops / (peak * self.strategy.num_replicas_in_sync)

    def _make_calls(
        self,
        objective: Objective,
        batches: Batches,
        hooks: Sequence[Hook],
        ramp: Ramp,
        report: TrainingReport,
        profile: Profile,
    ) -> Calls:
        def compile_steps(num_batches: int) -> Callable[[Batches, int], Sums]:
            update_objective = objective
            if num_batches > 1:
                # The objectives of --train_batch_size_ramp have the method.
                assert isinstance(objective, RampObjective)
                update_objective = objective.for_batches(num_batches)
            report.begin(update_objective, num_batches)
            return self.step_function(update_objective, num_batches)

        hook_steps = [hook.every_steps for hook in hooks]
        stops = Stops(
            first_step=self.global_step,
            num_train_steps=self.last_step,
            steps_per_loop=self.steps_per_loop,
            log_every_steps=self.log_every_steps,
            save_every_steps=(self.options.save_checkpoints_steps, *hook_steps),
            single_steps=(*ramp.starts, *profile.stops),
        )
        return Calls(
            compile_steps=compile_steps,
            batches=batches,
            report=report,
            stops=stops,
            ramp=ramp,
            limit=self._limit,
            workers=self.workers,
            ends_by_time=not distribution.is_tpu(self.strategy),
        )

    def _call_hooks(self, hooks: Sequence[Hook], step: int, calls: Calls) -> bool:
        """Calls the hooks that are due, and returns whether one of them ends the training."""
        due_hooks = [hook for hook in hooks if calls.stops.is_due(step, hook.every_steps)]
        if not due_hooks:
            # A full disk ends the run now, not at the next checkpoint.
            self.finish_saving(if_ended=True)
            return False
        with self.optimizer.using_averages():
            answers = [hook(step, calls.report.metrics) for hook in due_hooks]
        for hook in due_hooks:
            calls.report.evaluation |= getattr(hook, "latest", {})
        return any(answers)

    def step_function(
        self, objective: Objective, num_batches: int
    ) -> Callable[[Batches, int], Sums]:
        """Returns a function that makes several updates; its first call compiles.

        Args:
            objective: what the updates minimise.
            num_batches: the number of batches in an update.
        """
        options = self.options
        with self.strategy.scope():
            step = TrainingStep(
                objective=objective,
                variables=list(self.trained.values()),
                optimizer=self.optimizer,
                run_seed=self.seed,
                jit_compile=self.compiles_by_xla(),
                num_micro_batches=options.num_accumulation_steps * num_batches,
                clips_per_replica=options.gradient_clipping == PER_REPLICA,
                loss_scale=self._loss_scale,
                all_reduce_dtype=options.all_reduce_dtype,
            )
        logging.info("Compiling the training step ...")
        return compiled_steps(self.strategy, step, num_batches)

    def compiles_by_xla(self) -> bool:
        """Returns --jit_compile, or False where it has no effect.

        TensorFlow for TPUs cannot compile for the CPU, and compiles for a TPU anyway.
        """
        if not self.options.jit_compile or has_xla():
            return self.options.jit_compile
        if not distribution.is_tpu(self.strategy):
            logging.warning(
                "--jit_compile has no effect: tensorflow-tpu cannot compile for the CPU; install "
                "tensorflow instead"
            )
        return False

    def _save(self, step: int, batches: Batches):
        self.finish_saving()
        self.checkpoints.save(step, batches.state)

    def finish_saving(self, if_ended: bool = False) -> None:
        """Waits for the checkpoint that a thread writes, if there is one, and logs it in run.jsonl.

        An error that ended the writing is raised again.

        Args:
            if_ended: whether only a checkpoint that is complete is logged, without waiting.
        """
        if path := self.checkpoints.wait(if_ended):
            checkpoint = {"step": int(path.rpartition("-")[2]), "path": path}
            run_log.write_if_possible(self.options.output_dir, run_log.CHECKPOINT, checkpoint)

    @contextlib.contextmanager
    def _summarised(self, report: TrainingReport) -> Iterator[None]:
        """Writes the summary at the end of a training, and a hint after an early end."""
        try:
            try:
                yield
            finally:  # an error of the writing, which came first, replaces that of a later step
                self.finish_saving()
        except BaseException as error:
            latest = self.checkpoints.latest
            if not isinstance(error, Exception):  # Ctrl-C or SIGTERM
                logging.warning(
                    "Stopped after step %d; %s is saved, and the same command resumes from it",
                    self.global_step,
                    latest,
                )
            report.write_summary(latest, error)
            if isinstance(error, Diverged):
                raise Diverged(
                    f"{error}; {starting_point.recovery_hint(self.options, latest)}"
                ) from error
            raise
        report.write_summary(self.checkpoints.latest)
