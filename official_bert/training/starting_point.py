"""What a run begins with: the seed, the weights, and what its output folder tells of earlier runs."""

import dataclasses
import random
import zlib
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import CheckpointManager, load_checkpoint
from official_bert.config import BertConfig
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_source import ModelSource, check_stored_config, find_config_difference
from official_bert.options.fields import flag_names, format_flag
from official_bert.options.training import TrainingOptions
from official_bert.training import run_log
from official_bert.training.workers import Workers


def check_config(options: TrainingOptions, checkpoints: CheckpointManager, config: BertConfig):
    """Compares the configuration with that of the checkpoint; only training may begin with
    another one.
    """
    if checkpoints.latest:
        check_stored_config(checkpoints.latest, config, is_training=options.do_train)
    elif options.init_checkpoint and not options.do_train:
        check_stored_config(options.init_checkpoint, config)
    elif options.init_checkpoint and (
        difference := find_config_difference(options.init_checkpoint, config)
    ):
        logging.warning("%s: the weights were trained with another model", difference)


def choose_seed(options: TrainingOptions, checkpoints: CheckpointManager) -> int:
    """Returns the seed of the newest checkpoint; in training, of the newest whose input state is
    valid.
    """

    def read():
        return checkpoints.saved_input_value("seed")

    saved = checkpoints.read_newest_valid(read) if options.do_train else read()
    if saved is None:
        return (
            random.SystemRandom().randrange(2**31)
            if options.random_seed is None
            else options.random_seed
        )
    if options.random_seed not in (None, saved):
        logging.warning(
            "--random_seed=%d is not used: the run goes on with its seed", options.random_seed
        )
    return saved


def seed_initial_weights(seed: int):
    """Sets the seed of the initial weights, which are then the same under every strategy."""
    keras.utils.set_random_seed(seed % 2**32)


def load_weights(
    options: TrainingOptions,
    checkpoints: CheckpointManager,
    model: keras.Model,
    weights: Collection[str],
    unused: Sequence[str],
    redrawn: Sequence[str] = (),
) -> Collection[str]:
    """Loads the checkpoint in output_dir or, without it, --init_checkpoint, and returns the names
    of what was loaded.

    Training restores all of the checkpoint here, also the slots, so that its files are read once.
    Weights with the prefixes `unused` may be missing, and those with the prefixes `redrawn` start a
    training as they are.
    """
    is_complete = options.do_train or options.allow_missing_weights
    if options.do_train and checkpoints.latest:
        checkpoints.read_newest_valid(checkpoints.restore)
        loaded = weights
    elif source := checkpoints.latest or options.init_checkpoint:
        report = load_checkpoint(model, source, redrawn if options.do_train else ())
        if not is_complete:
            report.check_complete(unused)
        loaded = report.matched
    elif is_complete:
        loaded = []
    else:
        raise InputError(
            f"--init_checkpoint: is not given, and {checkpoints.output_dir} holds no checkpoint, "
            "so the weights would be random; give one of the two, or --allow_missing_weights to "
            "use random weights on purpose"
        )
    if options.init_checkpoint and checkpoints.latest:
        logging.info(
            "--init_checkpoint is not used: %s goes on from %s",
            checkpoints.output_dir,
            checkpoints.latest,
        )
    return loaded


def check_same_folder(workers: Workers, checkpoints: CheckpointManager):
    """Checks that all workers find the checkpoints that the chief finds, before anything is
    written.
    """
    step = -1 if checkpoints.latest is None else checkpoints.latest_step()
    chief_step = workers.broadcast_from_chief(step)
    if workers.any_worker(step != chief_step):
        if step == chief_step:
            raise InputError(
                "--output_dir: another worker finds other checkpoints in it; see its log"
            )
        names = ["no checkpoint" if one < 0 else f"model.ckpt-{one}" for one in (step, chief_step)]
        raise InputError(
            f"--output_dir={checkpoints.output_dir}: worker {workers.index} finds {names[0]} "
            f"in it, and the chief {names[1]}; name a folder on a file system that all "
            "workers share"
        )


