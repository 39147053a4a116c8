"""Reads the configuration and the tokenizer of a model from the files that the flags name."""

from typing import Protocol

from official_bert.config import BertConfig, read_config
from official_bert.data.text.model_inputs import check_vocabulary
from official_bert.tokenization import FullTokenizer


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
