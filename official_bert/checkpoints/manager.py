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
from official_bert.checkpoints.weights_in_use import WeightsInUse, check_can_resume
from official_bert.io.errors import Diverged, InputError

T = TypeVar("T")


class WorkerGroup(Protocol):
    """The processes that save checkpoints together; see training/workers.py."""

    index: int

    def any_worker(self, condition: bool) -> bool:
        """Returns whether the condition holds on some worker; all of them call it.

        Args:
            condition: the condition in this process.
        """
        ...

    def wait(self) -> None:
        """Returns when all workers have called it."""


_FIRST = "model.ckpt-0"  # the name of the checkpoint before the first update


class LoneWorker:
    """A process that saves checkpoints without others. It is a `WorkerGroup`.

    Args:
        index: the number of the process; only 0 writes the weights.
    """

    def __init__(self, index: int = 0):
        self.index = index

    def any_worker(self, condition: bool) -> bool:
        """Returns the condition, because there is no other worker.

        Args:
            condition: the condition in this process.
        """
        return condition

    def wait(self) -> None:
        pass


class CheckpointManager:
    """Saves and restores a run in `output_dir`.

    `save` writes the files in this order, so that all listed checkpoints are complete:

        input.ckpt-<step>-<worker>   the input position and the seed, which `save` receives
        model.ckpt-<step>            the weights, the Adam slots and `global_step`
        checkpoint                   the list of checkpoints

    Then `save` deletes the checkpoints beyond `keep_max`, and takes them off the list. A kill in
    between leaves them on the list, so that the next `save` deletes the rest.

    Attributes:
        output_dir: the folder.
        variables: the variables by TF1 name.
        keep_max: the number of newest checkpoints to keep, without that of step 0; 0 keeps all.
    """

    def __init__(
        self,
        output_dir: str,
        variables: dict,
        keep_max: int = 5,
        *,
        workers: WorkerGroup | None = None,
        saves_all_inputs: bool = False,
        saves_in_background: bool = False,
    ):
        """Manages the checkpoints in a folder, including those of earlier runs.

        Args:
            output_dir: the folder, which the first `save` creates.
            variables: tf.Variables, Keras or mirrored variables by TF1 name, including
                `global_step`.
            keep_max: the number of newest checkpoints to keep, without that of step 0; 0 keeps all.
            workers: the workers of the run, of which the first writes the files, and all read them.
                All of them call `save`. By default this process is the only one.
            saves_all_inputs: whether each worker saves the state of its own input.
            saves_in_background: whether `save` returns while a thread still writes; `wait` waits
                for the thread.
        """
        self.output_dir = output_dir
        self.variables = dict(variables)
        self.keep_max = keep_max
        self._workers = workers or LoneWorker()
        self._saves_all_inputs = saves_all_inputs
        self._saves_in_background = saves_in_background
        # A process waits for the thread at its end.
        self._writer = concurrent.futures.ThreadPoolExecutor(1)
        self._writing: concurrent.futures.Future[str] | None = None
        # The prefixes of the checkpoints that `read_newest_valid` has found corrupt.
        self._corrupt: set[str] = set()

    @property
    def latest(self) -> str | None:
        """The prefix of the newest checkpoint that is not known as corrupt; see folder.newest."""
        return self._list_valid_paths()[-1] if self._corrupt else folder.newest(self.output_dir)

    def _list_valid_paths(self) -> list[str]:
        paths = folder.list_checkpoints(self.output_dir)
        return [path for path in paths if path not in self._corrupt]

    def read_newest_valid(self, read: Callable[[], T]) -> T:
        """Reads the newest checkpoint and, while that is corrupt, the one before it.

        It is for a run that resumes a training. From then on `latest`, and the list that the next
        `save` writes, leave out the corrupt checkpoints. Their files stay, until a checkpoint of
        the same step replaces them.

        Args:
            read: a function without arguments that reads `latest`.

        Returns:
            What `read` returns.

        Raises:
            Corrupt: all checkpoints are corrupt.
        """
        faults = []
        while True:
            try:
                result = read()
                break
            except tf1.Corrupt as error:
                faults.append(error)
                latest = self.latest
                if latest is None or len(self._list_valid_paths()) < 2:
                    raise faults[0] from None
                self._corrupt.add(latest)
        for error in faults:
            logging.warning(
                "%s is corrupt (%s): training resumes from step %d, that of the older %s",
                error.file,
                error.reason,
                self.latest_step(),
                self.latest,
            )
        return result

    def latest_step(self) -> int | None:
        """Returns the step of the newest checkpoint; None if there is none."""
        return self._read_step(tf1.Tf1Checkpoint(self.latest)) if self.latest else None

    def save(self, step: int, input_state: tf.train.Checkpoint | None = None) -> None:
        """Writes the checkpoint of a step, with the state of the input.

        All workers call it. Those behind the first write at most the state of their input.

        In the background a thread writes the weights and slots, with the values that they have now.
        Until it has done so, they take their memory twice. When the call returns, everything else
        is done.

        Args:
            step: the number of updates.
            input_state: the state of the input; None for none.

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
            with tf1.replacing(self._make_input_prefix(step)) as temporary:
                input_state.write(temporary)
                tf1.append_checksum(temporary)
        if self._saves_all_inputs:
            self._workers.wait()  # a checkpoint is complete with the inputs of all workers
        if not is_writer:
            return
        values = tf1.copy_to_host(self.variables)
        if self._saves_in_background:
            self._writing = self._writer.submit(self._write, step, values)
        else:
            self._write(step, values)

    def wait(self, if_ended: bool = False) -> str | None:
        """Waits until the last `save` has written its checkpoint.

        Args:
            if_ended: whether to return None, instead of waiting, while the thread writes.

        Returns:
            The prefix of the checkpoint; None if an earlier call returned it.

        Raises:
            InputError: a file could not be written.
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

        paths = [path for path in self._list_valid_paths() if os.path.basename(path) != name]
        paths.append(prefix)
        self._corrupt.discard(prefix)
        self._write_list(paths)
        self._remove_old(paths)
        logging.info("Saved checkpoint %s", prefix)
        return prefix

    def remove_leftovers(self) -> None:
        """Deletes the parts of checkpoints that a killed run left, and those beyond `keep_max`.

        Only the first worker does so.
        """
        if self._workers.index:
            return
        # A half-deleted checkpoint is still listed. If the newest one is not valid, an older one is
        # needed, so that nothing is deleted.
        paths = folder.list_paths(self.output_dir)
        if paths and self.latest == paths[-1]:
            self._remove_old(paths)
        folder.remove_leftovers(self.output_dir)

    def _remove_old(self, paths: list[str]):
        """Deletes all but the last `keep_max` of the listed checkpoints.

        That of step 0 is deleted after the first other one, because it has the weights from which
        the training started.
        """
        if not self.keep_max:
            return
        newest = paths[-self.keep_max :]
        remaining = [path for path in newest[:-1] if os.path.basename(path) != _FIRST]
        remaining += newest[-1:]
        old_paths = [path for path in paths if path not in remaining]
        for path in old_paths:
            self._remove(path)
        if old_paths:
            self._write_list(remaining)

    def _write_list(self, paths: list[str]):
        folder.write_state(self.output_dir, [os.path.basename(path) for path in paths])

    def restore(self, input_state: tf.train.Checkpoint | None = None) -> bool:
        """Restores the newest checkpoint, and the state of its input.

        Args:
            input_state: the state of the input; None restores the variables alone.

        Returns:
            Whether there is a checkpoint.

        Raises:
            InputError: the checkpoint does not fit the variables, or the state of the input.
        """
        if not self.latest:
            return False
        checkpoint = self._open(self.latest)
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
        self._check_inputs(self._read_step(checkpoint))
        loading.assign(checkpoint, self.variables)
        logging.info("Restored checkpoint %s", checkpoint.path)
        if input_state is not None:
            self.restore_input(input_state)
        return True

    def _open(self, prefix: str) -> tf1.Tf1Checkpoint:
        """Opens a checkpoint to resume a training from it."""
        checkpoint = tf1.Tf1Checkpoint(prefix)
        check_can_resume(checkpoint, self.variables)
        return checkpoint

    def saved_input_value(self, name: str) -> int | None:
        """Reads a number of the newest checkpoint's input state, before there is an input to
        restore.

        Args:
            name: the name of an attribute of the tf.train.Checkpoint that `save` received.

        Returns:
            The number; None if there is no checkpoint, or its input state does not have it.

        Raises:
            Corrupt: the state of an input is corrupt.
        """
        step = self.latest_step() if self.latest else None
        if step is None:
            return None
        self._check_inputs(step)
        prefix = self._make_input_prefix(step)
        key = f"{name}/.ATTRIBUTES/VARIABLE_VALUE"
        if not tf.io.gfile.exists(f"{prefix}.index"):
            return None
        checkpoint = tf1.Tf1Checkpoint(prefix)
        return int(checkpoint.read(key)) if key in checkpoint.shapes else None

    def _check_inputs(self, step: int):
        """Reads the input states of all workers at a step.

        Each worker reads all of them, so that all workers agree which checkpoints are corrupt.
        """
        for prefix in self._list_input_prefixes(step):
            try:
                tf1.check_objects(prefix)
            except tf1.Corrupt as error:
                message = f"{error}; without {prefix}.index the input starts from its beginning"
                raise tf1.Corrupt(message, error.file, error.reason) from None

    def restore_input(self, input_state: tf.train.Checkpoint) -> None:
        """Restores the input state of the newest checkpoint.

        If there is none, the input starts from its beginning, with a warning.

        Args:
            input_state: the state of the input.

        Raises:
            InputError: the state does not fit, because the files or the flags differ.
        """
        step = self.latest_step()
        assert step is not None, "restore_input is called where there is a checkpoint"
        prefix = self._make_input_prefix(step)
        if not tf.io.gfile.exists(f"{prefix}.index"):
            logging.warning("%s does not exist: the input starts from its beginning", prefix)
            return
        try:
            input_state.read(prefix).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError) as error:
            raise InputError(
                f"{prefix}: the state of the input cannot be restored "
                f"({str(error).splitlines()[0]}); resume with the input files and flags of the "
                "earlier run, or delete this file to start the input from its beginning"
            ) from error

    def _read_step(self, checkpoint: tf1.Tf1Checkpoint) -> int:
        if names.GLOBAL_STEP not in checkpoint.shapes:
            raise InputError(
                f"{checkpoint.path}: has no {names.GLOBAL_STEP}, so it is no checkpoint of a "
                "training run; give another --output_dir, and this checkpoint as --init_checkpoint"
            )
        return int(checkpoint.read(names.GLOBAL_STEP))

    def _make_input_prefix(self, step: int) -> str:
        worker = self._workers.index if self._saves_all_inputs else 0
        return os.path.join(self.output_dir, f"{folder.INPUT_PREFIX}{step}-{worker}")

    def _remove(self, prefix: str):
        """Deletes a checkpoint and the input states of all workers at its step."""
        tf1.remove(prefix)
        for path in self._list_input_prefixes(prefix.rpartition("-")[2]):
            tf1.remove(path)

    def _list_input_prefixes(self, step: int | str) -> list[str]:
        start = f"{folder.INPUT_PREFIX}{step}-"
        file_names = tf.io.gfile.listdir(self.output_dir)
        indices = [
            name for name in file_names if name.startswith(start) and name.endswith(".index")
        ]
        return [
            os.path.join(self.output_dir, name.removesuffix(".index")) for name in sorted(indices)
        ]


class InferenceCheckpoints(CheckpointManager):
    """Checkpoints of a run that does not train: `restore` reads the weights as they are used."""

    def _open(self, prefix: str) -> tf1.Tf1Checkpoint:
        return WeightsInUse(prefix)
