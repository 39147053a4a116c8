"""Models that answer requests: `Export` of an export, `InMemoryModel` of a checkpoint, with the
same signatures.

`export` is the runner of official-bert export_saved_model.
"""

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
from official_bert.data.model_inputs import warn_of_unknown_requests
from official_bert.features import EncodedSet
from official_bert.io import reading
from official_bert.io.errors import InputError, brief
from official_bert.model_dir import ModelFolder
from official_bert.model_source import ModelSource, check_stored_config
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
    export_runtimes,
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


def export(options: ExportOptions):
    """Exports the model of a checkpoint."""
    writer = make_writer(options)
    check_export_dir(options.export_dir)
    log_devices()
    export_model(build(options, writer.dtype), writer)


def build(options: ServedOptions, dtype: str = FLOAT32) -> TrainedModel:
    """Builds the task and the model, whose kernels and tables are stored in `dtype`, and loads
    the weights.
    """
    typed_options, source = options, ModelSource(options)
    checkpoint = source.checkpoint
    layout = find_layout(source.dir.path)
    task_name = options.task_name or _task_name(source, layout)
    family = registry.family_of(task_name)
    is_recorded = source.dir.task_file and family == source.task.family
    if is_recorded and not registry.is_same(task_name, source.task.task_name):
        raise InputError(
            f"--task_name={task_name}: {source.dir.task_file} says {source.task.task_name}; leave "
            "the flag out"
        )
    has_layout = layout.task_name and registry.family_of(layout.task_name) == family
    settings = layout.serving_settings(source.dir) if has_layout else {}
    open_names = [name for name in settings if getattr(options, name) is None]
    source.complete(family, task_name=task_name, **{name: settings[name] for name in open_names})
    options = source.options
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    config, tokenizer = source.config, source.tokenizer
    task = _make_task(source).for_checkpoint(checkpoint.shapes, tokenizer, config)
    if not registry.is_outside(family):
        _refuse_unread_flags(typed_options, task)
    with precision.stored_in(dtype):
        model = task.build_model(config, use_one_hot_embeddings=False)
    load_checkpoint(model, checkpoint).check_complete(
        getattr(model, "unused_weights", ()),
        f"which --task_name={task_name} needs; give a checkpoint that was trained on the task",
    )
    check_stored_config(checkpoint.path, config)
    return TrainedModel(options, task, model, config, tokenizer, _facts(source))


def _facts(source: ModelSource) -> dict[str, Any]:
    """Returns the path and the step of a checkpoint, and the evaluations beside it that are of
    this step.
    """
    checkpoint = source.checkpoint
    step, metrics = (
        int(checkpoint.read(GLOBAL_STEP)) if GLOBAL_STEP in checkpoint.shapes else None,
        {},
    )
    for path in source.dir.evaluations():
        with contextlib.suppress(ValueError):  # of a file that others have changed
            values = reading.read_metrics(path)
            if values.pop(GLOBAL_STEP, None) == step:
                metrics[os.path.basename(path)] = values
    return {"path": checkpoint.path, "step": step, "metrics": metrics}


def _task_name(source: ModelSource, layout: ModelLayout) -> str:
    """Returns the task that the folder names; a model without one, and without the head of a
    task, is pre-trained.
    """
    if source.task:
        return source.task.task_name
    if layout.task_name:
        return layout.task_name
    if find_families(source.checkpoint.shapes, source.path) - {"pretraining"}:
        raise InputError(
            f"{source.path}: has the head of a task, and no task.json says of which; export it "
            "with official-bert export_saved_model --task_name=... (text for labels of your own)"
        )
    return "pretraining"


def _make_task(source: ModelSource) -> ServedTask:
    """Makes the task with the labels that the flags give, or else those that the folder of the
    model names.
    """
    options = source.options
    settings = (source.task.settings if source.task else {}) | vars(options)
    settings["checkpoint_labels"] = source.dir.output_names()
    task = registry.make_task(options.task_name, settings)
    if task.labels is not None and not source.has_labels(task.labels):
        flag, remedy = (
            f"--task_name={options.task_name}: its labels",
            "name the task that it was trained on",
        )
        if options.labels:
            flag, remedy = "--labels: they", "leave the flag out"
        elif source.dir.task_file is None:
            general = source.task.task_name if source.task else "text"
            remedy = f"give --task_name={general}, which takes the labels of the model"
        labels = ", ".join(map(str, task.labels))
        raise InputError(
            f"{flag} are {labels}, but those beside the checkpoint are {', '.join(source.labels)}, "
            f"as {source.dir.labels_source} says; {remedy}"
        )
    return task


def _refuse_unread_flags(typed_options: ServedOptions, task: ServedTask):
    """Refuses flags of other tasks than that of the model."""
    read_flags = {*task.settings(), *(["labels"] if task.labels else [])}
    for field in dataclasses.fields(typed_options):
        value, readers = getattr(typed_options, field.name), field.metadata["read_by"]
        if field.name in read_flags or readers is None or value in (None, without_flag(field)):
            continue
        remedy = "leave the flag out"
        if readers:
            remedy += f", or name a model of {readers}"
        raise InputError(
            f"{format_flag(field.name, value)}: the task of this model does not read it; {remedy}"
        )


