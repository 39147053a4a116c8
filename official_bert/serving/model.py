"""Opens models that answer requests: `Export` is an export, `CheckpointModel` a checkpoint.

Both have the same signatures. `export` is the runner of official-bert export_saved_model.
"""

import abc
import contextlib
import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from official_bert import catalog, model_hub
from official_bert.checkpoints import load_checkpoint
from official_bert.checkpoints.layout import ModelLayout, find_layout
from official_bert.checkpoints.names import GLOBAL_STEP, find_families
from official_bert.data.model_inputs import warn_about_unknown_requests
from official_bert.features import EncodedSet
from official_bert.io import reading
from official_bert.io.errors import InputError, brief
from official_bert.model_dir import ModelFolder
from official_bert.model_source import ModelSource, check_stored_config
from official_bert.modeling.layers import without_random_weights
from official_bert.options.fields import format_flag, without_flag
from official_bert.options.serving import ExportOptions, ServedOptions
from official_bert.options.shared import FLOAT32
from official_bert.serving.export import (
    TrainedModel,
    check_export_dir,
    export_model,
    make_record,
    make_task_signatures,
    make_writer,
)
from official_bert.serving.exported_model import (
    OpenedExport,
    Record,
    call_function,
    check_trained,
    is_export,
    set_threads,
)
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tasks.clients import Row
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint
from official_bert.training import precision
from official_bert.training.distribution import log_devices
from official_bert.training.loop import predict


def export(options: ExportOptions) -> str:
    """Exports the model of a checkpoint.

    Args:
        options: the flags of official-bert export_saved_model.

    Returns:
        The folder of the new version.

    Raises:
        InputError: the model or the flags cannot be used, or the folder cannot be written.
    """
    writer = make_writer(options)
    check_export_dir(options.export_dir)
    log_devices()
    return export_model(build(options, writer.dtype), writer)


def build(options: ServedOptions, dtype: str = FLOAT32) -> TrainedModel:
    """Builds the task and the model of a checkpoint, and loads the weights.

    Args:
        options: the flags that describe the model. The folder of the checkpoint has the values of
            those that are not typed.
        dtype: the type in which kernels and tables are stored.

    Raises:
        InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
    """
    typed_options = options
    # Find the checkpoint and its task.
    source = ModelSource(options)
    checkpoint = source.checkpoint
    layout = find_layout(source.folder.path)
    task_name = options.task_name or _find_task_name(source, layout)
    family = registry.task_family(task_name)
    _check_recorded_task(source, task_name, family)

    # Fill the open values of the options.
    has_layout = layout.task_name and registry.task_family(layout.task_name) == family
    settings = layout.serving_settings(source.folder) if has_layout else {}
    open_settings = {
        name: value for name, value in settings.items() if getattr(options, name) is None
    }
    source.complete(family, task_name=task_name, **open_settings)
    options = source.options
    validate_case_matches_checkpoint(bool(options.do_lower_case), options.init_checkpoint)

    # Build the task and the model.
    config, tokenizer = source.config, source.tokenizer
    task = _make_task(source).for_checkpoint(checkpoint.shapes, tokenizer, config)
    if not registry.is_outside(family):
        _refuse_unread_flags(typed_options, task)
    with precision.stored_in(dtype), without_random_weights():
        model = task.build_model(config, use_one_hot_embeddings=False)
    report = load_checkpoint(model, checkpoint)
    report.check_complete(
        getattr(model, "unused_weights", ()),
        f"which --task_name={task_name} needs; give a checkpoint that was trained on the task",
    )
    check_stored_config(checkpoint.path, config)
    return TrainedModel(options, task, model, config, tokenizer, _read_metadata(source))


def _check_recorded_task(source: ModelSource, task_name: str, family: str):
    """Refuses a task that the task.json of the model contradicts."""
    task_file = source.folder.task_file
    if task_file is None or source.task is None or source.task.family != family:
        return
    recorded_name = source.task.task_name
    if not registry.is_same(task_name, recorded_name):
        raise InputError(
            f"--task_name={task_name}: {task_file} says {recorded_name}; leave the flag out"
        )


def _read_metadata(source: ModelSource) -> dict[str, Any]:
    """Returns the path and the step of a checkpoint, and the metrics of its evaluations."""
    checkpoint = source.checkpoint
    step = int(checkpoint.read(GLOBAL_STEP)) if GLOBAL_STEP in checkpoint.shapes else None
    metrics = {}
    for path in source.folder.evaluations():
        # A file that somebody has edited may not be readable.
        with contextlib.suppress(ValueError):
            values = reading.read_metrics(path)
            if values.pop(GLOBAL_STEP, None) == step:
                metrics[os.path.basename(path)] = values
    return {"path": checkpoint.path, "step": step, "metrics": metrics}


