"""Gives the vocabulary of a model new words: the runner of official-bert grow_vocab.

In: the folder of a model, and words, one a line. Out: a new folder with the model in the format of
the source. A text without the new words has the ids and the outputs that it had.
"""

import dataclasses
import json
import os
import re
import shutil

import numpy as np
from absl import logging

from official_bert import model_dir, model_hub
from official_bert.checkpoints import huggingface, names, tf1
from official_bert.checkpoints.layout import find_layout
from official_bert.checkpoints.loading import TF1_NAME, Checkpoint
from official_bert.commands.convert_checkpoint import check_weights
from official_bert.config import BertConfig
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import CONFIG_NAME, HUGGINGFACE_CONFIG_NAME, VOCAB_NAME
from official_bert.model_source import check_stored_config, resolve
from official_bert.options.serving import GrowthOptions
from official_bert.tokenization import FullTokenizer, vocabulary_lines

_is_unused = re.compile(r"\s*\[unused\d+\]\s*").fullmatch


def run(options: GrowthOptions) -> None:
    """Writes a model with a larger vocabulary.

    Args:
        options: the flags of the command.

    Raises:
        InputError: the model or a file cannot be used, or no word is new.
    """
    # Read the model and the words.
    output_dir = options.output_dir
    model = model_hub.local_path(options.model)
    writing.check_new_folder(output_dir)
    layout = find_layout(model)
    source = resolve(dataclasses.replace(options, model=layout.encoder))
    checkpoint = source.checkpoint
    config = source.config
    check_weights(checkpoint, config)
    check_stored_config(checkpoint.path, config)
    lines = vocabulary_lines(source.vocab_file)
    new_words = _read_new_words(options.words, source.tokenizer)
    row_pieces = _place_words(new_words, lines)
    config_fields = reading.read_json(source.options.bert_config_file)
    config_fields["vocab_size"] = max(config.vocab_size, len(lines))
    grown_weights = _grow_weights(
        checkpoint,
        config,
        config_fields["vocab_size"],
        row_pieces,
    )

    # Write the new folder.
    with writing.replacing_folder(output_dir) as folder:
        is_huggingface_config = "model_type" in config_fields
        config_name = HUGGINGFACE_CONFIG_NAME if is_huggingface_config else CONFIG_NAME
        model_dir.write_text(folder, config_name, json.dumps(config_fields, indent=2) + "\n")
        model_dir.write_text(folder, VOCAB_NAME, model_dir.join_lines(lines).decode())
        _write_weights(folder, checkpoint, grown_weights)
        settings = source.folder.tokenizer_config() or source.tokenizer_config
        # The config.json of a Hugging Face folder names the task and the labels, so that other
        # files need not.
        record = source.task if source.folder.task_file else None
        labels = source.labels if source.folder.labels_file else None
        model_dir.write_companion_files(folder, None, settings, record, labels)
        # The new folder contains the encoder and the files of another library.
        if layout.encoder != model:
            layout.write(folder, config.hidden_size)
        source_folder = source.folder.path
        for name in find_layout(source_folder).files:
            _copy(
                os.path.join(source_folder, name),
                os.path.join(folder, name),
            )
        source_names = {*files.list_folder(source_folder)}
        uncopied_names = source_names.difference(files.list_folder(folder))
    uncopied_names = sorted(
        name
        for name in uncopied_names
        if ".ckpt" not in name and not huggingface.is_weights_file(name)
    )
    description = ", ".join(uncopied_names) or "nothing"
    logging.info("Wrote %s; not copied there: %s", output_dir, description)


def _grow_weights(
    checkpoint: Checkpoint,
    config: BertConfig,
    vocab_size: int,
    row_pieces: dict[int, list[int]],
) -> dict[str, np.ndarray]:
    """Returns the word embeddings, and the bias of the words as outputs, with the new words.

    Args:
        checkpoint: the checkpoint of the model.
        config: its configuration.
        vocab_size: the new number of rows.
        row_pieces: row of a new word -> the rows of its pieces, of which it gets the mean.

    Returns:
        The arrays by TF1 name.
    """
    grown_weights = {}
    for name in names.COPIES:
        if name not in checkpoint.shapes:
            continue
        tf1.check_type(checkpoint, name)
        values = tf1.read_weight(checkpoint, name)
        if len(values) != config.vocab_size:
            raise InputError(
                f"{checkpoint.path}: {name} has not {config.vocab_size} rows; restore the model's "
                "files"
            )
        num_new_rows = vocab_size - len(values)
        new_rows = np.zeros((num_new_rows, *values.shape[1:]), np.float32)
        grown_values = np.concatenate([values, new_rows])
        for row, pieces in row_pieces.items():
            grown_values[row] = values[pieces].mean(axis=0)
        grown_weights[name] = grown_values
    return grown_weights


