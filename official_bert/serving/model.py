"""A model in memory that answers like an exported one: of a checkpoint, or of a folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from official_bert.checkpoints import load_checkpoint, open_checkpoint
from official_bert.config import BertConfig
from official_bert.io.errors import InputError, brief
from official_bert.model_dir import ModelFolder
from official_bert.model_source import check_config_beside, read_model_files, resolved
from official_bert.options.serving import ExportOptions
from official_bert.serving.saved_model import record_of, task_signatures
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint
from official_bert.training import precision

_HEADS_OF_TASKS = ("output_weights", "cls/squad/output_weights")
_FEATURE_HEADS = "features_"  # of --feature_layers, whose name follows


class CheckpointModel(NamedTuple):
    """A task with its trained model.

    Attributes:
        options: the options, completed by what the folder of the checkpoint knows.
        task: the task.
        model: the model with the weights of the checkpoint.
        config: the configuration of the encoder.
        tokenizer: the tokenizer of the model.
    """

    options: ExportOptions
    task: ServedTask
    model: keras.Model
    config: BertConfig
    tokenizer: FullTokenizer


def build(options: ExportOptions) -> CheckpointModel:
    """Builds the task and the model, and loads the weights.

    Raises:
        InputError: an option or a file cannot be used, or the checkpoint lacks weights of the task.
    """
    path = options.model or options.init_checkpoint
    if not path:
        raise InputError("--model: must be given, or --init_checkpoint with the checkpoint")
    checkpoint, folder = open_checkpoint(path), ModelFolder(path)
    task_name = options.task_name or _task_name(path, folder, checkpoint.shapes)
    _check_task_name(task_name, folder)
    options = resolved(dataclasses.replace(options, task_name=task_name), registry.family_of(task_name))
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    config, tokenizer = read_model_files(options)
    task = _make_task(options, folder).for_checkpoint(checkpoint.shapes, tokenizer, config)
    with precision.stored_in(options.dtype):
        model = task.build_model(config, use_one_hot_embeddings=False)
    report = load_checkpoint(model, checkpoint.path)
    report.check_complete(
        task.unused_weights,
        f"which --task_name={task_name} needs; give a checkpoint that was trained on the task",
    )
    check_config_beside(report.path, config)
    return CheckpointModel(options, task, model, config, tokenizer)


def _task_name(path: str, folder: ModelFolder, names) -> str:
    """Returns the task that the folder was trained on; without a record, a model without a task's head is pre-trained.

    Raises:
        InputError: the task is not known.
    """
    if record := folder.task():
        return record.task_name
    if any(name in _HEADS_OF_TASKS or name.startswith(_FEATURE_HEADS) for name in names):
        raise InputError(
            f"{path}: has the head of a task, and no task.json says of which; export it with export_saved_model.py "
            "--task_name=... (tsv for labels of your own)"
        )
    return "pretraining"


def _check_task_name(task_name: str, folder: ModelFolder):
    """Refuses another task of the family that the model was trained on; its vectors may be exported from any model.

    Raises:
        InputError: task.json says another task.
    """
    record = folder.task()
    if record is None or registry.family_of(task_name) != record.family:
        return
    if not registry.is_same(task_name, record.task_name):
        raise InputError(
            f"--task_name={task_name}: {folder.task_file} says {record.task_name}; leave the flag out"
        )


def _make_task(options: ExportOptions, folder: ModelFolder) -> ServedTask:
    """Makes the task with the labels that the flags give, or with those beside the checkpoint."""
    beside, record = folder.labels(), folder.task()
    settings = (record.settings if record else {}) | vars(options) | {"checkpoint_labels": beside}
    task = registry.make_task(options.task_name, settings)
    known = task.labels
    if beside and known is not None and list(map(str, known)) != beside:
        given, remedy = f"--task_name={options.task_name}: its labels", "name the task that it was trained on"
        if options.labels:
            given, remedy = "--labels: they", "leave the flag out"
        labels = ", ".join(map(str, known))
        raise InputError(
            f"{given} are {labels}, but those beside the checkpoint are {', '.join(beside)}; {remedy}"
        )
    return task


class LiveModel:
    """A model in memory with the signatures of an export of tensors.

    Attributes:
        path: the folder of the model.
        record: the record that an export would have.
        tokenizer: the tokenizer of the model.
        labels: the labels in the order of the outputs; None if the task has none.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
    """

    def __init__(self, folder: str):
        """Builds the task of the folder and loads its weights.

        Raises:
            InputError: the folder lacks a file of the model, or its files do not fit each other.
        """
        built = build(ExportOptions(model=folder, export_dir=""))
        self.path = folder
        self.record = record_of(built.options, built.options.task_name, built.task)
        self.tokenizer = built.tokenizer
        self.labels = list(map(str, built.task.labels)) if built.task.labels else None
        self._signatures = {
            name: signature.get_concrete_function()
            for name, signature in task_signatures(built.task, built.model, built.config).items()
        }
        self.inputs = {
            name: tuple(spec.name for spec in signature.structured_input_signature[0])
            for name, signature in self._signatures.items()
        }
        self.outputs = set(self._signatures["serving_default"].structured_outputs)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature and returns its outputs; inputs that the signature does not have are ignored.

        Raises:
            InputError: the model refuses the inputs.
        """
        try:
            tensors = [tf.constant(inputs[name]) for name in self.inputs[signature]]
            return {name: value.numpy() for name, value in self._signatures[signature](*tensors).items()}
        except tf.errors.OpError as error:
            raise InputError(f"{self.path}: cannot answer ({brief(error)})") from error
