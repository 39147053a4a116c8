"""Converts a checkpoint between its formats without building a model: the runner of
official-bert convert_checkpoint.

In: a checkpoint of any format with its config and vocabulary. Out: the folder of a model in the
other format, with bit-identical weights.
"""

import dataclasses
import os
from typing import Any

from absl import logging

from official_bert import model_dir, model_hub
from official_bert.checkpoints import (
    huggingface,
    loading,
    names,
    open_checkpoint,
    tf1,
)
from official_bert.checkpoints.layout import find_layout
from official_bert.checkpoints.loading import TF1_NAME, Checkpoint
from official_bert.config import BertConfig
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import (
    CONFIG_NAME,
    LABELS_NAME,
    PROBLEM_TYPES,
    TASK_NAME,
    VOCAB_NAME,
    ModelFolder,
)
from official_bert.model_source import (
    check_same_pieces,
    check_stored_config,
    find_tokenizer_settings_file,
)
from official_bert.options.fields import format_flag
from official_bert.options.serving import FAMILIES, MODEL_CLASSES, ConversionOptions
from official_bert.tokenization import load_vocab, vocabulary_lines
from official_bert.tokenizer_config import TokenizerConfig, warn_about_casing


def run(options: ConversionOptions):
    """Converts one checkpoint."""
    options = dataclasses.replace(options, model=model_hub.local_path(options.model))
    layout = find_layout(options.model)
    checkpoint = open_checkpoint(layout.encoder)
    source = ModelFolder(checkpoint.path)
    config_file = options.bert_config_file or source.config_file
    if config_file is None:
        raise InputError(
            f"{source.checkpoint}: neither {CONFIG_NAME} nor {huggingface.CONFIG_FILE} lies beside "
            "it; name the model's config with --bert_config_file"
        )
    _check_outputs(options, checkpoint, config_file)
    config = BertConfig.from_json_file(config_file)
    config.validate(config_file)
    check_weights(checkpoint, config)
    check_stored_config(checkpoint.path, config)
    if options.vocab_file:
        check_same_pieces(options.vocab_file, source)
    vocab_file = _vocab_file(options, source, config)
    writes_layout = options.output_format == "huggingface"
    chosen = _chosen_names(options, checkpoint, layout.separate_weights if writes_layout else ())
    linear_class = _linear_class(options, source, chosen)
    labels, record = source.output_names(), source.task()
    tokenizer_config = _tokenizer_config(options, source, vocab_file, config)
    if options.output_format != "huggingface":
        source.check_activation()
        record = record or layout.original_record(source)
    for name in filter(names.to_huggingface, chosen):
        tf1.check_type(checkpoint, name)

    tensors = {name: checkpoint.read(name) for name in chosen}
    if not writes_layout:
        tensors |= layout.original_weights(record)
    with writing.replacing_folder(options.output_dir) as folder:
        if options.output_format == "huggingface":
            huggingface.write(
                folder, tensors, config, linear_class, labels, _further_fields(source, linear_class)
            )
        else:
            loading.write(folder, tensors, config)
        # Whose config.json names the class and the labels.
        if options.output_format == "huggingface":
            record = record if source.task_file else None
            labels = labels if source.labels_file else None
        model_dir.write_companion_files(folder, vocab_file, tokenizer_config, record, labels)
        if writes_layout:
            layout.write(folder, config.hidden_size)
    logging.info("Wrote %d tensors of %s to %s", len(tensors), checkpoint.path, options.output_dir)


def _check_outputs(options: ConversionOptions, checkpoint: Checkpoint, config_file: str):
    """Refuses an output folder in which the files of the input would be replaced."""
    if options.output_format == "huggingface":
        output_names = (huggingface.CONFIG_FILE, huggingface.WEIGHTS_FILE)
    else:
        output_names = (CONFIG_NAME, f"{TF1_NAME}.index")
    weights = files.matching("*.safetensors", checkpoint.path)
    writing.keep_apart(
        [os.path.join(options.output_dir, name) for name in output_names],
        {
            "model": [checkpoint.path, f"{checkpoint.path}.index", *weights],
            "bert_config_file": [config_file],
        },
    )


def _tokenizer_config(
    options: ConversionOptions, source: ModelFolder, vocab_file: str | None, config: BertConfig
) -> TokenizerConfig | None:
    """Returns how text is tokenized: by the flag, by the folder of the checkpoint, or else as by
    default.
    """
    if vocab_file is None:
        return None
    settings = source.tokenizer_config()
    typed_casing = options.do_lower_case
    if settings and typed_casing is not None and settings.do_lower_case not in (None, typed_casing):
        raise InputError(
            f"{format_flag('do_lower_case', typed_casing)}: "
            f"{find_tokenizer_settings_file(source.path)} says "
            f"{settings.do_lower_case}, with which the model was trained; leave the flag out, or "
            "correct the file"
        )
    if settings is None:
        settings = TokenizerConfig()
        warn_about_casing(
            load_vocab(vocab_file),
            settings.do_lower_case if typed_casing is None else typed_casing,
            vocab_file,
        )
    return dataclasses.replace(
        settings,
        do_lower_case=settings.do_lower_case if typed_casing is None else typed_casing,
        model_max_length=config.max_position_embeddings,
    )


