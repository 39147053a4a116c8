"""Exports a model and its weights as the next version in a folder that a server watches, and reads the record of one.

In: a task, its model, and options for tokenizing text. Out, in export_dir/<version>/: a SavedModel of tensors or of raw
text, with vocab.txt in assets, and bert_config.json, labels.txt, export.json and warm-up requests in assets.extra. The
graph, too, has the labels, so that a file that was changed is noticed.
"""

import dataclasses
import functools
import hashlib
import importlib
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import keras
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import named_variables
from official_bert.config import BertConfig
from official_bert.graph_text.text_reader import TextReader
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field, is_of_kind
from official_bert.model_dir import LABELS_NAME, lines_of, record_of_labels
from official_bert.options.fine_tuning import AUTO, SquadServing
from official_bert.options.serving import ExportOptions, ServedOptions
from official_bert.serving import signatures
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tokenization import FullTokenizer, vocabulary_lines
from official_bert.training.run_log import package_versions

_gfile = tf.io.gfile
_LARGEST_VERSION = 2**63 - 1  # that TensorFlow Serving reads
_TAKEN = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)
RECORD_FILE = "assets.extra/export.json"
_SETTINGS = {"export_text": bool, "max_seq_length": int, "do_lower_case": bool, "strip_accents": bool}


class TrainedModel(NamedTuple):
    """A task with its trained model; its options are completed by what the folder of the checkpoint knows."""

    options: ServedOptions
    task: ServedTask
    model: keras.Model
    config: BertConfig
    tokenizer: FullTokenizer
    facts: dict[str, Any]  # what tells the checkpoint from others: path, step, metrics of its evaluations


class Record(NamedTuple):
    """The content of an export's record file; exports of earlier versions lack the last two."""

    task_name: str
    family: str
    settings: dict[str, Any]  # by flag name, what a client needs
    flags: dict[str, Any]  # to repeat the export
    versions: dict[str, str]  # of packages
    labels: dict[str, Any] | None = None  # their number, and the SHA-256 digest of labels.txt; None without labels
    checkpoint: dict[str, Any] | None = None  # the facts of a TrainedModel, and the digest of the weights

    @classmethod
    def read(cls, version: str) -> Self:
        path = os.path.join(version, RECORD_FILE)
        if not files.exists(path):
            raise InputError(
                f"{path}: is missing, and with it how text is read; export the model with export_saved_model.py"
            )
        content = reading.read_json(path)
        kinds = {"task_name": str, "family": str, "settings": dict, "flags": dict, "versions": dict}
        kinds |= {name: dict for name in ("labels", "checkpoint") if is_of_kind(content, dict) and content.get(name)}
        record = cls(**{name: field(content, name, kind, path) for name, kind in kinds.items()})
        _check_settings(record.settings, f"{path}: settings")
        return record


def _check_settings(settings: dict[str, Any], where: str):
    """Checks the types of the settings that every client needs, and of those that the flags of predict.py replace."""
    for name, kind in _SETTINGS.items():
        if name != "strip_accents" or settings.get(name) is not None:
            field(settings, name, kind, where)
    settings.setdefault("strip_accents", None)
    if settings["max_seq_length"] < 1:
        raise InputError(f"{where}: max_seq_length must be positive; export the model anew")
    for rule in dataclasses.fields(SquadServing):
        value, kind = settings.get(rule.name), rule.type
        if value is None or (kind is float and (value == AUTO or isinstance(value, float))):  # may be infinite
            continue
        if not is_of_kind(value, kind) or (kind is int and value < 0):
            raise InputError(f"{where}: {rule.name} is {value!r}, which the flag does not accept; export it anew")


