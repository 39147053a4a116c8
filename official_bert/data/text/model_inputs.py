"""One text or two as a model reads them: cut to length, special tokens, segments, padding.

In: texts and a tokenizer. Out: tokens with their segments, and batches of the three encoder features.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official_bert.errors import InputError
from official_bert.features import encoder_features
from official_bert.tokenization import FullTokenizer

_NEEDED_PIECES = ("[CLS]", "[SEP]", "[UNK]")


class ModelInput(NamedTuple):
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, without padding.

    Attributes:
        tokens: pieces, special tokens included.
        segment_ids: 0 up to and with the first [SEP], 1 for what follows.
    """

    tokens: list[str]
    segment_ids: list[int]


def model_input(tokenizer: FullTokenizer, text_a: str, text_b: str | None, max_seq_length: int) -> ModelInput:
    """Tokenizes a text or a pair and cuts it to `max_seq_length` tokens, special tokens included.

    A second text without a token counts as absent.
    """
    tokens_b = tokenizer.tokenize(text_b) if text_b else []
    tokens, num_first = _joined(tokenizer.tokenize(text_a), tokens_b, max_seq_length, "[CLS]", "[SEP]")
    return ModelInput(tokens, [0] * num_first + [1] * (len(tokens) - num_first))


def model_input_ids(
    tokenizer: FullTokenizer, text_a: str, text_b: str | None, max_seq_length: int
) -> tuple[list[int], int]:
    """The ids of what `model_input` gives, and how many of them are of segment 0: made without token strings."""
    ids_b = tokenizer.encode(text_b) if text_b else []
    cls, sep = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
    return _joined(tokenizer.encode(text_a), ids_b, max_seq_length, cls, sep)


def _joined(first: list, second: list, max_seq_length: int, cls, sep) -> tuple[list, int]:
    """`cls first sep second sep`, cut to length, and how much of it is of segment 0; the lists may be shortened."""
    if not second:
        single = [cls, *first[: max_seq_length - 2], sep]
        return single, len(single)
    truncate_seq_pair(first, second, max_seq_length - 3)
    return [cls, *first, sep, *second, sep], len(first) + 2


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int):
    """Shortens two token lists in place to `max_length` in all: the last token of the longer one goes, b's on a tie.

    Fine-tuning and feature extraction cut this way; the pairs of pre-training lose tokens at random ends instead
    (`sentence_pairs.truncated`).
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()


def padded_features(
    inputs: Sequence[ModelInput], tokenizer: FullTokenizer, max_seq_length: int
) -> dict[str, np.ndarray]:
    """A batch of `input_ids`, `input_mask` and `segment_ids`, each int32[batch, max_seq_length], padded with 0."""
    table = encoder_features(max_seq_length)
    batch = {feature.name: np.zeros((len(inputs), feature.length), feature.dtype) for feature in table}
    for row, (tokens, segment_ids) in enumerate(inputs):
        batch["input_ids"][row, : len(tokens)] = tokenizer.convert_tokens_to_ids(tokens)
        batch["input_mask"][row, : len(tokens)] = 1
        batch["segment_ids"][row, : len(tokens)] = segment_ids
    return batch


def check_vocabulary(tokenizer: FullTokenizer, vocab_size: int, vocab_file: str):
    """Refuses a vocabulary from which no input of the model can be made.

    Args:
        tokenizer: with the vocabulary.
        vocab_size: rows of the model's embedding table.
        vocab_file: what the error names.

    Raises:
        InputError: a missing special token, or an id that the table does not have.
    """
    missing = [piece for piece in _NEEDED_PIECES if piece not in tokenizer.vocab]
    if missing:
        raise InputError(f"{vocab_file}: lacks {', '.join(missing)}; add a line for each of them")
    num_ids = 1 + max(tokenizer.vocab.values())
    if num_ids > vocab_size:
        raise InputError(
            f"{vocab_file}: has {num_ids} lines, but the model was made for vocab_size {vocab_size}; use the "
            "vocabulary and the configuration that belong together"
        )
