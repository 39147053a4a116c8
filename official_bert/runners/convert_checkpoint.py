"""Converts a checkpoint between its formats without building a model: the runner of convert_checkpoint.py.

In: a checkpoint of any format with its config and vocabulary. Out: a folder in the other format, with bit-identical
weights.
"""

import json
import os

from absl import logging

from official_bert import files, reading, writing
from official_bert.checkpoints import BEST_FOLDER, huggingface, names, open_checkpoint, released, soundness
from official_bert.checkpoints.loading import Checkpoint
from official_bert.checkpoints.released import CONFIG_NAME, TF1_NAME, VOCAB_NAME
from official_bert.config import BertConfig
from official_bert.errors import InputError
from official_bert.options.conversion import MODEL_CLASSES, ConversionOptions

RECORD_NAME = "runs.jsonl"
_CLASSES = {
    "run_classifier": huggingface.SEQUENCE_CLASSIFICATION,
    "run_ner": huggingface.TOKEN_CLASSIFICATION,
    "run_swag": huggingface.MULTIPLE_CHOICE,
}


def run(options: ConversionOptions):
    """Converts one checkpoint.

    Raises:
        InputError: the checkpoint, config or vocabulary is missing or does not fit the others.
    """
    checkpoint = open_checkpoint(options.input_checkpoint)
    _check_outputs(options, checkpoint)
    config = _config(options, checkpoint)
    _check_weights(checkpoint, config)
    vocab_file = _vocab_file(options, checkpoint, config)
    chosen = _chosen_names(options, checkpoint)
    linear_class = _linear_class(options, checkpoint, chosen)
    for name in filter(names.to_huggingface, chosen):
        soundness.check_type(checkpoint, name)

    tensors = {name: checkpoint.read(name) for name in chosen}
    with writing.replacing_folder(options.output_dir) as folder:
        if vocab_file:
            _copy(vocab_file, os.path.join(folder, VOCAB_NAME))
        if options.output_format == "huggingface":
            huggingface.write(folder, tensors, config, linear_class)
        else:
            released.write(folder, tensors, config)
    logging.info("Wrote %d tensors of %s to %s", len(tensors), checkpoint.path, options.output_dir)


def _check_outputs(options: ConversionOptions, checkpoint: Checkpoint):
    """Refuses an output folder in which the files of the input would be replaced."""
    if options.output_format == "huggingface":
        names_of_outputs = (huggingface.CONFIG_FILE, huggingface.WEIGHTS_FILE)
    else:
        names_of_outputs = (CONFIG_NAME, f"{TF1_NAME}.index")
    writing.keep_apart(
        [os.path.join(options.output_dir, name) for name in names_of_outputs],
        {
            "input_checkpoint": [checkpoint.path, f"{checkpoint.path}.index", *_files_in(checkpoint.path)],
            "bert_config_file": [_config_file(options, checkpoint)],
        },
    )


def _files_in(folder: str) -> list[str]:
    return files.matching(os.path.join(folder, "*.safetensors"))


def _config_file(options: ConversionOptions, checkpoint: Checkpoint) -> str:
    beside = [os.path.join(checkpoint.folder, name) for name in (CONFIG_NAME, huggingface.CONFIG_FILE)]
    path = options.bert_config_file or next(filter(files.exists, beside), None)
    if path is None:
        raise InputError(
            f"{checkpoint.path}: neither {CONFIG_NAME} nor {huggingface.CONFIG_FILE} lies beside it; "
            "name the model's config with --bert_config_file"
        )
    return path


def _config(options: ConversionOptions, checkpoint: Checkpoint) -> BertConfig:
    path = _config_file(options, checkpoint)
    config = BertConfig.from_json_file(path)
    if options.hidden_act:
        config.hidden_act = options.hidden_act
    config.validate(path)
    return config


def _check_weights(checkpoint: Checkpoint, config: BertConfig):
    """Checks that the config belongs to this checkpoint: its tables and its number of layers."""
    tables = {
        "word_embeddings": config.vocab_size,
        "token_type_embeddings": config.type_vocab_size,
        "position_embeddings": config.max_position_embeddings,
    }
    for table, rows in tables.items():
        name = f"bert/embeddings/{table}"
        if name not in checkpoint.shapes:
            raise InputError(f"{checkpoint.path}: has no {name}, so it is no checkpoint of a BERT model")
        stored, expected = list(checkpoint.shapes[name]), [rows, config.hidden_size]
        if stored != expected:
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored}, and {expected} by the config; give the config of "
                "this checkpoint with --bert_config_file"
            )
    layers = names.num_layers(checkpoint.shapes)
    if layers != config.num_hidden_layers:
        raise InputError(
            f"{checkpoint.path}: has {layers} layers, and {config.num_hidden_layers} by the config; give the "
            "config of this checkpoint with --bert_config_file"
        )


