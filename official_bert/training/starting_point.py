"""The start of a run: its seed, its weights, and the earlier runs in its output folder."""

import dataclasses
import os
import random
import zlib
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import (
    CheckpointManager,
    huggingface,
    load_checkpoint,
    loading,
    named_variables,
)
from official_bert.config import BertConfig
from official_bert.io import files
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder
from official_bert.model_source import ModelSource, check_stored_config, find_config_difference
from official_bert.options.fields import flag_names, format_flag
from official_bert.options.training import PretrainingOptions, TrainingOptions
from official_bert.training import run_log
from official_bert.training.workers import Workers

_DATA_SETS = "data_sets"  # the field of the start line of run.jsonl
_NO_CHECKPOINT = -1  # in place of the step of a checkpoint, where a worker has none


def check_config(
    options: TrainingOptions, checkpoints: CheckpointManager, config: BertConfig
) -> None:
    """Compares the configuration with that of the checkpoint.

    Only training may begin with another one.

    Args:
        options: the flags of the run.
        checkpoints: the checkpoints of the run.
        config: the configuration of the model.

    Raises:
        InputError: the configuration differs, and the run does not train.
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
    """Returns the seed of the newest checkpoint, or else a new one.

    In training, the checkpoint is the newest one whose input state is valid.

    Args:
        options: the flags of the run.
        checkpoints: the checkpoints of the run.
    """

    def read():
        return checkpoints.saved_input_value("seed")

    saved = checkpoints.read_newest_valid(read) if options.do_train else read()
    if saved is None:
        new_seed = random.SystemRandom().randrange(2**31)
        return new_seed if options.random_seed is None else options.random_seed
    if options.random_seed not in (None, saved):
        logging.warning(
            "--random_seed=%d is not used: the resumed run keeps its seed", options.random_seed
        )
    return saved


def seed_initial_weights(seed: int) -> None:
    """Sets the seed of the initial weights, which are then the same under every strategy.

    Args:
        seed: the seed of the run.
    """
    keras.utils.set_random_seed(seed % 2**32)


def load_weights(
    options: TrainingOptions,
    checkpoints: CheckpointManager,
    model: keras.Model,
    weights: Collection[str],
    unused: Sequence[str],
    redrawn: Sequence[str] = (),
) -> Collection[str]:
    """Loads the checkpoint in output_dir or, without it, --init_checkpoint.

    Training restores all of the checkpoint here, also the slots, so that its files are read once.

    Args:
        options: the flags of the run.
        checkpoints: the checkpoints of the run.
        model: the model.
        weights: the names of all its weights.
        unused: name prefixes of weights that may be missing.
        redrawn: name prefixes of weights that start a training with their initial values.

    Returns:
        The names of the weights that were loaded.

    Raises:
        InputError: weights are missing.
    """
    is_complete = options.do_train or options.allow_missing_weights
    if options.do_train and checkpoints.latest:
        checkpoints.read_newest_valid(checkpoints.restore)
        loaded = weights
    elif source := checkpoints.latest or options.init_checkpoint:
        report = load_checkpoint(
            model,
            source,
            left_out=redrawn if options.do_train else (),
            is_trained_next=options.do_train,
        )
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
            "The weights of %s are not used: %s resumes from %s",
            options.init_checkpoint,
            checkpoints.output_dir,
            checkpoints.latest,
        )
    return loaded


def check_untrained(
    options: TrainingOptions,
    model: keras.Model,
    loaded: Collection[str],
    unused: Sequence[str],
) -> None:
    """Refuses a training that would leave weights random, such as a frozen pooler of a masked LM.

    Args:
        options: the flags of the run.
        model: the model, whose attribute `trainable` of each layer says what is trained.
        loaded: the names of the weights that were loaded.
        unused: name prefixes of weights that may be random.

    Raises:
        InputError: a weight is neither loaded nor trained.
    """
    if not options.do_train or options.allow_missing_weights:
        return
    for name, variable in named_variables(model).items():
        if variable.trainable or name in loaded or name.startswith(tuple(unused)):
            continue
        fault = f"--init_checkpoint: is not given for {name}"
        if options.init_checkpoint:
            fault = f"{options.init_checkpoint}: lacks {name}"
        raise InputError(
            f"{fault}, which would stay random, since this training leaves it as it is; give a "
            "checkpoint that has it, or --allow_missing_weights to use random weights on purpose"
        )


def check_same_folder(workers: Workers, checkpoints: CheckpointManager) -> None:
    """Checks that all workers read the checkpoints that the chief reads.

    It is called before anything is written.

    Args:
        workers: the processes that train together.
        checkpoints: the checkpoints of the run, as this worker reads them.

    Raises:
        InputError: they differ.
    """
    step = checkpoints.latest_step()
    if step is None:
        step = _NO_CHECKPOINT
    chief_step = workers.broadcast_from_chief(step)
    if workers.any_worker(step != chief_step):
        if step == chief_step:
            raise InputError(
                "--output_dir: another worker finds other checkpoints in it; see its log"
            )
        raise InputError(
            f"--output_dir={checkpoints.output_dir}: worker {workers.index} finds "
            f"{_name_checkpoint(step)} in it, and the chief {_name_checkpoint(chief_step)}; name a "
            "folder on a file system that all workers share"
        )


def _name_checkpoint(step: int) -> str:
    return "no checkpoint" if step == _NO_CHECKPOINT else f"model.ckpt-{step}"


def check_same_weights(workers: Workers, weights: Mapping[str, tf.Variable]) -> None:
    """Checks that all workers begin with the same weights.

    Files of one name may differ between machines.

    Args:
        workers: the processes that train together.
        weights: the weights by name.

    Raises:
        InputError: they differ.
    """
    if workers.count > 1:
        sums = {
            name: zlib.crc32(np.ascontiguousarray(weight.numpy()).data)
            for name, weight in weights.items()
        }
        workers.check_equal({"the weights that they begin with": sums})


def _flags_before(run_dir: str) -> dict[str, object]:
    """Returns the flags of the last training in a folder; none if there was no training."""
    earlier = run_log.trainings(run_dir)
    return (earlier[-1].get("flags") or {}) if earlier else {}


def check_output_dir(source: ModelSource) -> None:
    """Refuses a training that cannot begin or resume in its output_dir, before anything is written.

    Args:
        source: the flags of the run, and the model that it begins with.

    Raises:
        InputError: the folder is that of a model, or its training has other fixed flags.
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
    elif not _begins_in(source, options.output_dir) and _has_finished_model(options.output_dir):
        raise InputError(
            f"--output_dir={options.output_dir}: holds a model that no training can resume, and "
            "whose files this training would replace; name another folder"
        )


