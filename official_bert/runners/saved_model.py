"""A model with its weights as the next version in a folder that a server watches.

In: a task, its model, and options that say how text becomes ids. Out, in export_dir/<version>/: the SavedModel, in
assets vocab.txt, in assets.extra bert_config.json, labels.txt, export.json and requests for the warm-up.
"""

from __future__ import annotations

import dataclasses
import functools
import json

import keras
from absl import logging

from official_bert import files
from official_bert.checkpoints import named_variables
from official_bert.config import BertConfig
from official_bert.options.export import ExportOptions
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.serving import warmup
from official_bert.serving.export import ExportedModel, export_version
from official_bert.serving.signatures import masked_signature, tensor_signatures
from official_bert.tasks import registry
from official_bert.tasks.base import Task
from official_bert.tasks.pretrained import PretrainedTask
from official_bert.training.reporting import package_versions


def export_model(
    options: ExportOptions | FineTuningOptions,
    task_name: str,
    task: Task | PretrainedTask,
    model: keras.Model,
    config: BertConfig,
) -> str:
    """Exports a model that has its weights.

    Args:
        options: with the export's folder, the vocabulary and how text is tokenized.
        task_name: as in ExportOptions.
        task: what the model does.
        model: of `task.build_model`.
        config: of the encoder.

    Returns:
        The version's folder.
    """
    signatures = tensor_signatures(functools.partial(task.serving_outputs, model), config, task.num_choices)
    requests = warmup.tensor_requests(options.max_seq_length, task.num_choices)
    if isinstance(task, PretrainedTask) and task.has_masked_lm:
        signatures["serving_masked"] = masked_signature(functools.partial(task.masked_words, model), config)
        requests.append(warmup.masked_request(options.max_seq_length))
    extra_files = {
        "assets/vocab.txt": _content(options.vocab_file),
        "assets.extra/bert_config.json": config.to_json_string().encode(),
        "assets.extra/export.json": _record(options, task_name),
        warmup.FILE: warmup.warmup_records(requests),
    }
    weights = {name: variable.value for name, variable in named_variables(model).items()}
    if task.labels:
        extra_files["assets.extra/labels.txt"] = "".join(f"{label}\n" for label in task.labels).encode()
    version = export_version(options.export_dir, ExportedModel(signatures, weights), signatures, extra_files)
    logging.info("Exported %s with the signatures %s", version, ", ".join(signatures))
    return version


def _record(options: ExportOptions | FineTuningOptions, task_name: str) -> bytes:
    """What reads text for this model must know, and the run must be repeated with."""
    record = {
        "task_name": task_name if registry.is_outside(task_name) else task_name.lower(),
        "flags": dataclasses.asdict(options),
        "versions": package_versions(),
    }
    return json.dumps(record, indent=2).encode()


def _content(path: str) -> bytes:
    with files.open_file(path, "rb") as file:
        return file.read()
