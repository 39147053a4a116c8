"""Exports a model and its weights as the next version in a folder that a server watches.

In: a task, its model, and options for tokenizing text. Out, in export_dir/<version>/:

    saved_model.pb, variables    a SavedModel that reads tensors or raw text
    assets                       vocab.txt
    assets.extra                 bert_config.json, labels.txt, export.json, warm-up requests

The graph contains the labels, too, so that a reader notices a changed labels.txt.
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
from official_bert.graph_text.text_reader import InputBuilder, TextReader
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
from official_bert.serving.signatures import Signature
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tokenization import FullTokenizer, vocabulary_lines
from official_bert.training.run_log import package_versions

_gfile = tf.io.gfile
_NUMBER_EXISTS = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)


class TrainedModel(NamedTuple):
    """A task with its trained model.

    Attributes:
        options: the options, without an open value.
        task: the task that the model was trained on.
        model: the model with the weights of the checkpoint.
        config: the configuration of the model.
        tokenizer: the tokenizer of the model.
        checkpoint_metadata: the path and the step of the checkpoint, and the metrics of its
            evaluations.
    """

    options: ServedOptions
    task: ServedTask
    model: keras.Model
    config: BertConfig
    tokenizer: FullTokenizer
    checkpoint_metadata: dict[str, Any]

    @property
    def task_name(self) -> str:
        """The name of the task."""
        assert self.options.task_name is not None, "the options have no open value"
        return self.options.task_name

    @property
    def max_seq_length(self) -> int:
        """The number of tokens to which the export truncates text."""
        assert self.options.max_seq_length is not None, "the options have no open value"
        return self.options.max_seq_length

    @property
    def vocab_file(self) -> str:
        """The path of the vocabulary."""
        assert self.options.vocab_file is not None, "the options have no open value"
        return self.options.vocab_file


class ConvertedModel(NamedTuple):
    """Files of a version that are not a SavedModel.

    Attributes:
        folder: a folder with these files and no others.
        record: the fields about these files for the record of the export.
        signatures: the names of their signatures.
    """

    folder: str
    record: dict[str, Any]
    signatures: list[str]


class ExportWriter:
    """Chooses the files of an export: a SavedModel.

    An extension that exports other files has a subclass. Its hook `export_writer` makes an instance
    from the options, before the model is built. The `__init__` of the subclass refuses conflicting
    flags.

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
        """Returns the names of the formats of an export.

        Args:
            flags: the flags of the export, by name.
        """
        return [SAVED_MODEL]

    def check_model(self, built: TrainedModel) -> None:
        """Checks that the formats of the export can store a model.

        Args:
            built: the model.

        Raises:
            InputError: a format has no way to store it.
        """

    def convert(
        self, built: TrainedModel, save: Callable[[str], None], folder: str
    ) -> ConvertedModel | None:
        """Makes the files that are not a SavedModel.

        Args:
            built: the model.
            save: saves the SavedModel in a folder.
            folder: a temporary folder.

        Returns:
            The files, or None if there are none.
        """
        return None


def make_writer(options: ExportOptions) -> ExportWriter:
    """Makes the writer of an export: that of an extension, or else the core's.

    Args:
        options: the flags of the export.
    """
    for hook in catalog.hooks("export_writer"):
        if writer := hook(options):
            return writer
    return ExportWriter(options)


def check_export_dir(export_dir: str) -> None:
    """Checks that the folder of versions is not a file, before a model is built.

    Args:
        export_dir: the value of --export_dir.

    Raises:
        InputError: it is a file.
    """
    if files.exists(export_dir) and not files.is_folder(export_dir):
        raise InputError(
            f"--export_dir={export_dir}: is a file; name a folder, in which the version is written"
        )


