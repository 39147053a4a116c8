"""Exports a model and its weights as the next version in a folder that a server watches.

In: a task, its model, and options for tokenizing text. Out, in export_dir/<version>/: a SavedModel
of tensors or of raw text, with vocab.txt in assets, and bert_config.json, labels.txt, export.json
and warm-up requests in assets.extra. The graph, too, has the labels, so that a file that was
changed is noticed.
"""

import dataclasses
import functools
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from absl import logging

from official_bert import catalog
from official_bert.checkpoints import named_variables
from official_bert.config import BertConfig
from official_bert.graph_text.text_reader import TextReader
from official_bert.graph_text.tokenizer import TextTokenizer
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import LABELS_NAME, join_lines, summarize_labels
from official_bert.options.serving import SAVED_MODEL, ExportOptions, ServedOptions
from official_bert.serving import signatures
from official_bert.serving.exported_model import (
    CONFIG_FILE,
    RECORD_FILE,
    TENSOR_SIGNATURE,
    VOCAB_FILE,
    Record,
    list_versions,
)
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tokenization import FullTokenizer, vocabulary_lines
from official_bert.training.run_log import package_versions

_gfile = tf.io.gfile
_TAKEN = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)


class TrainedModel(NamedTuple):
    """A task with its trained model; its options are completed by what the folder of the
    checkpoint knows.
    """

    options: ServedOptions
    task: ServedTask
    model: keras.Model
    config: BertConfig
    tokenizer: FullTokenizer
    # What tells the checkpoint from others: path, step, metrics of its evaluations.
    facts: dict[str, Any]


class ConvertedModel(NamedTuple):
    """Files of a version that are no SavedModel.

    Attributes:
        folder: a folder with these files and no others.
        record: what the record of the export says of them.
        signatures: the names of their signatures.
    """

    folder: str
    record: dict[str, Any]
    signatures: list[str]


class ExportWriter:
    """Chooses the files of an export: a SavedModel.

    An extension that exports other files has a subclass, which its hook `export_writer` makes of
    the options, before the model is built. Its `__init__` refuses flags that do not go together.

    Attributes:
        keeps_saved_model: whether the SavedModel is one of the files.
    """

    keeps_saved_model: bool = True

    def __init__(self, options: ExportOptions):
        self._options = options

    @property
    def dtype(self) -> str:
        """The type in which the weights of the model are stored."""
        return self._options.dtype

    def formats(self, flags: Mapping[str, Any]) -> list[str]:
        """Returns the formats of an export with some flags, by name."""
        return [SAVED_MODEL]

    def check_model(self, built: TrainedModel):
        """Raises InputError for a model that a format cannot hold."""

    def convert(
        self, built: TrainedModel, save: Callable[[str], None], folder: str
    ) -> ConvertedModel | None:
        """Makes the files that are no SavedModel; returns None if there are none.

        Args:
            built: the model.
            save: saves the SavedModel in a folder.
            folder: a temporary folder.
        """
        return None


def make_writer(options: ExportOptions) -> ExportWriter:
    """Returns the writer of the extension that has one, or the core's."""
    for hook in catalog.hooks("export_writer"):
        if writer := hook(options):
            return writer
    return ExportWriter(options)


def check_export_dir(export_dir: str):
    """Refuses a file in place of the folder of versions, before a model is built."""
    if files.exists(export_dir) and not files.is_folder(export_dir):
        raise InputError(
            f"--export_dir={export_dir}: is a file; name a folder, in which the version is written"
        )


def export_model(built: TrainedModel, writer: ExportWriter) -> str:
    """Exports a model with its weights and returns the folder of the version."""
    options: ExportOptions = built.options
    is_classifier = (
        registry.family_of(options.task_name) == registry.CLASSIFICATION and built.task.labels
    )
    if options.estimator_signatures and (options.export_text or not is_classifier):
        raise InputError(
            "--estimator_signatures: is for tensor models with labels, as run_classifier.py trains "
            "them; leave it out"
        )
    writer.check_model(built)
    _warn_about_other_versions(options, writer)
    with tempfile.TemporaryDirectory() as folder:  # holds the assets until they are saved
        content = _text_content(built, folder) if options.export_text else _tensor_content(built)
        weights = {name: variable.value for name, variable in named_variables(built.model).items()}
        facts = built.facts | {"weights_sha256": compute_weights_digest(weights)}
        record = make_record(built, options.export_text)._replace(checkpoint=facts)
        extra_files = content.extra_files | {CONFIG_FILE: built.config.to_json_string().encode()}
        labels = list(map(str, built.task.labels or ()))
        if labels:
            extra_files[f"assets.extra/{LABELS_NAME}"] = join_lines(labels)
        names = ", ".join(content.signatures)
        logging.info("Compiling the signatures %s ...", names)
        exported = ExportedModel(content.signatures, weights, content.resources, labels)
        save_to = functools.partial(save, exported, content.signatures)
        writers = []
        if converted := writer.convert(built, save_to, folder):
            record = record._replace(converted=converted.record)
            names = ", ".join(converted.signatures)
            writers.append(functools.partial(_copy_files, converted.folder))
        if writer.keeps_saved_model:
            extra_files[signatures.WARMUP_FILE] = signatures.make_warmup_records(content.requests)
            names = ", ".join(content.signatures)
            writers.append(save_to)
        extra_files[RECORD_FILE] = json.dumps(record._asdict(), indent=2).encode()
        logging.info("Writing the export ...")
        version = write_version(
            options.export_dir, lambda to: [write(to) for write in writers], extra_files
        )
    logging.info("Exported %s with the signatures %s", version, names)
    return version