def export_model(built: TrainedModel) -> str:
    """Exports a model with its weights and returns the folder of the version."""
    options: ExportOptions = built.options
    is_classifier = registry.family_of(options.task_name) == registry.CLASSIFICATION and built.task.labels
    if options.estimator_signatures and (options.export_text or not is_classifier):
        raise InputError(
            "--estimator_signatures: is for tensor models with labels, as run_classifier.py trains them; leave it out"
        )
    _warn_of_other_versions(options, options.task_name)
    with tempfile.TemporaryDirectory() as folder:  # holds the assets until they are saved
        content = _text_content(built, folder) if options.export_text else _tensor_content(built)
        weights = {name: variable.value for name, variable in named_variables(built.model).items()}
        facts = built.facts | {"weights_sha256": _digest_of_weights(weights)}
        record = record_of(built, options.export_text)._replace(checkpoint=facts)
        extra_files = content.extra_files | {
            "assets.extra/bert_config.json": built.config.to_json_string().encode(),
            RECORD_FILE: json.dumps(record._asdict(), indent=2).encode(),
            signatures.WARMUP_FILE: signatures.warmup_records(content.requests),
        }
        labels = list(map(str, built.task.labels or ()))
        if labels:
            extra_files[f"assets.extra/{LABELS_NAME}"] = lines_of(labels)
        names = ", ".join(content.signatures)
        logging.info("Compiling the signatures %s ...", names)
        exported = ExportedModel(content.signatures, weights, content.resources, labels)
        logging.info("Writing the SavedModel ...")
        version = export_version(options.export_dir, exported, content.signatures, extra_files)
    logging.info("Exported %s with the signatures %s", version, names)
    return version


def _warn_of_other_versions(options: ExportOptions, task_name: str):
    """Warns that a server would switch from the newest version to one with other signatures or of another task."""
    found = versions(options.export_dir) if files.is_folder(options.export_dir) else []
    path = os.path.join(options.export_dir, str(found[-1]), RECORD_FILE) if found else ""
    if not path or not files.exists(path):
        return
    record = reading.read_json(path)
    ours = registry.canonical_name(task_name), options.export_text
    theirs = isinstance(record, dict) and (record.get("task_name"), record.get("settings", {}).get("export_text"))
    if ours != theirs:
        logging.warning(
            "--export_dir=%s: holds versions of another task or with other signatures; a server that watches it "
            "switches to the new version",
            options.export_dir,
        )


def check_text_export(task: ServedTask):
    """Refuses tasks that --export_text cannot export."""
    if not task.text_inputs or type(task).serving_text is ServedTask.serving_text:
        raise InputError(
            "--export_text: the task does not say what it answers to text; give it text_inputs and the method "
            "serving_text of tasks/base.py, or leave the flag off"
        )
    import_text_ops("--export_text:")


def import_text_ops(what: str):
    """Imports the ops of text, without which no graph of text can be made or loaded."""
    try:
        importlib.import_module("official_bert.graph_text.tokenizer")
    except ImportError as error:
        raise InputError(
            f"{what} needs tensorflow-text, which cannot be imported ({error}); install requirements.txt"
        ) from error


def task_signatures(
    task: ServedTask, model: keras.Model, config: BertConfig, tokenizer: FullTokenizer
) -> dict[str, Callable]:
    """Returns the signatures of token ids and of records, by name: tf.functions with input signatures.

    Of ids alone the segments of a pair follow, unless the task does not say by its `text_inputs` what it reads.
    """
    outputs = functools.partial(task.serving_outputs, model)
    separator = tokenizer.vocab["[SEP]"] if len(task.text_inputs) > 1 else None
    found = signatures.tensor_signatures(outputs, config, task.num_choices, separator)
    if not task.text_inputs:
        del found["serving_ids"]
    return found | {
        name: signatures.position_signature(outputs, config) for name, outputs in task.further_signatures(model).items()
    }


def check_export(task_name: str, task: ServedTask, model: keras.Model, config: BertConfig, tokenizer: FullTokenizer):
    """Traces the signatures of a task outside this package, which may fail, before its model is trained."""
    try:
        for signature in task_signatures(task, model, config, tokenizer).values():
            signature.get_concrete_function()
    except NotImplementedError as error:
        logging.warning("--task_name=%s: its model cannot be exported (%s)", task_name, type(error).__name__)
    except Exception as error:
        raise registry.failure(task_name, "its model could not be exported after the training", error) from error


class _Content(NamedTuple):
    """The part of an export that depends on its kind: tensors or text; `resources` are those beside weights."""

    signatures: dict[str, Callable]
    requests: list[signatures.Request]
    resources: tf.Module | None
    extra_files: dict[str, bytes]