def export_model(built: TrainedModel, writer: ExportWriter) -> str:
    """Exports a model with its weights.

    Args:
        built: the model.
        writer: the writer that chooses the files.

    Returns:
        The folder of the new version.

    Raises:
        InputError: flags contradict one another, a format cannot store the model, or the folder
            cannot be written.
    """
    options: ExportOptions = built.options
    _check_estimator_signatures(built)
    writer.check_model(built)
    warn_about_other_versions(built.task_name, options, writer)
    # The temporary folder contains the assets until they are saved.
    with tempfile.TemporaryDirectory() as folder:
        # Build the graphs.
        content = _make_content(built, folder)
        weights = {name: variable.value for name, variable in named_variables(built.model).items()}
        labels = [str(label) for label in built.task.labels or ()]
        names = ", ".join(content.functions)
        logging.info("Compiling the signatures %s ...", names)
        exported = ExportedModel(content.functions, weights, content.resources, labels)
        save_to = functools.partial(save, exported, content.functions)

        # Choose the files, and the functions that write them into the folder of the version.
        digest = compute_weights_digest(weights)
        metadata = built.checkpoint_metadata | {"weights_sha256": digest}
        record = make_record(built, options.export_text)._replace(checkpoint=metadata)
        extra_files = content.extra_files | {CONFIG_FILE: built.config.to_json_string().encode()}
        if labels:
            extra_files[f"assets.extra/{LABELS_NAME}"] = join_lines(labels)
        write_functions: list[Callable[[str], None]] = []
        if converted := writer.convert(built, save_to, folder):
            record = record._replace(converted=converted.record)
            names = ", ".join(converted.signatures)
            write_functions.append(functools.partial(copy_folder, converted.folder))
        if writer.keeps_saved_model:
            extra_files[signatures.WARMUP_FILE] = signatures.make_warmup_records(content.requests)
            names = ", ".join(content.functions)
            write_functions.append(save_to)
        else:
            extra_files[VOCAB_FILE] = join_lines(vocabulary_lines(built.vocab_file))
        extra_files[RECORD_FILE] = json.dumps(record._asdict(), indent=2).encode()

        # Write the version.
        def write_all(version_folder: str) -> None:
            for write in write_functions:
                write(version_folder)

        logging.info("Writing the export ...")
        version = write_version(options.export_dir, write_all, extra_files)
    logging.info("Exported %s with the signatures %s", version, names)
    return version


def _check_estimator_signatures(built: TrainedModel):
    options: ExportOptions = built.options
    family = registry.task_family(built.task_name)
    is_classifier = family == registry.CLASSIFICATION and built.task.labels
    if options.estimator_signatures and (options.export_text or not is_classifier):
        raise InputError(
            "--estimator_signatures: is for tensor models with labels, as run_classifier.py trains "
            "them; leave it out"
        )


def copy_folder(source: str, target: str) -> None:
    """Copies the files of a folder.

    Args:
        source: the folder.
        target: the folder of the copies, which is created if need be.
    """
    _gfile.makedirs(target)
    for name in sorted(os.listdir(source)):
        _gfile.copy(os.path.join(source, name), os.path.join(target, name))


def warn_about_other_versions(task_name: str, options: ExportOptions, writer: ExportWriter) -> None:
    """Warns that a server would switch to a version with other signatures or of another task.

    Args:
        task_name: the task of the new version.
        options: the flags of the export, with the folder of the versions.
        writer: the object that chooses the files of the new version.
    """
    numbers = list_versions(options.export_dir) if files.is_folder(options.export_dir) else []
    if not numbers:
        return
    path = os.path.join(options.export_dir, str(numbers[-1]), RECORD_FILE)
    if not files.exists(path):
        return
    record = reading.read_json(path)
    new_kind = (
        registry.canonical_name(task_name),
        options.export_text,
        writer.formats(dataclasses.asdict(options)),
    )
    newest_kind = isinstance(record, dict) and (
        record.get("task_name"),
        record.get("settings", {}).get("export_text"),
        writer.formats(record.get("flags", {})),
    )
    if new_kind != newest_kind:
        logging.warning(
            "--export_dir=%s: holds versions of another task or with other signatures; a server "
            "that watches it switches to the new version",
            options.export_dir,
        )


def check_text_export(task: ServedTask) -> None:
    """Checks that --export_text can export the models of a task.

    Args:
        task: the task.

    Raises:
        InputError: the task does not define a graph that reads text.
    """
    if not task.text_inputs or type(task).serving_text is ServedTask.serving_text:
        raise InputError(
            "--export_text: the task has no graph that reads text; give it text_inputs and the "
            "method serving_text of tasks/base.py, or leave the flag off"
        )


