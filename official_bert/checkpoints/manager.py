"""Saves and restores the checkpoints of a training run: `model.ckpt-<step>` and the state of the
input.

In: the variables of a run by TF1 name, and a tf.train.Checkpoint of its input. Out: an output_dir
from which this project, and a TF1 program, can resume. A run that is killed loses at most the steps
since the last `save` whose writing has ended.
"""

import concurrent.futures
import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import tensorflow as tf
from absl import logging

from official_bert.checkpoints import folder, loading, names, tf1
from official_bert.checkpoints.in_use import WeightsInUse, check_can_resume
from official_bert.io.errors import Diverged, InputError

T = TypeVar("T")


class WorkerGroup(Protocol):
    """The processes that save checkpoints together; see training/workers.py."""

    index: int

    def any_worker(self, condition: bool) -> bool:
        """Returns whether the condition holds on some worker; all of them call it."""

    def wait(self):
        """Returns when all workers have called it."""


class LoneWorker:
    """A process that asks no other one, whatever its number is."""

    def __init__(self, index: int = 0):
        self.index = index

    def any_worker(self, condition: bool) -> bool:
        return condition

    def wait(self):
        pass


class CheckpointManager:
    """Saves and restores a run in `output_dir`.

    `save` writes the `checkpoint` file last, so all checkpoints that it lists are complete:

        input.ckpt-<step>-<worker>   the input position and the seed: the objects that `save` receives
        model.ckpt-<step>            the weights, the Adam slots and `global_step`
        checkpoint                   the list of checkpoints; then `save` deletes those beyond `keep_max` and, last,
                                     takes them off the list, so that the next save deletes what a kill left
    """

    def __init__(
        self,
        output_dir: str,
        variables: dict,
        keep_max: int = 5,
        *,
        workers: WorkerGroup | None = None,
        saves_all_inputs: bool = False,
        goes_on: bool = True,
        saves_in_background: bool = False,
    ):
        """Manages the checkpoints in a folder, including those of earlier runs; the first `save`
        creates it.

        Args:
            variables: tf.Variables, Keras or mirrored variables by TF1 name, including
                `global_step`.
            keep_max: the number of newest checkpoints to keep; 0 keeps all.
            workers: the workers of the run, of which the first writes the files, and all read them.
                All of them call `save`. By default this process is the only one.
            saves_all_inputs: whether each worker saves the state of its own input.
            goes_on: whether `restore` is for a training that goes on; if not, it reads the weights
                as they are used.
            saves_in_background: whether `save` returns while a thread still writes, whose end `wait`
                awaits.
        """
        self.output_dir, self.variables, self.keep_max = output_dir, dict(variables), keep_max
        self._workers = workers or LoneWorker()
        self._saves_all_inputs = saves_all_inputs
        self._goes_on, self._in_background = goes_on, saves_in_background
        self._writer = concurrent.futures.ThreadPoolExecutor(1)  # which a process awaits at its end
        self._writing: concurrent.futures.Future[str] | None = None
        self._corrupt: set[str] = set()  # prefixes of checkpoints that the run does not use

    @property
    def latest(self) -> str | None:
        """The prefix of the newest checkpoint that `from_newest_valid` has not left out; see
        folder.newest.
        """
        return self._valid()[-1] if self._corrupt else folder.newest(self.output_dir)

    def _valid(self) -> list[str]:
        return [
            path for path in folder.list_checkpoints(self.output_dir) if path not in self._corrupt
        ]

    def from_newest_valid(self, read: Callable[[], T]) -> T:
        """Calls a function that reads the newest checkpoint and, while that is corrupt, again for
        the one before it.

        For a run that goes on training; the function reads `latest`, which leaves out the corrupt
        ones from then on, and so does the list that the next `save` writes. Their files stay, until
        one of the same step replaces them.
        """
        faults = []
        while True:
            try:
                found = read()
                break
            except tf1.Corrupt as error:
                faults.append(error)
                if len(self._valid()) < 2:
                    raise faults[0] from None
                self._corrupt.add(self.latest)
        for error in faults:
            logging.warning(
                "%s is corrupt (%s): training goes on from step %d, that of the older %s",
                error.file,
                error.reason,
                self.latest_step(),
                self.latest,
            )
        return found

    def latest_step(self) -> int | None:
        """Returns the step of the newest checkpoint; None if there is none."""
        return self._step(tf1.Tf1Checkpoint(self.latest)) if self.latest else None

    def save(self, step: int, input_state: tf.train.Checkpoint | None = None):
        """Writes the checkpoint of a step, with the state of the input; other workers
        than the first write at most that.

        In the background a thread writes the weights and slots, with the values that they have now;
        until it has done so, they take their memory twice. All else, and what all workers do
        together, is done when the call returns.

        Raises:
            Diverged: a value is not finite or absurdly large; nothing is written.
            InputError: a file cannot be written, or one of the checkpoint before could not.
        """
        self.wait()
        is_writer = self._workers.index == 0
        invalid = tf1.find_invalid(self.variables) if is_writer else None
        if self._workers.any_worker(invalid is not None):
            raise Diverged(
                f"the weights of step {step} are not saved, since "
                f"{invalid or 'the chief finds them invalid'}"
            )
        tf.io.gfile.makedirs(self.output_dir)
        if input_state is not None and (is_writer or self._saves_all_inputs):
            with tf1.replacing(self._input_prefix(step)) as temporary:
                input_state.write(temporary)
                tf1.append_checksum(temporary)
        if self._saves_all_inputs:
            self._workers.wait()  # a checkpoint is complete with the inputs of all workers
        if not is_writer:
            return
        values = tf1.copy_to_host(self.variables)
        if self._in_background:
            self._writing = self._writer.submit(self._write, step, values)
        else:
            self._write(step, values)

    def wait(self, if_ended: bool = False) -> str | None:
        """Returns when the last `save` has written its checkpoint, with its prefix; None if no call
        before returned it.

        Raises what ended the writing. With `if_ended` it does not wait, and returns None while the
        thread writes.
        """
        writing = self._writing
        if writing is None or (if_ended and not writing.done()):
            return None
        concurrent.futures.wait([writing])  # after Ctrl-C here, the next call still waits
        self._writing = None
        return writing.result()

    def _write(self, step: int, values: Mapping[str, tf.Tensor]) -> str:
        name = f"model.ckpt-{step}"
        prefix = os.path.join(self.output_dir, name)
        tf1.write(prefix, values)

        listed = [path for path in self._valid() if os.path.basename(path) != name]
        self._corrupt.discard(prefix)
        self._write_list([*listed, prefix])
        self._drop_old([*listed, prefix])
        logging.info("Saved checkpoint %s", prefix)
        return prefix

    def remove_leftovers(self):
        """Deletes what a killed run left in the folder: parts of checkpoints, and checkpoints
        beyond `keep_max`.

        Only the first worker does so. A half-deleted checkpoint is still listed.
        """
        if self._workers.index:
            return
        listed = folder.list_paths(self.output_dir)
        if listed and self.latest == listed[-1]:  # else an older one is needed
            self._drop_old(listed)
        # Of a checkpoint on the list it would keep the parts.
        folder.remove_leftovers(self.output_dir)

    def _drop_old(self, listed: list[str]):
        dropped = listed[: -self.keep_max] if self.keep_max else []
        for path in dropped:
            self._remove(path)
        if dropped:
            self._write_list(listed[len(dropped) :])

    def _write_list(self, paths: list[str]):
        folder.write_state(self.output_dir, [os.path.basename(path) for path in paths])

    def restore(self, input_state: tf.train.Checkpoint | None = None) -> bool:
        """Restores the newest checkpoint, and the state of the input beside it; returns whether
        there was one.
        """
        if not self.latest:
            return False
        checkpoint = (tf1.Tf1Checkpoint if self._goes_on else WeightsInUse)(self.latest)
        if self._goes_on:
            check_can_resume(checkpoint, self.variables)
        missing = [name for name in self.variables if name not in checkpoint.shapes]
        if missing:
            raise InputError(
                f"{checkpoint.path}: cannot resume, since it lacks {', '.join(missing)}; give "
                "another --output_dir, and this checkpoint as --init_checkpoint"
            )
        others = checkpoint.shapes.keys() - self.variables
        if unknown := sorted(name for name in others if not names.is_training_state(name)):
            raise InputError(
                f"{checkpoint.path}: cannot resume, since the model has no {', '.join(unknown)}; "
                "give the config of the earlier run, or another --output_dir"
            )
        self._check_inputs(self._step(checkpoint))
        loading.assign(checkpoint, self.variables)
        logging.info("Restored checkpoint %s", checkpoint.path)
        if input_state is not None:
            self.restore_input(input_state)
        return True

    def saved_input_value(self, name: str) -> int | None:
        """Reads a number of the newest checkpoint's input state, before there is an input to
        restore.

        `name` is that of an attribute of the tf.train.Checkpoint that `save` received; None stands
        for a missing one.
        """
        step = self.latest_step() if self.latest else None
        if step is None:
            return None
        self._check_inputs(step)
        prefix, key = self._input_prefix(step), f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
        if not tf.io.gfile.exists(f"{prefix}.index"):
            return None
        checkpoint = tf1.Tf1Checkpoint(prefix)
        return int(checkpoint.read(key)) if key in checkpoint.shapes else None

    def _check_inputs(self, step: int):
        """Reads the input states of all workers at a step, so that all workers find the same
        checkpoints corrupt.
        """
        for prefix in self._input_prefixes(step):
            try:
                tf1.check_objects(prefix)
            except tf1.Corrupt as error:
                message = f"{error}; without {prefix}.index the input starts anew"
                raise tf1.Corrupt(message, error.file, error.reason) from None

    def restore_input(self, input_state: tf.train.Checkpoint):
        """Restores the input state beside the newest checkpoint; without one the input starts
        anew, with a warning.
        """
        prefix = self._input_prefix(self.latest_step())
        if not tf.io.gfile.exists(f"{prefix}.index"):
            logging.warning("%s does not exist: the input starts anew", prefix)
            return
        try:
            input_state.read(prefix).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError) as error:
            raise InputError(
                f"{prefix}: the state of the input cannot be restored "
                f"({str(error).splitlines()[0]}); resume with the input files and flags of the "
                "earlier run, or delete this file to start the input anew"
            ) from error

    def _step(self, checkpoint: tf1.Tf1Checkpoint) -> int:
        if names.GLOBAL_STEP not in checkpoint.shapes:
            raise InputError(
                f"{checkpoint.path}: has no {names.GLOBAL_STEP}, so it is no checkpoint of a "
                "training run; give another --output_dir, and this checkpoint as --init_checkpoint"
            )
        return int(checkpoint.read(names.GLOBAL_STEP))

    def _input_prefix(self, step: int) -> str:
        worker = self._workers.index if self._saves_all_inputs else 0
        return os.path.join(self.output_dir, f"{folder.INPUT_PREFIX}{step}-{worker}")

    def _remove(self, prefix: str):
        """Deletes a checkpoint and the input states of all workers at its step."""
        tf1.remove(prefix)
        for path in self._input_prefixes(prefix.rpartition("-")[2]):
            tf1.remove(path)

    def _input_prefixes(self, step: int | str) -> list[str]:
        start = f"{folder.INPUT_PREFIX}{step}-"
        found = [name for name in tf.io.gfile.listdir(self.output_dir) if name.startswith(start)]
        indices = sorted(name for name in found if name.endswith(".index"))
        return [os.path.join(self.output_dir, name.removesuffix(".index")) for name in indices]