def _tensor_content(built: TrainedModel) -> _Content:
    options, task, model, config, tokenizer, _ = built
    length, default = options.max_seq_length, options.estimator_signatures
    found = task_signatures(task, model, config, tokenizer)
    requests = signatures.tensor_requests(length, task.num_choices)
    requests += [signatures.position_request(name, length) for name in task.further_signatures(model)]
    if default:
        found = signatures.estimator_signatures(found, default)
        requests = [(name.replace("serving_default", signatures.TENSOR_SIGNATURE), inputs) for name, inputs in requests]
    vocabulary = {"assets/vocab.txt": lines_of(vocabulary_lines(options.vocab_file))}
    return _Content(found, [request for request in requests if request[0] in found], None, vocabulary)


def _text_content(built: TrainedModel, folder: str) -> _Content:
    """Makes the signatures of strings; their vocabulary is an asset, which is written into `folder`."""
    options, task, model, _, full, _ = built
    check_text_export(task)
    # Imported here because exports of tensors do not need tensorflow_text.
    from official_bert.graph_text.tokenizer import TextTokenizer

    tokenizer = TextTokenizer(full, folder)
    reader = TextReader(tokenizer, full.vocab, options.max_seq_length)
    answer = functools.partial(task.serving_text, model, reader=reader)
    answering = signatures.text_signature(task.text_inputs, answer)
    found = {"serving_default": answering, "serving_text": answering} | {
        name: signatures.text_signature(task.text_inputs, further)
        for name, further in task.further_signatures(model, reader).items()
    }
    request = signatures.text_request(task.text_inputs, options.max_seq_length)
    return _Content(found, [(name, request) for name in found], tokenizer, {})


def record_of(built: TrainedModel, export_text: bool = False) -> Record:
    """Returns the content of export.json: the settings for clients, and the flags to repeat the export with."""
    options = built.options
    reading = {name: getattr(options, name) for name in ("max_seq_length", "do_lower_case", "strip_accents")}
    return Record(
        task_name=registry.canonical_name(options.task_name),
        family=registry.family_of(options.task_name),
        settings=reading | {"export_text": export_text} | built.task.settings(),
        flags=dataclasses.asdict(options),
        versions=package_versions(),
        labels=record_of_labels(built.task.labels),
    )


def _digest_of_weights(weights: Mapping[str, tf.Variable]) -> str:
    digest = hashlib.sha256()
    for name, variable in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()


class ExportedModel(tf.Module):
    """The variables of an export: each weight that the signatures read, once, and a tokenizer's tables, `resources`.

    A Keras model would become a SavedModel that Python can load and TensorFlow Serving cannot. `labels`, if there are
    any, is a function without arguments, by which the graph knows them.
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
            self.labels = tf.function(lambda: tf.constant(list(labels)), input_signature=[], autograph=False)
        graphs = [signature.get_concrete_function().graph for signature in signatures.values()]
        read = {id(variable) for graph in graphs for variable in graph.variables}
        self.model_weights = {name: variable for name, variable in weights.items() if id(variable) in read}


def export_version(
    export_dir: str, model: tf.Module, signatures: Mapping[str, Callable], extra_files: Mapping[str, bytes]
) -> str:
    """Adds a version, with the number after the highest one in the folder, and returns the folder of the version.

    It is written under a temporary name that servers ignore. What a killed export left is deleted.
    """
    files.make_folder(export_dir)
    writing.remove_left(export_dir, "version-*")
    temporary = writing.temporary_name(export_dir, f"version-{uuid.uuid4().hex}")
    try:
        # These traces exist since ExportedModel was made; a tf.function would be traced again.
        traced = {name: signature.get_concrete_function() for name, signature in signatures.items()}
        tf.saved_model.save(model, temporary, signatures=traced)
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
                f"--export_dir={export_dir}: cannot be written ({reason}); make room or name another folder"
            ) from error
        raise


def versions(export_dir: str) -> list[int]:
    names = (name.rstrip("/") for name in _gfile.listdir(export_dir))
    numbers = (int(name) for name in names if name.isascii() and name.isdigit())
    return sorted(number for number in numbers if number < _LARGEST_VERSION)


def _published(temporary: str, export_dir: str) -> str:
    """Renames a finished version to the next free number."""
    while True:
        version = os.path.join(export_dir, str(max(versions(export_dir), default=0) + 1))
        try:
            _gfile.rename(temporary, version)
            return version
        except _TAKEN:  # another export took the number after the folder was read
            continue