def make_task_signatures(
    task: ServedTask,
    model: keras.Model,
    config: BertConfig,
    tokenizer: FullTokenizer,
    max_seq_length: int,
) -> dict[str, Signature]:
    """Makes the signatures of a model that read token ids and records.

    A task without `text_inputs` gets no `serving_ids`, because the segments of its inputs do not
    follow from the ids.

    Args:
        task: the task of the model.
        model: the model.
        config: its configuration.
        tokenizer: its tokenizer.
        max_seq_length: the number of tokens to which inputs are truncated that the graph builds.

    Returns:
        The tf.functions by name.
    """
    compute_outputs = functools.partial(task.serving_outputs, model)
    separator = tokenizer.vocab["[SEP]"] if len(task.text_inputs) > 1 else None
    functions = signatures.make_tensor_signatures(
        compute_outputs, config, task.num_choices, separator
    )
    if not task.text_inputs:
        del functions["serving_ids"]
    for name, compute_feature_outputs in task.feature_signatures(model).items():
        functions[name] = signatures.make_feature_signature(compute_feature_outputs, config)
    for name, compute_further_outputs in task.further_signatures(model).items():
        functions[name] = signatures.make_position_signature(compute_further_outputs, config)
    builder = InputBuilder(tokenizer.vocab, max_seq_length)
    for name, free in task.free_signatures(model, builder).items():
        functions[name] = signatures.make_free_signature(free)
    return functions


def check_export(
    task_name: str,
    task: ServedTask,
    model: keras.Model,
    config: BertConfig,
    tokenizer: FullTokenizer,
) -> None:
    """Traces the signatures of a task outside this package, before its model is trained.

    Args:
        task_name: the value of --task_name.
        task: the task.
        model: its model, with initial weights.
        config: the configuration of the model.
        tokenizer: the tokenizer of the model.

    Raises:
        InputError: the code of the task fails.
    """
    try:
        length = config.max_position_embeddings
        for signature in make_task_signatures(task, model, config, tokenizer, length).values():
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
    """The part of an export that depends on its kind: tensors or text.

    Attributes:
        functions: the signatures by name.
        requests: the warm-up requests.
        resources: a module with the lookup tables of the graph; None if it has none.
        extra_files: the content of further files, by their paths in the version.
    """

    functions: dict[str, Signature]
    requests: list[signatures.Request]
    resources: tf.Module | None
    extra_files: dict[str, bytes]


def _make_content(built: TrainedModel, folder: str) -> _Content:
    options: ExportOptions = built.options
    if options.export_text:
        return _make_text_content(built, folder)
    return _make_tensor_content(built)


def _make_tensor_content(built: TrainedModel) -> _Content:
    """Makes the signatures that read tensors."""
    task = built.task
    length = built.max_seq_length
    functions = make_task_signatures(task, built.model, built.config, built.tokenizer, length)
    requests = signatures.make_tensor_requests(length, task.num_choices)
    for name in task.feature_signatures(built.model):
        requests.append(signatures.make_feature_request(name, length))
    for name in task.further_signatures(built.model):
        requests.append(signatures.make_position_request(name, length))
    builder = InputBuilder(built.tokenizer.vocab, length)
    for name, free in task.free_signatures(built.model, builder).items():
        requests.append((name, free.request))
    if default := built.options.estimator_signatures:
        functions = signatures.replace_default_signature(functions, default)
        requests = [
            (name.replace("serving_default", TENSOR_SIGNATURE), inputs) for name, inputs in requests
        ]
    requests = [request for request in requests if request[0] in functions]
    vocabulary = {VOCAB_FILE: join_lines(vocabulary_lines(built.vocab_file))}
    return _Content(functions, requests, resources=None, extra_files=vocabulary)


