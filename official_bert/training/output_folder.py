"""The folder that a worker of a run writes to: the chief the run's own, every other worker a temporary one.

All workers compute all results, because computing them needs all of them, but only the chief keeps what it writes.
"""

import contextlib
import tempfile
from collections.abc import Iterator

import tensorflow as tf
from absl import logging

from official_bert.io.folder_lock import locked
from official_bert.training import workers


@contextlib.contextmanager
def output_folder(run_dir: str, strategy: tf.distribute.Strategy) -> Iterator[str]:
    """Gives this worker the folder that it writes to, as a context manager, and explains the end of another worker.

    Args:
        run_dir: the output folder of the run. It lies on a file system that all workers share, because each reads the
            checkpoints in it.

    Yields:
        The folder: of the chief, or of the only process, `run_dir`, which is locked; else a temporary one.

    Raises:
        InputError: another run works in the folder, or no file can be written there.
        WorkerLost: another worker has ended.
    """
    with workers.explaining_lost_workers(strategy):
        if workers.is_chief(strategy):
            with locked(run_dir):
                yield run_dir
                workers.wait_for_all(strategy)
        else:
            with tempfile.TemporaryDirectory() as folder, _quiet():
                yield folder
                workers.wait_for_all(strategy)  # the chief may still write; its peers do not leave it


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leaves the progress and the results of a run to the log of the chief, unless --verbosity asks for details."""
    before = logging.get_verbosity()
    logging.info("The chief reports the progress and the results; this worker logs warnings only")
    if before == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    try:
        yield
    finally:
        logging.set_verbosity(before)
