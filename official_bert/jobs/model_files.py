"""Reads the configuration and the tokenizer of a model from the files that the flags name.

It also compares the configuration with the one that lies beside a checkpoint: the number of heads and the activation
show in no shape of a weight, and another one gives other numbers without an error.
"""

import os
from typing import Protocol

from official_bert import files, reading
from official_bert.checkpoints.folder import BEST_FOLDER
from official_bert.config import BertConfig, read_config
from official_bert.data.text.model_inputs import check_vocabulary
from official_bert.errors import InputError
from official_bert.tokenization import FullTokenizer

CONFIG_NAMES = ("bert_config.json", "config.json")
_NO_SHAPE = ("num_attention_heads", "hidden_act")
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


class ModelFlags(Protocol):
    """The flags that name a model's files; the options of every script that loads a model have them."""

    bert_config_file: str
    vocab_file: str
    do_lower_case: bool
    strip_accents: bool | None
    max_seq_length: int


def read_model_files(options: ModelFlags) -> tuple[BertConfig, FullTokenizer]:
    """Reads the configuration and the tokenizer and checks them against each other and against --max_seq_length.

    Raises:
        InputError: a file cannot be used, or --max_seq_length exceeds the model's positions.
    """
    config = read_config(options.bert_config_file, options.max_seq_length)
    tokenizer = FullTokenizer(options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents)
    check_vocabulary(tokenizer, config.vocab_size, options.vocab_file)
    return config, tokenizer


def check_config_beside(checkpoint: str, config: BertConfig, in_training: bool = False):
    """Compares a configuration with the one that lies beside a checkpoint.

    Args:
        checkpoint: the prefix of the checkpoint, or its folder or file in Hugging Face's format.
        config: the configuration of the model.
        in_training: whether the dropouts count, too.

    Raises:
        InputError: a value differs that changes the model's numbers and that the shapes of the weights do not show.
    """
    if difference := difference_beside(checkpoint, config, in_training):
        raise InputError(
            f"{difference}; give the config of this checkpoint with --bert_config_file, or correct the one beside it"
        )


def difference_beside(checkpoint: str, config: BertConfig, in_training: bool = False) -> str | None:
    """Describes the first difference that `check_config_beside` refuses; None if there is none or no other config."""
    path = _config_beside(checkpoint)
    if path is None:
        return None
    stored = BertConfig.from_json_file(path)
    for name in _NO_SHAPE + (_DROPOUTS if in_training else ()):
        ours, theirs = getattr(config, name), getattr(stored, name)
        if _comparable(ours) != _comparable(theirs):
            return f"{path}: its {name} is {theirs}, and {ours} by --bert_config_file"
    return None


def _config_beside(checkpoint: str) -> str | None:
    """Returns the path of the config beside a checkpoint; that of a best checkpoint lies one folder higher."""
    folder = checkpoint if files.is_folder(checkpoint) else os.path.dirname(checkpoint)
    folders = [folder, os.path.dirname(folder)] if os.path.basename(folder) == BEST_FOLDER else [folder]
    for path in (os.path.join(each, name) for each in folders for name in CONFIG_NAMES):
        if files.exists(path):
            content = reading.read_json(path)
            # A config.json of another program says nothing about the model.
            if isinstance(content, dict) and "num_attention_heads" in content:
                return path
    return None


def _comparable(value):
    """Returns one value for each way to say no dropout, no activation, or the same activation."""
    if isinstance(value, str):
        value = value.lower()
    return None if value in (0, "", "linear") else value
