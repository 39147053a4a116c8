"""Exports a model and its weights as the next version in a folder that a server watches.

In: a task, its model, and options for tokenizing text. Out, in export_dir/<version>/: a SavedModel of tensors or of raw
text, with vocab.txt in assets, and bert_config.json, labels.txt, export.json and warm-up requests in assets.extra.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf
from absl import logging

from official_bert.checkpoints import named_variables
from official_bert.config import BertConfig
from official_bert.graph_text.inputs import TextReader
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.model_dir import LABELS_NAME
from official_bert.options.serving import ExportOptions
from official_bert.serving import warmup
from official_bert.serving.export import ExportedModel, export_version, versions
from official_bert.serving.loaded import RECORD_FILE, Record
from official_bert.serving.signatures import (
    position_signature,
    tensor_signatures,
    text_request,
    text_signature,
)
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tokenization import FullTokenizer
from official_bert.training.run_log import package_versions


def export_model(
    options: ExportOptions,
    task_name: str,
    task: ServedTask,
    model: keras.Model,
    config: BertConfig,
) -> str:
    """Exports a model with its weights.

    Returns:
        The folder of the version.
    """
    _warn_of_other_versions(options, task_name)
    with tempfile.TemporaryDirectory() as folder:  # holds the assets until they are saved
        if options.export_text:
            content = _text_content(options, task, model, folder)
        else:
            content = _tensor_content(options, task, model, config)
        extra_files = content.extra_files | {
            "assets.extra/bert_config.json": config.to_json_string().encode(),
            RECORD_FILE: json.dumps(record_of(options, task_name, task)._asdict(), indent=2).encode(),
            warmup.FILE: warmup.warmup_records(content.requests),
        }
        if task.labels:
            lines = "".join(f"{label}\n" for label in task.labels)
            extra_files[f"assets.extra/{LABELS_NAME}"] = lines.encode()
        weights = {name: variable.value for name, variable in named_variables(model).items()}
        logging.info("Compiling the signatures %s ...", ", ".join(content.signatures))
        exported = ExportedModel(content.signatures, weights, content.resources)
        logging.info("Writing the SavedModel ...")
        version = export_version(options.export_dir, exported, content.signatures, extra_files)
    logging.info("Exported %s with the signatures %s", version, ", ".join(content.signatures))
    return version


def _warn_of_other_versions(options: ExportOptions, task_name: str):
    """Warns that a server would switch from the newest version to one with other signatures or of another task."""
    found = versions(options.export_dir) if files.is_folder(options.export_dir) else []
    path = os.path.join(options.export_dir, str(found[-1]), RECORD_FILE) if found else ""
    if not path or not files.exists(path):
        return
    record = reading.read_json(path)
    is_same = isinstance(record, dict) and (
        record.get("task_name"),
        record.get("settings", {}).get("export_text"),
    ) == (
        registry.canonical_name(task_name),
        options.export_text,
    )
    if not is_same:
        logging.warning(
            "--export_dir=%s: holds versions of another task or with other signatures; a server that watches it "
            "switches to the new version",
            options.export_dir,
        )


def check_text_export(task: ServedTask):
    """Refuses tasks that --export_text cannot export.

    Raises:
        InputError: the task does not answer text, or tensorflow_text is missing.
    """
    if not task.text_inputs or type(task).serving_text is ServedTask.serving_text:
        raise InputError(
            "--export_text: the task does not say what it answers to text; give it text_inputs and the method "
            "serving_text of tasks/base.py, or leave the flag off"
        )
    try:
        importlib.import_module("official_bert.graph_text.tokenizer")
    except ImportError as error:
        raise InputError(
            f"--export_text: needs tensorflow-text, which cannot be imported ({error}); install requirements.txt"
        ) from error


def task_signatures(task: ServedTask, model: keras.Model, config: BertConfig) -> dict[str, Callable]:
    """Returns the signatures of token ids and of records, by name: tf.functions with input signatures."""
    signatures = tensor_signatures(functools.partial(task.serving_outputs, model), config, task.num_choices)
    for name, outputs in task.position_signatures(model).items():
        signatures[name] = position_signature(outputs, config)
    return signatures


class _Content(NamedTuple):
    """The part of an export that depends on its kind: tensors or text.

    Attributes:
        signatures: the signatures by name.
        requests: the requests of the warm-up.
        resources: the resources of the signatures other than weights.
        extra_files: the contents of further files by path.
    """

    signatures: dict[str, Callable]
    requests: list[warmup.Request]
    resources: tf.Module | None
    extra_files: dict[str, bytes]


def _tensor_content(
    options: ExportOptions,
    task: ServedTask,
    model: keras.Model,
    config: BertConfig,
) -> _Content:
    """Makes the signatures of token ids and of records."""
    signatures = task_signatures(task, model, config)
    requests = warmup.tensor_requests(options.max_seq_length, task.num_choices)
    requests += [
        warmup.position_request(name, options.max_seq_length) for name in task.position_signatures(model)
    ]
    with files.open_file(options.vocab_file, "rb") as file:
        return _Content(signatures, requests, None, {"assets/vocab.txt": file.read()})


def _text_content(options: ExportOptions, task: ServedTask, model: keras.Model, folder: str) -> _Content:
    """Makes the signatures of strings; their vocabulary is an asset, which is written into `folder`."""
    check_text_export(task)
    # Imported here because exports of tensors do not need tensorflow_text.
    from official_bert.graph_text.tokenizer import TextTokenizer

    full = FullTokenizer(options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents)
    tokenizer = TextTokenizer(full, folder)
    reader = TextReader(tokenizer, full.vocab, options.max_seq_length)
    answer = functools.partial(task.serving_text, model, reader=reader)
    signatures = dict.fromkeys(("serving_default", "serving_text"), text_signature(task.text_inputs, answer))
    for name, function in task.text_signatures(model, reader).items():
        signatures[name] = text_signature(task.text_inputs, function)
    request = text_request(task.text_inputs, options.max_seq_length)
    return _Content(signatures, [(name, request) for name in signatures], tokenizer, {})


def record_of(options: ExportOptions, task_name: str, task: ServedTask) -> Record:
    """Returns the content of export.json: the settings for clients, and the flags to repeat the export with."""
    reading = ("max_seq_length", "do_lower_case", "strip_accents", "export_text")
    return Record(
        task_name=registry.canonical_name(task_name),
        family=registry.family_of(task_name),
        settings={name: getattr(options, name) for name in reading} | task.settings(),
        flags=dataclasses.asdict(options),
        versions=package_versions(),
    )