def _vocab_file(options: ConversionOptions, checkpoint: Checkpoint, config: BertConfig) -> str | None:
    path = options.vocab_file or os.path.join(checkpoint.folder, VOCAB_NAME)
    if not options.vocab_file and not files.exists(path):
        there = os.path.join(options.output_dir, VOCAB_NAME)
        if files.exists(there):
            raise InputError(
                f"{there}: is a vocabulary of another conversion, and {checkpoint.path} has none; name its own with "
                "--vocab_file, or another --output_dir"
            )
        logging.warning(
            "No %s beside %s: none is written; --vocab_file names one", VOCAB_NAME, checkpoint.path
        )
        return None
    pieces = sum(1 for _ in reading.read_lines(path))
    if pieces > config.vocab_size:
        raise InputError(
            f"{path}: has {pieces} lines, more than the model's vocab_size ({config.vocab_size}); give the "
            "vocabulary of this checkpoint with --vocab_file"
        )
    return path


def _chosen_names(options: ConversionOptions, checkpoint: Checkpoint) -> list[str]:
    """Returns the TF1 names of the tensors to write; the log names those that the new format cannot hold."""
    converted = options.output_format == "huggingface" or isinstance(
        checkpoint, huggingface.HuggingFaceCheckpoint
    )
    weights = [name for name in checkpoint.shapes if not names.is_training_state(name)]
    if converted:
        unknown = [name for name in weights if names.to_huggingface(name) is None]
        if unknown:
            logging.warning("Left out, since no other name is known for them: %s", ", ".join(unknown))
        return [name for name in weights if name not in unknown]
    return weights if options.strip_optimizer else list(checkpoint.shapes)


def _linear_class(options: ConversionOptions, checkpoint: Checkpoint, chosen: list[str]) -> str:
    """Returns the class of transformers for a head of one linear layer, by the flag or the record of the training.

    Raises:
        InputError: the checkpoint is of a task that the user wrote.
    """
    is_open = options.output_format == "huggingface" and huggingface.LINEAR_HEAD in chosen
    if not is_open:
        return options.model_class or huggingface.SEQUENCE_CLASSIFICATION
    if options.model_class:
        _warn_of_another_class(options.model_class, checkpoint)
        return options.model_class
    script, task_name = _last_training(checkpoint.folder)
    if script in _CLASSES and ":" not in task_name:
        return _CLASSES[script]
    flag = f"--model_class={'|'.join(MODEL_CLASSES)}"
    if script:
        raise InputError(
            f"{checkpoint.path}: was trained on the task {task_name}, whose kind is not known; give {flag}"
        )
    logging.warning(
        "No %s beside %s says what it was trained on: it is taken for a %s; %s names another class",
        RECORD_NAME,
        checkpoint.path,
        huggingface.SEQUENCE_CLASSIFICATION,
        flag,
    )
    return huggingface.SEQUENCE_CLASSIFICATION


def _warn_of_another_class(given: str, checkpoint: Checkpoint):
    script, task_name = _last_training(checkpoint.folder)
    if script in _CLASSES and ":" not in task_name and _CLASSES[script] != given:
        logging.warning(
            "--model_class=%s: %s was trained by %s.py, whose class is %s",
            given,
            checkpoint.path,
            script,
            _CLASSES[script],
        )


def _last_training(folder: str) -> tuple[str, str]:
    """Returns the script and --task_name of the last run whose record lies beside a checkpoint; "" without one."""
    if os.path.basename(folder) == BEST_FOLDER:
        folder = os.path.dirname(folder)
    path = os.path.join(folder, RECORD_NAME)
    if not files.exists(path):
        return "", ""
    lines = [line for line in reading.read_lines(path) if line.strip()]
    try:
        record = json.loads(lines[-1])
        return record["script"], record["flags"].get("task_name") or ""
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{path}: its last line is no record of a run; correct it, or give --model_class"
        ) from None


def _copy(source: str, target: str):
    with files.open_file(source, "rb") as file:
        content = file.read()
    with writing.replacing(target, "wb") as file:
        file.write(content)