def check_weights(checkpoint: Checkpoint, config: BertConfig):
    """Checks that the config belongs to this checkpoint: its tables and its number of layers."""
    tables = {
        "word_embeddings": config.vocab_size,
        "token_type_embeddings": config.type_vocab_size,
        "position_embeddings": config.max_position_embeddings,
    }
    for table, rows in tables.items():
        name = f"bert/embeddings/{table}"
        if name not in checkpoint.shapes:
            raise InputError(
                f"{checkpoint.path}: has no {name}, so it is no checkpoint of a BERT model"
            )
        stored, expected = list(checkpoint.shapes[name]), [rows, config.hidden_size]
        if stored != expected:
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored}, and {expected} by the config; give "
                "the config of this checkpoint with --bert_config_file"
            )
    layers = names.num_layers(checkpoint.shapes)
    if layers != config.num_hidden_layers:
        raise InputError(
            f"{checkpoint.path}: has {layers} layers, and {config.num_hidden_layers} by the "
            "config; give the config of this checkpoint with --bert_config_file"
        )


def _vocab_file(options: ConversionOptions, source: ModelFolder, config: BertConfig) -> str | None:
    path = options.vocab_file or source.vocab_file
    contents = {VOCAB_NAME: path, LABELS_NAME: source.labels_file, TASK_NAME: source.task_file}
    if options.output_format != "huggingface":
        contents |= {LABELS_NAME: source.output_names(), TASK_NAME: source.task()}
    for name, content in contents.items():
        there = os.path.join(options.output_dir, name)
        if content is None and files.exists(there):
            remedy = "name its own with --vocab_file, or" if name == VOCAB_NAME else "give"
            raise InputError(
                f"{there}: is of another conversion, and {source.checkpoint} has none; {remedy} "
                "another --output_dir"
            )
    if path is None:
        logging.warning(
            "No %s beside %s: none is written; --vocab_file names one",
            VOCAB_NAME,
            source.checkpoint,
        )
        return None
    pieces = len(vocabulary_lines(path))
    if pieces > config.vocab_size:
        raise InputError(
            f"{path}: has {pieces} lines, more than the model's vocab_size ({config.vocab_size}); "
            "give the vocabulary of this checkpoint with --vocab_file"
        )
    return path


def _chosen_names(
    options: ConversionOptions, checkpoint: Checkpoint, elsewhere: tuple[str, ...]
) -> list[str]:
    """Returns the TF1 names of the tensors to write; the log names those that it cannot hold,
    but for `elsewhere`.
    """
    converted = options.output_format == "huggingface" or isinstance(
        checkpoint, huggingface.HuggingFaceCheckpoint
    )
    weights = [
        name
        for name in checkpoint.shapes
        if not names.is_training_state(name) and name not in elsewhere
    ]
    if converted:
        unknown = [name for name in weights if names.to_huggingface(name) is None]
        if unknown:
            logging.warning(
                "Left out, since no other name is known for them: %s", ", ".join(unknown)
            )
        return [name for name in weights if name not in unknown]
    return weights if options.output_format == "tf1_weights" else list(checkpoint.shapes)


def _linear_class(options: ConversionOptions, folder: ModelFolder, chosen: list[str]) -> str:
    """Returns the class of transformers for a head of one linear layer, by the flag or the
    record of the training.
    """
    if options.output_format != "huggingface" or huggingface.LINEAR_HEAD not in chosen:
        return huggingface.SEQUENCE_CLASSIFICATION
    record = folder.task()
    recorded = MODEL_CLASSES.get(record.family) if record else None
    if options.task_name:
        flag_class = MODEL_CLASSES[FAMILIES[options.task_name]]
        if recorded not in (None, flag_class):
            logging.warning(
                "--task_name=%s: %s says that the model is a %s",
                options.task_name,
                folder.task_file or folder.config_file,
                recorded,
            )
        return flag_class
    if recorded:
        return recorded
    flag = f"--task_name={'|'.join(FAMILIES)}"
    if record:
        raise InputError(
            f"{folder.path}: was trained on the task {record.task_name}, whose kind is not known; "
            f"give {flag}"
        )
    logging.warning(
        "No %s in %s says what the model was trained on: it is taken for a %s; %s names another "
        "task",
        TASK_NAME,
        folder.path,
        huggingface.SEQUENCE_CLASSIFICATION,
        flag,
    )
    return huggingface.SEQUENCE_CLASSIFICATION


def _further_fields(source: ModelFolder, linear_class: str) -> dict[str, Any]:
    """Returns the fields of a classifier's config.json that decide what transformers makes of
    its outputs.
    """
    record = source.task()
    if record is None or linear_class != huggingface.SEQUENCE_CLASSIFICATION:
        return {}
    fields = source.huggingface_fields(
        "sentence_transformers", "sbert_ce_default_activation_function"
    )
    problem_type = PROBLEM_TYPES.get(record.settings.get("label_type"))
    return fields | ({"problem_type": problem_type} if problem_type else {})
