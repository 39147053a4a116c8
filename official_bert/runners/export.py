"""Exports of checkpoints for servers: the job of export_saved_model.py, and of --export_dir after training.

In: a checkpoint with its configuration, vocabulary and labels. Out: the next version in export_dir.
"""

from __future__ import annotations

import dataclasses
import functools
import json

import keras
from absl import logging

from official_bert import files
from official_bert.checkpoints import load_checkpoint, named_variables, open_checkpoint
from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.options.classifier import ClassifierOptions
from official_bert.options.export import ExportOptions
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.runners.fine_tuning import LABELS_FILE, read_labels, read_model_files
from official_bert.serving import warmup
from official_bert.serving.export import ExportedModel, export_version
from official_bert.serving.signatures import masked_signature, tensor_signatures
from official_bert.tasks import choices, registry
from official_bert.tasks.base import Task
from official_bert.tasks.classification import ClassificationTask
from official_bert.tasks.pretrained import PretrainedTask
from official_bert.tasks.squad_task import SquadTask
from official_bert.tasks.swag import SwagTask
from official_bert.tasks.tagging import TaggingTask
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint


def run(options: ExportOptions):
    """Exports a checkpoint.

    Raises:
        InputError: options or files that cannot be used, or a checkpoint without the weights of the task.
    """
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    config, tokenizer = read_model_files(options, options.max_seq_length)
    task = _task(options, config, tokenizer)
    model = task.build_model(config, use_one_hot_embeddings=False)
    report = load_checkpoint(model, options.init_checkpoint)
    lacking = [name for name in report.missing if not name.startswith(task.untrained or ("-",))]
    if lacking:
        raise InputError(
            f"{report.path}: lacks {', '.join(lacking)}, which --task_name={options.task_name} needs; give a "
            "checkpoint that was trained on the task"
        )
    export_model(options, options.task_name, task, model, config)


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
        extra_files[f"assets.extra/{LABELS_FILE}"] = "".join(f"{label}\n" for label in task.labels).encode()
    version = export_version(options.export_dir, ExportedModel(signatures, weights), signatures, extra_files)
    logging.info("Exported %s with the signatures %s", version, ", ".join(signatures))
    return version


def _task(options: ExportOptions, config: BertConfig, tokenizer: FullTokenizer) -> Task | PretrainedTask:
    name = options.task_name.lower()
    if name == "squad":
        return SquadTask()
    if name in choices.TASKS:
        return SwagTask()
    if name == "pretraining":
        return _pretrained(options, config, tokenizer)
    # The classifier's options know how its processors are made and where the labels lie.
    fine_tuning = ClassifierOptions(
        data_dir="",
        output_dir="",
        task_name=options.task_name,
        bert_config_file=options.bert_config_file,
        vocab_file=options.vocab_file,
        init_checkpoint=options.init_checkpoint,
        labels=options.labels,
        multi_label=options.multi_label,
        regression=options.regression,
    )
    labels = options.labels or read_labels(fine_tuning)
    if name == "ner":
        if not labels:
            raise InputError(
                f"no {LABELS_FILE} beside the checkpoint: give the --output_dir of a training run as "
                "--init_checkpoint, or --labels"
            )
        return TaggingTask(labels)
    if not options.regression:
        fine_tuning = dataclasses.replace(fine_tuning, labels=labels)
    processor = registry.make_processor(fine_tuning)
    known = processor.get_labels()
    if labels and known != labels:
        raise InputError(
            f"--task_name={options.task_name}: its labels are {', '.join(known or ['a score'])}, but those beside the "
            f"checkpoint are {', '.join(labels)}; name the task that it was trained on"
        )
    return ClassificationTask(processor, known)


def _pretrained(options: ExportOptions, config: BertConfig, tokenizer: FullTokenizer) -> PretrainedTask:
    """A task of the heads that the checkpoint has; those that it lacks are named in the log."""
    held = open_checkpoint(options.init_checkpoint).shapes
    heads = {"bert/pooler": "pooled_output", "cls/predictions": "serving_masked"}
    has = [any(name.startswith(head) for name in held) for head in heads]
    for (head, left_out), is_there in zip(heads.items(), has, strict=True):
        if not is_there:
            logging.warning("%s has no %s: %s is left out", options.init_checkpoint, head, left_out)
    tokens = [tokenizer.inv_vocab.get(number, "") for number in range(config.vocab_size)]
    return PretrainedTask(tokens, *has)


def _record(options: ExportOptions | FineTuningOptions, task_name: str) -> bytes:
    """What reads text for this model must know, and the run must be repeated with."""
    record = {"task_name": task_name.lower(), "flags": dataclasses.asdict(options)}
    return json.dumps(record, indent=2).encode()


def _content(path: str) -> bytes:
    with files.open_file(path, "rb") as file:
        return file.read()