def _find_task_name(source: ModelSource, layout: ModelLayout) -> str:
    """Returns the task that the folder names.

    A model without a record and without the head of a task is a pre-trained one.
    """
    if layout.task_name:
        return layout.task_name
    if source.task:
        return source.task.task_name
    path = source.folder.checkpoint
    if find_families(source.checkpoint.shapes, path) - {"pretraining"}:
        raise InputError(
            f"{path}: has the head of a task, and no task.json says of which; export it "
            "with official-bert export_saved_model --task_name=... (text for labels of your own)"
        )
    return "pretraining"


def _make_task(source: ModelSource) -> ServedTask:
    """Makes the task with the labels of the flags, or else those in the folder of the model."""
    options = source.options
    recorded_settings = source.task.settings if source.task else {}
    settings = recorded_settings | vars(options)
    settings["checkpoint_labels"] = source.folder.output_names()
    task = registry.make_task(options.task_name, settings)
    if task.labels is not None and not source.has_labels(task.labels):
        raise _make_labels_error(source, task.labels)
    return task


def _make_labels_error(source: ModelSource, labels: Sequence) -> InputError:
    """Returns the error of a task with other labels than those beside the checkpoint."""
    options = source.options
    subject = f"--task_name={options.task_name}: its labels"
    hint = "name the task that it was trained on"
    if options.labels:
        subject = "--labels: they"
        hint = "leave the flag out"
    elif source.folder.task_file is None:
        general_task = source.task.task_name if source.task else "text"
        hint = f"give --task_name={general_task}, which takes the labels of the model"
    names = ", ".join(map(str, labels))
    return InputError(
        f"{subject} are {names}, but those beside the checkpoint are {source.format_labels()}, as "
        f"{source.folder.labels_source} says; {hint}"
    )


def _refuse_unread_flags(typed_options: ServedOptions, task: ServedTask):
    """Refuses flags that the task of the model does not read."""
    read_flags = {*task.settings()}
    if task.labels:
        read_flags.add("labels")
    for field in dataclasses.fields(typed_options):
        value = getattr(typed_options, field.name)
        readers = field.metadata["read_by"]
        if field.name in read_flags or readers is None or value in (None, without_flag(field)):
            continue
        hint = "leave the flag out"
        if readers:
            hint += f", or name a model of {readers}"
        raise InputError(
            f"{format_flag(field.name, value)}: the task of this model does not read it; {hint}"
        )


class BatchedModel(abc.ABC):
    """A model with signatures, in the form of tasks/clients.py's ServedModel.

    A subclass runs a signature on one batch.

    Attributes:
        path: the folder of the model.
        record: the record of an export of the model.
        tokenizer: the tokenizer of the model.
        labels: the labels in the order of the outputs; None if the task has none.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        batch_size: number of examples of a call.
        functions: name of a signature -> the function of TensorFlow; empty for other runtimes.
    """

    path: str
    record: Record
    tokenizer: FullTokenizer
    labels: list[str] | None
    inputs: Mapping[str, Sequence[str]]
    outputs: Collection[str]
    functions: Any

    def __init__(self, batch_size: int):
        """Prepares the calls.

        Args:
            batch_size: number of examples of a call.
        """
        self.batch_size = batch_size
        self._has_warned_about_unknown = False

    @abc.abstractmethod
    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""

    @property
    def reads_text(self) -> bool:
        """Whether the signatures read strings."""
        return self.record.settings["export_text"]

    @property
    def max_seq_length(self) -> int:
        """The number of tokens to which a text is truncated."""
        return self.record.settings["max_seq_length"]

    def run(
        self, encoded: EncodedSet, signature: str = "serving_default", pads_to_longest: bool = True
    ) -> dict[str, np.ndarray]:
        """Runs a signature of tensors on every example of a set.

        Args:
            encoded: the examples.
            signature: the name of the signature.
            pads_to_longest: whether a batch is padded to its longest example, and not to
                `max_seq_length`.

        Returns:
            The outputs by name, [n, ...], in the order of the set.
        """
        if not self._has_warned_about_unknown:
            self._has_warned_about_unknown = warn_about_unknown_requests(
                self.tokenizer, encoded, self.max_seq_length
            )
        return predict(
            lambda inputs: self(signature, inputs),
            tf.distribute.get_strategy(),
            encoded,
            self.batch_size,
            self.max_seq_length,
            pads_to_longest,
        )

    def run_texts(
        self, texts: Mapping[str, Sequence], signature: str = "serving_text"
    ) -> list[Row]:
        """Runs a signature of text on every request.

        Args:
            texts: name of an input -> the strings, or lists of strings, of all requests. Inputs
                that the signature does not have, such as a second text, are ignored.
            signature: the name of the signature.

        Returns:
            The outputs by name, for each request.
        """
        encode = np.vectorize(str.encode, otypes=[object])  # TensorFlow reads bytes
        inputs = {name: encode(np.array(texts[name], object)) for name in self.inputs[signature]}
        num_requests = len(next(iter(inputs.values())))
        sizes = np.zeros(num_requests, np.int64)
        for values in inputs.values():
            lengths = np.vectorize(len)(values)
            sizes += lengths.reshape(num_requests, -1).sum(axis=1)
        # Requests of similar length share a batch, because a batch is padded to its longest
        # request.
        order = np.argsort(-sizes, kind="stable")
        results: list[Row] = [{} for _ in range(num_requests)]
        for start in range(0, num_requests, self.batch_size):
            rows = order[start : start + self.batch_size]
            batch = {name: values[rows] for name, values in inputs.items()}
            for output, values in self(signature, batch).items():
                for row, value in zip(rows, values, strict=True):
                    results[row][output] = value
        return results