def _copy_files(folder: str, to: str):
    _gfile.makedirs(to)
    for name in sorted(os.listdir(folder)):
        _gfile.copy(os.path.join(folder, name), os.path.join(to, name))


def _warn_about_other_versions(options: ExportOptions, writer: ExportWriter):
    """Warns that a server would switch from the newest version to one with other signatures or
    of another task.
    """
    numbers = list_versions(options.export_dir) if files.is_folder(options.export_dir) else []
    path = os.path.join(options.export_dir, str(numbers[-1]), RECORD_FILE) if numbers else ""
    if not path or not files.exists(path):
        return
    record = reading.read_json(path)
    ours = (
        registry.canonical_name(options.task_name),
        options.export_text,
        writer.formats(dataclasses.asdict(options)),
    )
    theirs = isinstance(record, dict) and (
        record.get("task_name"),
        record.get("settings", {}).get("export_text"),
        writer.formats(record.get("flags", {})),
    )
    if ours != theirs:
        logging.warning(
            "--export_dir=%s: holds versions of another task or with other signatures; a server "
            "that watches it switches to the new version",
            options.export_dir,
        )


def check_text_export(task: ServedTask):
    """Refuses tasks that --export_text cannot export."""
    if not task.text_inputs or type(task).serving_text is ServedTask.serving_text:
        raise InputError(
            "--export_text: the task does not say what it answers to text; give it text_inputs and "
            "the method serving_text of tasks/base.py, or leave the flag off"
        )


def make_task_signatures(
    task: ServedTask, model: keras.Model, config: BertConfig, tokenizer: FullTokenizer
) -> dict[str, Callable]:
    """Returns the signatures of token ids and of records, by name: tf.functions with input
    signatures.

    Of ids alone the segments of a pair follow, unless the task does not say by its `text_inputs`
    what it reads.
    """
    outputs = functools.partial(task.serving_outputs, model)
    separator = tokenizer.vocab["[SEP]"] if len(task.text_inputs) > 1 else None
    functions = signatures.make_tensor_signatures(outputs, config, task.num_choices, separator)
    if not task.text_inputs:
        del functions["serving_ids"]
    return functions | {
        name: signatures.make_position_signature(outputs, config)
        for name, outputs in task.further_signatures(model).items()
    }


def check_export(
    task_name: str,
    task: ServedTask,
    model: keras.Model,
    config: BertConfig,
    tokenizer: FullTokenizer,
):
    """Traces the signatures of a task outside this package, which may fail, before its model is
    trained.
    """
    try:
        for signature in make_task_signatures(task, model, config, tokenizer).values():
            signature.get_concrete_function()
    except NotImplementedError as error:
        logging.warning(
            "--task_name=%s: its model cannot be exported (%s)", task_name, type(error).__name__
        )
    except Exception as error:
        raise registry.failure(
            task_name, "its model could not be exported after the training", error
        ) from error


class _Content(NamedTuple):
    """The part of an export that depends on its kind: tensors or text; `resources` are those
    beside weights.
    """

    signatures: dict[str, Callable]
    requests: list[signatures.Request]
    resources: tf.Module | None
    extra_files: dict[str, bytes]


def _tensor_content(built: TrainedModel) -> _Content:
    options, task, model, config, tokenizer, _ = built
    length, default = options.max_seq_length, options.estimator_signatures
    functions = make_task_signatures(task, model, config, tokenizer)
    requests = signatures.make_tensor_requests(length, task.num_choices)
    requests += [
        signatures.make_position_request(name, length) for name in task.further_signatures(model)
    ]
    if default:
        functions = signatures.estimator_signatures(functions, default)
        requests = [
            (name.replace("serving_default", TENSOR_SIGNATURE), inputs) for name, inputs in requests
        ]
    vocabulary = {VOCAB_FILE: join_lines(vocabulary_lines(options.vocab_file))}
    return _Content(
        functions, [request for request in requests if request[0] in functions], None, vocabulary
    )


