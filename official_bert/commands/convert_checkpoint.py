"""Converts a checkpoint between its formats without building a model: the runner of
official-bert convert_checkpoint.

In: a checkpoint of any format with its config and vocabulary. Out: the folder of a model in the
other format, with bit-identical weights.
"""

import dataclasses
import os
from typing import Any

from absl import logging

from official_bert import catalog, model_dir, model_hub
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


def run(options: ConversionOptions) -> None:
    """Converts one checkpoint.

    Args:
        options: the flags of the command.

    Raises:
        InputError: the checkpoint, a flag or a file cannot be used.
    """
    # Find the input.
    options = dataclasses.replace(options, model=model_hub.local_path(options.model))
    layout = find_layout(options.model)
    checkpoint = open_checkpoint(layout.encoder)
    source = ModelFolder(checkpoint.path)
    config_file = options.bert_config_file or source.config_file
    if config_file is None:
        raise InputError(
            f"{source.checkpoint}: neither {CONFIG_NAME} nor {huggingface.CONFIG_FILE} is next to "
            "it; name the model's config with --bert_config_file"
        )

    # Check that the files belong together.
    _check_outputs(options, checkpoint, config_file)
    config = BertConfig.from_json_file(config_file)
    config.validate(config_file)
    check_weights(checkpoint, config)
    check_stored_config(checkpoint.path, config)
    if options.vocab_file:
        check_same_pieces(options.vocab_file, source)

    # Choose the output.
    is_huggingface = options.output_format == "huggingface"
    vocab_file = _find_vocab_file(options, source, config)
    separate_weights = layout.separate_weights if is_huggingface else ()
    weight_names = _choose_names(options, checkpoint, separate_weights)
    linear_class = _choose_linear_class(options, source, weight_names)
    labels = source.output_names()
    record = source.task() if is_huggingface else layout.original_record(source)
    tokenizer_config = _choose_tokenizer_config(options, source, vocab_file, config)
    for name in filter(names.to_huggingface, weight_names):
        tf1.check_type(checkpoint, name)
    tensors = {name: checkpoint.read(name) for name in weight_names}
    if not is_huggingface:
        tensors |= layout.original_weights(record)

    # Write the folder.
    with writing.replacing_folder(options.output_dir) as folder:
        if is_huggingface:
            further_fields = _list_further_fields(source, linear_class) | layout.config_fields
            huggingface.write(folder, tensors, config, linear_class, labels, further_fields)
            # The new config.json names the class and the labels, so that other files need not.
            record = record if source.task_file else None
            labels = labels if source.labels_file else None
        else:
            loading.write(folder, tensors, config)
        model_dir.write_companion_files(folder, vocab_file, tokenizer_config, record, labels)
        if is_huggingface:
            layout.write(folder, config.hidden_size)
    logging.info("Wrote %d tensors of %s to %s", len(tensors), checkpoint.path, options.output_dir)


def _check_outputs(options: ConversionOptions, checkpoint: Checkpoint, config_file: str):
    """Refuses an output folder in which the files of the input would be replaced."""
    output_names = (CONFIG_NAME, f"{TF1_NAME}.index")
    if options.output_format == "huggingface":
        output_names = (huggingface.CONFIG_FILE, huggingface.WEIGHTS_FILE)
    weight_files = files.matching("*.safetensors", checkpoint.path)
    writing.keep_apart(
        [os.path.join(options.output_dir, name) for name in output_names],
        {
            "model": [checkpoint.path, f"{checkpoint.path}.index", *weight_files],
            "bert_config_file": [config_file],
        },
    )


def _choose_tokenizer_config(
    options: ConversionOptions, source: ModelFolder, vocab_file: str | None, config: BertConfig
) -> TokenizerConfig | None:
    """Returns the settings of the tokenizer: of the flag, the folder of the checkpoint, or else the
    defaults. A model without a vocabulary has none.
    """
    if vocab_file is None:
        return None
    stored_settings = source.tokenizer_config()
    settings = stored_settings or TokenizerConfig()
    typed_casing = options.do_lower_case
    casing = settings.do_lower_case if typed_casing is None else typed_casing
    if stored_settings is None:
        warn_about_casing(load_vocab(vocab_file), casing, vocab_file)
    elif casing != settings.do_lower_case and settings.do_lower_case is not None:
        settings_file = find_tokenizer_settings_file(source.path)
        raise InputError(
            f"{format_flag('do_lower_case', typed_casing)}: {settings_file} says "
            f"{settings.do_lower_case}, with which the model was trained; leave the flag out, or "
            "correct the file"
        )
    return dataclasses.replace(
        settings,
        do_lower_case=casing,
        model_max_length=config.max_position_embeddings,
    )