class CheckpointModel(BatchedModel):
    """The model of a folder with a checkpoint, with the signatures of an export of tensors.

    Attributes:
        trained: the task and the model.
        functions: name of a signature -> the function of TensorFlow.
    """

    def __init__(self, folder: str, batch_size: int = 32):
        """Builds the task of the folder and loads its weights.

        Args:
            folder: the folder of the model.
            batch_size: number of examples of a call.
        """
        super().__init__(batch_size)
        # The options are those of an export without further flags. Nothing is written.
        options_class = catalog.options_class("export_saved_model")
        built = build(options_class(model=folder, export_dir=""))
        self.path = folder
        self.trained = built
        self.record = make_record(built)
        self.tokenizer = built.tokenizer
        self.labels = list(map(str, built.task.labels)) if built.task.labels else None
        signatures = make_task_signatures(
            built.task, built.model, built.config, built.tokenizer, built.max_seq_length
        )
        self.functions = {
            name: signature.get_concrete_function() for name, signature in signatures.items()
        }
        self.inputs = {
            name: tuple(spec.name for spec in tf.nest.flatten(signature.structured_input_signature))
            for name, signature in self.functions.items()
        }
        outputs = self.functions["serving_default"].structured_outputs
        self.outputs: Collection[str] = set(outputs)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature; see `OpenedExport.__call__`."""
        arrays = {name: inputs[name] for name in self.inputs[signature]}
        try:
            return call_function(self.functions[signature], arrays)
        except tf.errors.OpError as error:
            raise InputError(f"{self.path}: the prediction failed ({brief(error)})") from error


class Export(OpenedExport, BatchedModel):
    """A loaded version of an export."""

    def __init__(
        self,
        model_dir: str,
        batch_size: int = 32,
        num_threads: int | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ):
        """Loads a version of an export, or of a folder of versions the newest.

        Args:
            model_dir: the folder.
            batch_size: number of examples of a call.
            num_threads: number of threads to compute with; by default all processors.
            settings: settings of extensions, by name.
        """
        BatchedModel.__init__(self, batch_size)
        OpenedExport.__init__(self, model_dir, num_threads, batch_size, settings)


def open_model(
    model_dir: str,
    batch_size: int,
    num_threads: int | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Export | CheckpointModel:
    """Loads an export, or builds the model of a folder with a checkpoint.

    Args:
        model_dir: the folder, or the name of a model, which is downloaded.
        batch_size: number of examples of a call.
        num_threads: number of threads to compute with; by default all processors.
        settings: the settings that extensions add to Predictor, by name.

    Raises:
        InputError: there is no model, its files are corrupt, or a setting is not for it.
    """
    model_dir = model_hub.local_path(model_dir)
    if not is_export(model_dir) and ModelFolder(model_dir).config_file:
        check_trained(model_dir, settings)
        set_threads(num_threads)
        return CheckpointModel(model_dir, batch_size)
    return Export(model_dir, batch_size, num_threads, settings)