def _begins_in(source: ModelSource, folder: str) -> bool:
    """Returns whether the model that the training begins with is in a folder."""
    return source.dir is not None and files.real_path(source.dir.path) == files.real_path(folder)


def _has_finished_model(folder: str) -> bool:
    """Returns whether a folder has the weights of a model with a record of its training, such as a
    few-shot classifier or a student, and no checkpoints.
    """
    names = (f"{loading.TF1_NAME}.index", huggingface.WEIGHTS_FILE)
    has_weights = any(files.exists(os.path.join(folder, name)) for name in names)
    return has_weights and ModelFolder(folder).task_file is not None


def refuse_fixed_flags(
    options: TrainingOptions,
    recorded: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Refuses to resume the training in output_dir with other values of fixed flags.

    The declaration of a flag says whether it is fixed: `fixed_by_training` of options/fields.py.

    Args:
        options: the flags of the command.
        recorded: the settings of the training by flag name. They replace flags that are None.

    Raises:
        InputError: a fixed flag has another value.
    """
    before = _flags_before(options.output_dir)
    now = dataclasses.asdict(options)
    for name in flag_names(type(options), "fixed_by_training"):
        if name not in before:
            continue
        default = recorded.get(name)
        value_before = default if before[name] is None else before[name]
        value_now = default if now[name] is None else now[name]
        if value_before != value_now:
            raise InputError(
                f"--output_dir={options.output_dir}: its training began with "
                f"{format_flag(name, value_before)}, which cannot change in the middle, and this "
                f"command has {format_flag(name, value_now)}; give the same as before, or another "
                "--output_dir"
            )


def warn_of_changed_flags(options: TrainingOptions, run_dir: str, step: int) -> None:
    """Warns of flags that make the rest of a training differ from its beginning.

    The declaration of a flag says whether it does: `changes_training` of options/fields.py. The
    change may be on purpose.

    Args:
        options: the flags of the command.
        run_dir: the folder of the run.
        step: the number of updates that the weights have had.
    """
    # Fixed flags have been compared before, by `refuse_fixed_flags`.
    fixed = flag_names(type(options), "fixed_by_training")
    names = [name for name in flag_names(type(options), "changes_training") if name not in fixed]
    before = _flags_before(run_dir)
    now = dataclasses.asdict(options)
    changed = run_log.changed_flags(before, now, names=names, options_class=type(options))
    if changed:
        logging.warning(
            "%s resumes from step %d with other flags than before: %s", run_dir, step, changed
        )


def refuse_other_data_sets(
    output_dir: str, source_name: str, data_sets: Mapping[str, object]
) -> dict[str, object]:
    """Refuses to resume a training on several data sets with others.

    Args:
        output_dir: the folder of the training.
        source_name: the TOML file with the data sets, or the argument that has them.
        data_sets: the flags of each set by its name.

    Returns:
        The data sets for the start line of run_log.py.

    Raises:
        InputError: the training began with other data sets.
    """
    earlier = run_log.trainings(output_dir)
    before = earlier[-1].get(_DATA_SETS) if earlier else None
    if before is not None and before != data_sets:
        raise InputError(
            f"{source_name}: differs from the data sets with which the training in {output_dir} "
            "began; undo the change, or give another --output_dir"
        )
    return {_DATA_SETS: data_sets}


def record_statistics(records: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Returns the values of record files for the start line of run_log.py.

    Args:
        records: the size and the time of each file by its name.
    """
    sizes, times = zip(*records.values(), strict=True)
    return {"bytes": sum(sizes), "newest": max(times)}


def warn_of_other_records(
    options: PretrainingOptions, step: int, records: Mapping[str, tuple[int, int]]
) -> None:
    """Warns of record files that were written again since the run began.

    Args:
        options: the flags of the run.
        step: the number of updates that the weights have had.
        records: the size and the time of each file by its name.
    """
    earlier = run_log.trainings(options.output_dir)
    if not earlier:
        return
    before = earlier[-1].get("records")
    if before in (None, record_statistics(records)):
        return
    if earlier[-1]["flags"].get("input_file") != options.input_file:
        return
    newer = [file for file, (_, time) in records.items() if time > before["newest"]]
    logging.warning(
        "%s resumes from step %d, but since its start files were written anew under the same "
        "names: %s; if they hold other records, the run resumes at its position in these",
        options.output_dir,
        step,
        ", ".join(newer or options.input_file),
    )


def recovery_hint(options: TrainingOptions, latest: str | None) -> str:
    """Returns what a user can do about a training that diverged, as the end of a sentence.

    Args:
        options: the flags of the training.
        latest: the prefix of the last checkpoint.
    """
    return (
        f"the last checkpoint is valid: {latest}, from which the same command resumes; "
        f"{options.bias_remedy}lower --learning_rate or lengthen its warm-up "
        f"(--{options.warmup_flag}); to go further back, give an older checkpoint as "
        "--init_checkpoint, and another --output_dir"
    )