def _write_weights(
    folder: str,
    checkpoint: Checkpoint,
    grown_weights: dict[str, np.ndarray],
):
    """Writes the weights of the model in the format of its checkpoint."""
    if isinstance(checkpoint, huggingface.HuggingFaceCheckpoint):
        path = os.path.join(folder, huggingface.WEIGHTS_FILE)
        huggingface.write_tensors(path, checkpoint.replace_weights(grown_weights))
        return
    tensors = {
        name: checkpoint.read(name)
        for name in checkpoint.shapes
        if not names.is_training_state(name)
    }
    num_left_out = len(checkpoint.shapes) - len(tensors)
    logging.info("the step and the optimizer's slots are left out: %d tensors", num_left_out)
    for name, value in grown_weights.items():
        tensors[name] = value.astype(tensors[name].dtype)
    tf1.write(os.path.join(folder, TF1_NAME), tensors)


def _copy(source: str, target: str):
    """Copies a file, or a folder with the files in it."""
    if files.is_folder(source):
        files.make_folder(target)
        for entry_name in files.list_folder(source):
            name = entry_name.rstrip("/")
            _copy(
                os.path.join(source, name),
                os.path.join(target, name),
            )
        return
    with (
        files.open_file(source, "rb") as content,
        writing.replacing(target, "wb") as copy,
    ):
        shutil.copyfileobj(content, copy)


def _read_new_words(path: str, tokenizer: FullTokenizer) -> dict[str, list[int]]:
    """Returns the words that the vocabulary lacks, in the tokenizer's case: word -> ids of its
    pieces.
    """
    new_words: dict[str, list[int]] = {}
    num_in_vocabulary = 0
    wordpiece = tokenizer.wordpiece_tokenizer
    lines = reading.read_lines(path)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        words = tokenizer.basic_tokenizer.tokenize(line)
        if len(words) != 1 or len(words[0]) > wordpiece.max_input_chars_per_word:
            fault = f"{len(words)} words"
            if len(words) == 1:
                fault = "a word that is too long"
            raise InputError(
                f"{path}: line {number}: {line[:40]!r} is {fault} for the tokenizer; write one on "
                "each line"
            )
        word = words[0]
        if word in tokenizer.vocab:
            num_in_vocabulary += 1
        else:
            pieces = wordpiece.split_word(word)
            new_words[word] = tokenizer.convert_tokens_to_ids(pieces)
    logging.info(
        "%s: %d new words; left out, since they are pieces already: %d",
        path,
        len(new_words),
        num_in_vocabulary,
    )
    if not new_words:
        raise InputError(
            f"{path}: has no word that the vocabulary lacks; add one, or use the model as it is"
        )
    return new_words


def _place_words(
    words: dict[str, list[int]],
    lines: list[str],
) -> dict[int, list[int]]:
    """Writes words over `[unusedN]` lines, then behind the last line.

    Args:
        words: word -> ids of its pieces.
        lines: the lines of the vocabulary, which are changed.

    Returns:
        Id of a new word -> ids of its pieces.
    """
    unused_ids = [number for number, line in enumerate(lines) if _is_unused(line)]
    new_ids = unused_ids[: len(words)]
    num_replaced = len(new_ids)
    num_added = len(words) - num_replaced
    logging.info("%d words replace [unusedN], %d get new lines", num_replaced, num_added)
    new_ids += range(len(lines), len(lines) + num_added)
    lines += [""] * num_added
    row_pieces = {}
    for new_id, (word, pieces) in zip(new_ids, words.items(), strict=True):
        lines[new_id] = word
        row_pieces[new_id] = pieces
    return row_pieces