def _text_content(built: TrainedModel, folder: str) -> _Content:
    """Makes the signatures of strings; their vocabulary is an asset, which is written into
    `folder`.
    """
    options, task, model, _, full, _ = built
    check_text_export(task)
    tokenizer = TextTokenizer(full, folder)
    reader = TextReader(tokenizer, full.vocab, options.max_seq_length)
    answer = functools.partial(task.serving_text, model, reader=reader)
    answering = signatures.make_text_signature(task.text_inputs, answer)
    functions = {"serving_default": answering, "serving_text": answering} | {
        name: signatures.make_text_signature(task.text_inputs, further)
        for name, further in task.further_signatures(model, reader).items()
    }
    request = signatures.make_text_request(task.text_inputs, options.max_seq_length)
    return _Content(functions, [(name, request) for name in functions], tokenizer, {})


def make_record(built: TrainedModel, export_text: bool = False) -> Record:
    """Returns the content of export.json: the settings for clients, and the flags to repeat the
    export with.
    """
    options = built.options
    reading = {
        name: getattr(options, name)
        for name in ("max_seq_length", "do_lower_case", "strip_accents")
    }
    return Record(
        task_name=registry.canonical_name(options.task_name),
        family=registry.family_of(options.task_name),
        settings=reading | {"export_text": export_text} | built.task.settings(),
        flags=dataclasses.asdict(options),
        versions=package_versions(),
        labels=summarize_labels(built.task.labels),
    )


def compute_weights_digest(weights: Mapping[str, tf.Variable]) -> str:
    """Returns the SHA-256 of the names and values of all weights."""
    digest = hashlib.sha256()
    for name, variable in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()


class ExportedModel(tf.Module):
    """The variables of an export: each weight that the signatures read, once, and a tokenizer's
    tables, `resources`.

    A Keras model would become a SavedModel that Python can load and TensorFlow Serving cannot.
    `labels`, if there are any, is a function without arguments, by which the graph knows them.
    """

    def __init__(
        self,
        signatures: Mapping[str, Callable],
        weights: Mapping[str, tf.Variable],
        resources: tf.Module | None = None,
        labels: Sequence[str] = (),
    ):
        super().__init__()
        self.resources = resources
        if labels:
            self.labels = tf.function(
                lambda: tf.constant(list(labels)), input_signature=[], autograph=False
            )
        graphs = [signature.get_concrete_function().graph for signature in signatures.values()]
        read = {id(variable) for graph in graphs for variable in graph.variables}
        self.model_weights = {
            name: variable for name, variable in weights.items() if id(variable) in read
        }


def save(model: tf.Module, signatures: Mapping[str, Callable], folder: str):
    # These traces exist since ExportedModel was made; a tf.function would be traced again.
    traced = {name: signature.get_concrete_function() for name, signature in signatures.items()}
    tf.saved_model.save(model, folder, signatures=traced)


def write_version(
    export_dir: str, write: Callable[[str], None], extra_files: Mapping[str, bytes]
) -> str:
    """Adds a version, with the number after the highest one in the folder, and returns the folder
    of the version.

    `write` makes the model's files in a folder, with a temporary name that servers ignore. What a
    killed export left is deleted.
    """
    files.make_folder(export_dir)
    writing.remove_left(export_dir, "version-*")
    temporary = writing.temporary_name(export_dir, f"version-{uuid.uuid4().hex}")
    try:
        write(temporary)
        for name, content in extra_files.items():
            path = os.path.join(temporary, name)
            _gfile.makedirs(os.path.dirname(path))
            with files.open_file(path, "wb") as file:
                file.write(content)
        return _published(temporary, export_dir)
    except BaseException as error:
        if _gfile.exists(temporary):
            _gfile.rmtree(temporary)
        if isinstance(error, (OSError, tf.errors.OpError)):
            reason = getattr(error, "strerror", None) or getattr(error, "message", error)
            raise InputError(
                f"--export_dir={export_dir}: cannot be written ({reason}); make room or name "
                "another folder"
            ) from error
        raise


def _published(temporary: str, export_dir: str) -> str:
    """Renames a finished version to the next free number."""
    while True:
        version = os.path.join(export_dir, str(max(list_versions(export_dir), default=0) + 1))
        try:
            _gfile.rename(temporary, version)
            return version
        except _TAKEN:  # another export took the number after the folder was read
            continue
