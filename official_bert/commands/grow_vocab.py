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
from official_bert.checkpoints.loading import TF1_NAME
from official_bert.commands.convert_checkpoint import check_weights
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import CONFIG_NAME, HUGGINGFACE_CONFIG_NAME, VOCAB_NAME
from official_bert.model_source import check_stored_config, resolve
from official_bert.options.serving import GrowthOptions
from official_bert.tokenization import FullTokenizer, vocabulary_lines

_is_unused = re.compile(r"\s*\[unused\d+\]\s*").fullmatch


def run(options: GrowthOptions):
    out, model = options.output_dir, model_hub.local_path(options.model)
    writing.check_new_folder(out)
    layout = find_layout(model)
    source = resolve(dataclasses.replace(options, model=layout.encoder))
    checkpoint, config, tokenizer = source.checkpoint, source.config, source.tokenizer
    check_weights(checkpoint, config)
    check_stored_config(checkpoint.path, config)
    lines = vocabulary_lines(source.options.vocab_file)
    rows = _placed(_new_words(options.words, tokenizer), lines)
    fields = reading.read_json(source.options.bert_config_file)
    fields["vocab_size"] = max(config.vocab_size, len(lines))
    changed = {}
    # The table, and the bias of the words as outputs.
    for name in filter(checkpoint.shapes.__contains__, names.COPIES):
        tf1.check_type(checkpoint, name)
        values = tf1.read_weight(checkpoint, name)
        if len(values) != config.vocab_size:
            raise InputError(
                f"{checkpoint.path}: {name} has not {config.vocab_size} rows; restore the model's "
                "files"
            )
        added = np.zeros((fields["vocab_size"] - len(values), *values.shape[1:]), np.float32)
        changed[name] = np.concatenate([values, added])
        for row, pieces in rows.items():
            changed[name][row] = values[pieces].mean(axis=0)
    with writing.replacing_folder(out) as folder:
        config_name = HUGGINGFACE_CONFIG_NAME if "model_type" in fields else CONFIG_NAME
        for name, text in (
            (config_name, json.dumps(fields, indent=2)),
            (VOCAB_NAME, "\n".join(lines)),
        ):
            with writing.replacing(os.path.join(folder, name)) as file:
                file.write(f"{text}\n")
        if isinstance(checkpoint, huggingface.HuggingFaceCheckpoint):
            huggingface.write_tensors(
                os.path.join(folder, huggingface.WEIGHTS_FILE), checkpoint.stored(changed)
            )
        else:
            tensors = {
                name: checkpoint.read(name)
                for name in checkpoint.shapes
                if not names.is_training_state(name)
            }
            logging.info(
                "the step and the optimizer's slots are left out: %d tensors",
                len(checkpoint.shapes) - len(tensors),
            )
            changed = {name: value.astype(tensors[name].dtype) for name, value in changed.items()}
            tf1.write(os.path.join(folder, TF1_NAME), tensors | changed)
        settings = source.dir.tokenizer_config() or source.tokenizer_config
        # config.json, which is kept, names the task and the labels of a folder of Hugging Face.
        record = source.task if source.dir.task_file else None
        labels = source.labels if source.dir.labels_file else None
        model_dir.write_companion_files(folder, None, settings, record, labels)
        if layout.encoder != model:  # the new folder has the encoder and the other files in one
            layout.write(folder, config.hidden_size)
        for name in find_layout(source.dir.path).files:
            _copy(os.path.join(source.dir.path, name), os.path.join(folder, name))
        uncopied_names = {*files.list_folder(source.dir.path)}.difference(files.list_folder(folder))
    uncopied_names = sorted(
        name
        for name in uncopied_names
        if ".ckpt" not in name and not huggingface.is_weights_file(name)
    )
    logging.info("Wrote %s; not copied there: %s", out, ", ".join(uncopied_names) or "nothing")


def _copy(source: str, target: str):
    """Copies a file, or a folder with the files in it."""
    if files.is_folder(source):
        files.make_folder(target)
        for name in files.list_folder(source):
            _copy(os.path.join(source, name.rstrip("/")), os.path.join(target, name.rstrip("/")))
        return
    with files.open_file(source, "rb") as content, writing.replacing(target, "wb") as copy:
        shutil.copyfileobj(content, copy)


def _new_words(path: str, tokenizer: FullTokenizer) -> dict[str, list[int]]:
    """Returns the words that the vocabulary lacks, as the tokenizer reads them, with the ids of
    their pieces.
    """
    new_words, num_in_vocabulary = {}, 0
    wordpiece = tokenizer.wordpiece_tokenizer
    for number, line in enumerate(reading.read_lines(path), 1):
        words = tokenizer.basic_tokenizer.tokenize(line)
        if not line.strip():
            continue
        if len(words) != 1 or len(words[0]) > wordpiece.max_input_chars_per_word:
            fault = "a word that is too long" if len(words) == 1 else f"{len(words)} words"
            raise InputError(
                f"{path}: line {number}: {line[:40]!r} is {fault} for the tokenizer; write one on "
                "each line"
            )
        if words[0] in tokenizer.vocab:
            num_in_vocabulary += 1
        else:
            new_words[words[0]] = tokenizer.convert_tokens_to_ids(wordpiece.split_word(words[0]))
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


def _placed(words: dict[str, list[int]], lines: list[str]) -> dict[int, list[int]]:
    """Writes words over `[unusedN]` lines, then behind the last line; returns the ids of their
    pieces by their ids.
    """
    free = [number for number, line in enumerate(lines) if _is_unused(line)][: len(words)]
    num_new = len(words) - len(free)
    logging.info("%d words replace [unusedN], %d get new lines", len(free), num_new)
    lines += [""] * num_new
    free += range(len(lines) - num_new, len(lines))
    for number, word in zip(free, words, strict=True):
        lines[number] = word
    return dict(zip(free, words.values(), strict=True))