class _Model:
    """A model with signatures, in the form of tasks/clients.py's ServedModel."""

    path: str
    record: Record  # of an export of it
    tokenizer: FullTokenizer
    labels: list[str] | None  # in the order of the outputs; None if the task has none
    inputs: Mapping[str, Sequence[str]]
    outputs: Collection[str]

    def __init__(self, batch_size: int):
        self._batch_size, self._has_warned_of_unknown = batch_size, False

    @property
    def reads_text(self) -> bool:
        return self.record.settings["export_text"]

    @property
    def max_seq_length(self) -> int:
        return self.record.settings["max_seq_length"]

    def run(
        self, encoded: EncodedSet, signature: str = "serving_default", pads_to_longest: bool = True
    ) -> dict[str, np.ndarray]:
        """Runs a signature of tensors on every example of a set; see tasks/clients.py."""
        if not self._has_warned_of_unknown:
            self._has_warned_of_unknown = warn_of_unknown_requests(
                self.tokenizer, encoded, self.max_seq_length
            )
        return predict(
            lambda inputs: self(signature, inputs),
            tf.distribute.get_strategy(),
            encoded,
            self._batch_size,
            self.max_seq_length,
            pads_to_longest,
        )

    def run_texts(
        self, texts: Mapping[str, Sequence], signature: str = "serving_text"
    ) -> list[Row]:
        """Runs a signature of text and returns the outputs for each request; see tasks/clients.py."""
        # TensorFlow reads bytes; inputs that the signature does not have, such as a second text,
        # are left out.
        inputs = {
            name: np.vectorize(str.encode, otypes=[object])(np.array(texts[name], object))
            for name in self.inputs[signature]
        }
        num_requests = len(next(iter(inputs.values())))
        sizes = sum(
            np.vectorize(len)(values).reshape(num_requests, -1).sum(axis=1)
            for values in inputs.values()
        )
        # Requests of similar length share a batch, because a batch is padded to its longest
        # request.
        order = np.argsort(-sizes, kind="stable")
        results: list[Row] = [{} for _ in range(num_requests)]
        for start in range(0, num_requests, self._batch_size):
            rows = order[start : start + self._batch_size]
            batch = {name: values[rows] for name, values in inputs.items()}
            for output, values in self(signature, batch).items():
                for row, value in zip(rows, values, strict=True):
                    results[row][output] = value
        return results


class InMemoryModel(_Model):
    """The model of a folder with a checkpoint, with the signatures of an export of tensors."""

    def __init__(self, folder: str, batch_size: int = 32):
        """Builds the task of the folder and loads its weights."""
        super().__init__(batch_size)
        # An export of the folder without further flags, which is not written.
        options_class = catalog.options_class("export_saved_model")
        built = build(options_class(model=folder, export_dir=""))
        self.path, self.trained = folder, built
        self.record = make_record(built)
        self.tokenizer = built.tokenizer
        self.labels = list(map(str, built.task.labels)) if built.task.labels else None
        self._signatures = {
            name: signature.get_concrete_function()
            for name, signature in make_task_signatures(
                built.task, built.model, built.config, built.tokenizer
            ).items()
        }
        self.inputs = {
            name: tuple(spec.name for spec in signature.structured_input_signature[0])
            for name, signature in self._signatures.items()
        }
        self.outputs = set(self._signatures["serving_default"].structured_outputs)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature; of the inputs, arrays by name, those that it does not have are ignored."""
        try:
            return call_function(
                self._signatures[signature], {name: inputs[name] for name in self.inputs[signature]}
            )
        except tf.errors.OpError as error:
            raise InputError(f"{self.path}: cannot answer ({brief(error)})") from error


class Export(OpenedExport, _Model):
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
            batch_size: number of examples that the model is given at once.
            num_threads: number of threads to compute with; by default all processors.
            settings: settings of extensions.
        """
        _Model.__init__(self, batch_size)
        OpenedExport.__init__(self, model_dir, num_threads, batch_size, settings)


def open_model(
    model_dir: str,
    batch_size: int,
    num_threads: int | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Export | InMemoryModel:
    """Loads an export, or builds the model of a folder with a checkpoint, or of a name.

    Args:
        model_dir: the folder, or the name.
        batch_size: number of examples that the model is given at once.
        num_threads: number of threads to compute with; by default all processors.
        settings: the settings that extensions add to Predictor.
    """
    model_dir = model_hub.local_path(model_dir)
    if not is_export(model_dir) and ModelFolder(model_dir).config_file:
        for runtimes in export_runtimes():
            runtimes.check_trained(model_dir, settings)
        set_threads(num_threads)
        return InMemoryModel(model_dir, batch_size)
    return Export(model_dir, batch_size, num_threads, settings)