def check_weights(checkpoint: Checkpoint, config: BertConfig) -> None:
    """Checks that a configuration belongs to a checkpoint, by its tables and its number of layers.

    Args:
        checkpoint: the checkpoint.
        config: the configuration.

    Raises:
        InputError: a table is missing, or a size differs.
    """
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
        stored_shape = list(checkpoint.shapes[name])
        expected_shape = [rows, config.hidden_size]
        if stored_shape != expected_shape:
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored_shape}, and {expected_shape} by the "
                "config; give the config of this checkpoint with --bert_config_file"
            )
    num_layers = names.num_layers(checkpoint.shapes)
    if num_layers != config.num_hidden_layers:
        raise InputError(
            f"{checkpoint.path}: has {num_layers} layers, and {config.num_hidden_layers} by the "
            "config; give the config of this checkpoint with --bert_config_file"
        )


def _find_vocab_file(
    options: ConversionOptions, source: ModelFolder, config: BertConfig
) -> str | None:
    """Returns the path of the vocabulary; None for a model without one, with a warning."""
    path = options.vocab_file or source.vocab_file
    # A file of an earlier conversion must not stay if the new folder has none of this name.
    contents: dict[str, Any] = {
        VOCAB_NAME: path,
        LABELS_NAME: source.labels_file,
        TASK_NAME: source.task_file,
    }
    if options.output_format != "huggingface":
        contents |= {LABELS_NAME: source.output_names(), TASK_NAME: source.task()}
    for name, content in contents.items():
        old_file = os.path.join(options.output_dir, name)
        if content is None and files.exists(old_file):
            hint = "name its own with --vocab_file, or" if name == VOCAB_NAME else "give"
            raise InputError(
                f"{old_file}: is of another conversion, and {source.checkpoint} has none; {hint} "
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


def _choose_names(
    options: ConversionOptions, checkpoint: Checkpoint, separate_weights: tuple[str, ...]
) -> list[str]:
    """Returns the TF1 names of the tensors to write.

    The log names the weights that the other format cannot store, except `separate_weights`, which
    have a file of their own.
    """
    weights = [
        name
        for name in checkpoint.shapes
        if not names.is_training_state(name) and name not in separate_weights
    ]
    is_huggingface_source = isinstance(checkpoint, huggingface.HuggingFaceCheckpoint)
    if options.output_format == "huggingface" or is_huggingface_source:
        unknown = [name for name in weights if names.to_huggingface(name) is None]
        if unknown:
            logging.warning(
                "Left out, since no other name is known for them: %s", ", ".join(unknown)
            )
        return [name for name in weights if name not in unknown]
    return weights if options.output_format == "tf1_weights" else list(checkpoint.shapes)


def _choose_linear_class(
    options: ConversionOptions, folder: ModelFolder, weight_names: list[str]
) -> str:
    """Returns the class of transformers for a head of one linear layer.

    It follows from the flag, or else from the record of the training.
    """
    if options.output_format != "huggingface" or huggingface.LINEAR_HEAD not in weight_names:
        return huggingface.SEQUENCE_CLASSIFICATION
    record = folder.task()
    family = catalog.families().get(record.family) if record else None
    recorded_class = family.huggingface_class if family else ""
    if options.task_name:
        flag_class = MODEL_CLASSES[FAMILIES[options.task_name]]
        if recorded_class not in ("", flag_class):
            logging.warning(
                "--task_name=%s: %s says that the model is a %s",
                options.task_name,
                folder.task_file or folder.config_file,
                recorded_class,
            )
        return flag_class
    if recorded_class:
        return recorded_class
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


def _list_further_fields(source: ModelFolder, linear_class: str) -> dict[str, Any]:
    """Returns the fields of a classifier's config.json by which transformers reads its outputs."""
    record = source.task()
    if record is None or linear_class != huggingface.SEQUENCE_CLASSIFICATION:
        return {}
    fields = source.huggingface_fields(
        "sentence_transformers", "sbert_ce_default_activation_function"
    )
    label_type = record.settings.get("label_type")
    if label_type in PROBLEM_TYPES:
        fields["problem_type"] = PROBLEM_TYPES[label_type]
    return fields