def _make_text_content(built: TrainedModel, folder: str) -> _Content:
    """Makes the signatures that read strings, and writes their vocabulary into `folder`."""
    task = built.task
    length = built.max_seq_length
    check_text_export(task)
    tokenizer = TextTokenizer(built.tokenizer, folder)
    reader = TextReader(built.tokenizer.vocab, length, tokenizer)
    answer = functools.partial(task.serving_text, built.model, reader=reader)
    text_signature = signatures.make_text_signature(task.text_inputs, answer)
    functions = {"serving_default": text_signature, "serving_text": text_signature}
    for name, further_answer in task.further_signatures(built.model, reader).items():
        functions[name] = signatures.make_text_signature(task.text_inputs, further_answer)
    request = signatures.make_text_request(task.text_inputs, length)
    requests: list[signatures.Request] = [(name, request) for name in functions]
    for name, free in task.free_signatures(built.model, reader).items():
        functions[name] = signatures.make_free_signature(free)
        requests.append((name, free.request))
    return _Content(functions, requests, resources=tokenizer, extra_files={})


def make_record(built: TrainedModel, export_text: bool = False) -> Record:
    """Makes the content of export.json: the settings for clients, and the flags of the export.

    Args:
        built: the model.
        export_text: whether the export reads raw text.
    """
    options = built.options
    text_flags = ("max_seq_length", "do_lower_case", "strip_accents")
    text_settings = {name: getattr(options, name) for name in text_flags}
    return Record(
        task_name=registry.canonical_name(built.task_name),
        family=registry.task_family(built.task_name),
        settings=text_settings | {"export_text": export_text} | built.task.settings(),
        flags=dataclasses.asdict(options),
        versions=package_versions(),
        labels=summarize_labels(built.task.labels),
    )


def compute_weights_digest(weights: Mapping[str, tf.Variable]) -> str:
    """Computes the SHA-256 of the names and values of all weights.

    Args:
        weights: the variables by name.
    """
    digest = hashlib.sha256()
    for name, variable in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()


class ExportedModel(tf.Module):
    """The variables of an export: each weight that the signatures read, once.

    A Keras model would become a SavedModel that Python can load and TensorFlow Serving cannot.

    Args:
        signatures: the signatures by name.
        weights: the variables of the model by name.
        resources: a module with the lookup tables of the graph; None if it has none.
        labels: the labels of the task. The attribute `labels`, a function without arguments, stores
            them in the graph. It is absent if there are no labels.
    """

    def __init__(
        self,
        signatures: Mapping[str, Signature],
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
        read_variables = set()
        for signature in signatures.values():
            graph = signature.get_concrete_function().graph
            read_variables.update(id(variable) for variable in graph.variables)
        self.model_weights = {
            name: variable for name, variable in weights.items() if id(variable) in read_variables
        }


def save(model: tf.Module, signatures: Mapping[str, Signature], folder: str) -> None:
    """Saves a SavedModel.

    Args:
        model: an ExportedModel.
        signatures: its signatures by name.
        folder: the folder of the SavedModel.
    """
    # ExportedModel has traced the signatures already; saving a tf.function would trace it again.
    traced = {name: signature.get_concrete_function() for name, signature in signatures.items()}
    # TensorFlow logs the name of the folder, which is a temporary one.
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        tf.saved_model.save(model, folder, signatures=traced)
    finally:
        logger.setLevel(level)


def write_version(
    export_dir: str, write: Callable[[str], None], extra_files: Mapping[str, bytes]
) -> str:
    """Adds a version to a folder, with the number after the highest one, and deletes the rest of a
    killed export.

    Args:
        export_dir: the folder of versions, which is created if need be.
        write: writes the model's files into a folder, whose temporary name servers ignore.
        extra_files: the content of further files, by their paths in the version.

    Returns:
        The folder of the version.

    Raises:
        InputError: the folder cannot be written.
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
        return _publish(temporary, export_dir)
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


def _publish(temporary: str, export_dir: str) -> str:
    """Renames a finished version to the next free number."""
    while True:
        version = os.path.join(export_dir, str(max(list_versions(export_dir), default=0) + 1))
        try:
            _gfile.rename(temporary, version)
            return version
        except _NUMBER_EXISTS:  # another export took the number after the folder was listed
            continue