def check_same_weights(workers: Workers, weights: Mapping[str, tf.Variable]):
    """Checks that all workers begin with the same weights, for files of one name may differ
    between machines.
    """
    if workers.count > 1:
        sums = {
            name: zlib.crc32(np.ascontiguousarray(weight.numpy()))
            for name, weight in weights.items()
        }
        workers.check_equal({"the weights that they begin with": sums})


def _flags_before(run_dir: str) -> dict[str, object]:
    """Returns the flags with which the last training in a folder began; none if there was no
    training.
    """
    earlier = run_log.trainings(run_dir)
    return (earlier[-1].get("flags") or {}) if earlier else {}


def check_output_dir(source: ModelSource):
    """Refuses a training that cannot begin in its output_dir, or cannot go on there; before
    anything is written.
    """
    options = source.options
    if not options.do_train:
        return
    if source.resumes:
        refuse_fixed_flags(options, source.task.settings if source.task else {})
    # With the original's --init_checkpoint it may begin there, as in the original.
    elif source.model and files.real_path(source.model) == files.real_path(options.output_dir):
        raise InputError(
            f"--output_dir={options.output_dir}: is the folder of the model that the training "
            "begins with, and would become that of the trained model; name another folder"
        )


def refuse_fixed_flags(
    options: TrainingOptions,
    recorded: Mapping[str, object] = MappingProxyType({}),
):
    """Refuses to resume the training in output_dir with another value of a flag that cannot change
    in its middle.

    The declaration of a flag says whether it can: `fixed_by_training` of options/fields.py.

    Args:
        options: the flags of the command.
        recorded: the settings of the training, by flag name, which hold where a flag is open.
    """
    before, now = _flags_before(options.output_dir), dataclasses.asdict(options)
    for name in flag_names(type(options), "fixed_by_training"):
        if name not in before:
            continue
        values = [
            recorded.get(name) if value is None else value for value in (before[name], now[name])
        ]
        if values[0] != values[1]:
            raise InputError(
                f"--output_dir={options.output_dir}: its training began with "
                f"{format_flag(name, values[0])}, which cannot change in the middle, and this "
                f"command has {format_flag(name, values[1])}; give the same as before, or another "
                "--output_dir"
            )


def warn_of_changed_flags(options: TrainingOptions, run_dir: str, step: int):
    """Warns of flags that make the rest of a training differ from its beginning, which may be on
    purpose.

    The declaration of a flag says whether it does: `changes_training` of options/fields.py.
    """
    # Fixed flags have been compared before, with what the folder says of those that are open.
    fixed = flag_names(type(options), "fixed_by_training")
    names = [name for name in flag_names(type(options), "changes_training") if name not in fixed]
    before, now = _flags_before(run_dir), dataclasses.asdict(options)
    changed = run_log.changed_flags(before, now, names=names, options_class=type(options))
    if changed:
        logging.warning(
            "%s goes on from step %d with other flags than before: %s", run_dir, step, changed
        )


def facts_of(records: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Returns what the start line of run_log.py keeps of the sizes and times of record files."""
    sizes, times = zip(*records.values(), strict=True)
    return {"bytes": sum(sizes), "newest": max(times)}


def warn_of_other_records(
    options: TrainingOptions, step: int, records: Mapping[str, tuple[int, int]]
):
    """Warns of record files that were made anew under their names since the run began, by their
    sizes and times.
    """
    earlier = run_log.trainings(options.output_dir)
    before = earlier[-1].get("records") if earlier else None
    if (
        before in (None, facts_of(records))
        or earlier[-1]["flags"].get("input_file") != options.input_file
    ):
        return
    newer = [
        file for file, (_, time) in records.items() if time > before["newest"]
    ] or options.input_file
    logging.warning(
        "%s goes on from step %d, but since its start files were written anew under the same "
        "names: %s; if they hold "
        "other records, the run goes on at its position in these", options.output_dir, step, ", ".join(newer),
    )  # fmt: skip


def way_out(options: TrainingOptions, latest: str | None) -> str:
    """Returns what a user can do about a training that diverged, as the end of a sentence."""
    return (
        f"the last checkpoint is valid: {latest}, from which the same command goes on; "
        f"{options.bias_remedy}lower --learning_rate or lengthen its warm-up (--{options.warmup_flag}); to go "
        "further back, give an older checkpoint as --init_checkpoint, and another --output_dir"
    )
