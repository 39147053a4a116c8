"""A TensorBoard profile of some steps of a training, for --profile_steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import tensorflow as tf
from absl import logging

from official_bert.io.errors import InputError, brief
from official_bert.options.training import TrainingOptions, profiled_steps


def check_profiled_steps(options: TrainingOptions, num_train_steps: int):
    if options.do_train and profiled_steps(options.profile_steps)[1] > num_train_steps:
        raise InputError(
            f"--profile_steps={options.profile_steps}: the training ends at step {num_train_steps}; give a range "
            "within its steps"
        )


@contextlib.contextmanager
def profiling(
    options: TrainingOptions, run_steps: Callable, global_step: tf.Variable, is_chief: bool
) -> Iterator[Callable]:
    """Gives a function like `run_steps`, calls of which are profiled if they make steps of --profile_steps.

    No call crosses the ends of the range. Of a run that goes on from a step in the range, the rest is profiled. A
    failure of the profiler costs the profile and not the run.
    """
    if not (options.profile_steps and is_chief):
        yield run_steps
        return
    (first, last), begins = profiled_steps(options.profile_steps), int(global_step.numpy())
    if first < begins:
        which = f"the steps from {begins} on are profiled" if begins < last else "nothing is profiled"
        logging.warning("--profile_steps=%s: the run goes on from step %d; %s", options.profile_steps, begins, which)
    upcoming, running = [max(first, begins)] * (begins < last), contextlib.ExitStack()

    def run(*arguments):
        if upcoming and upcoming[0] == global_step.numpy():
            upcoming.clear()  # a step that float16 skips comes twice
            running.enter_context(_profile(options.output_dir))
        sums = run_steps(*arguments)
        if global_step.numpy() >= last:
            running.close()
        return sums

    with running:
        yield run


@contextlib.contextmanager
def _profile(folder: str) -> Iterator[None]:
    with _costing_the_profile():
        tf.profiler.experimental.start(folder)
    try:
        yield
    finally:
        with _costing_the_profile():
            tf.profiler.experimental.stop()
            logging.info("Wrote a profile to %s/plugins/profile", folder)


@contextlib.contextmanager
def _costing_the_profile() -> Iterator[None]:
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        logging.warning("The profile of --profile_steps is lost: %s", brief(error))
