"""Makes model inputs from one text or two: truncation, special tokens, segments, padding.

In: texts and a tokenizer. Out: tokens with their segment ids, and batches of the three encoder features.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from official_bert.errors import InputError, warn
from official_bert.features import encoder_features
from official_bert.tokenization import FullTokenizer

_NEEDED_PIECES = ("[CLS]", "[SEP]", "[UNK]")


class ModelInput(NamedTuple):
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, without padding.

    Attributes:
        tokens: the WordPieces, special tokens included.
        segment_ids: 0 for the tokens up to and including the first [SEP], 1 for the tokens after it.
    """

    tokens: list[str]
    segment_ids: list[int]


def model_input(tokenizer: FullTokenizer, text_a: str, text_b: str | None, max_seq_length: int) -> ModelInput:
    """Tokenizes a text or a pair and truncates it to `max_seq_length` tokens, special tokens included.

    A second text without tokens counts as absent.
    """
    tokens_b = tokenizer.tokenize(text_b) if text_b else []
    tokens, num_first = _joined(tokenizer.tokenize(text_a), tokens_b, max_seq_length, "[CLS]", "[SEP]")
    return ModelInput(tokens, [0] * num_first + [1] * (len(tokens) - num_first))


def model_input_ids(
    tokenizer: FullTokenizer, text_a: str, text_b: str | None, max_seq_length: int
) -> tuple[list[int], int]:
    """Returns the ids of `model_input`'s tokens and the number of tokens in segment 0, without making token strings."""
    ids_b = tokenizer.encode(text_b) if text_b else []
    cls, sep = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]
    return _joined(tokenizer.encode(text_a), ids_b, max_seq_length, cls, sep)


def _joined(first: list, second: list, max_seq_length: int, cls, sep) -> tuple[list, int]:
    """Returns `cls first sep second sep`, truncated, and the length of segment 0; it may shorten the lists."""
    if not second:
        single = [cls, *first[: max_seq_length - 2], sep]
        return single, len(single)
    truncate_seq_pair(first, second, max_seq_length - 3)
    return [cls, *first, sep, *second, sep], len(first) + 2


def truncate_seq_pair(tokens_a: list[str], tokens_b: list[str], max_length: int):
    """Shortens two token lists in place to `max_length` in all; the longer one (b on a tie) loses its last token.

    Fine-tuning and feature extraction truncate this way. The pairs of pre-training lose tokens at random ends instead
    (`sentence_pairs.truncated`).
    """
    while len(tokens_a) + len(tokens_b) > max_length:
        (tokens_a if len(tokens_a) > len(tokens_b) else tokens_b).pop()


def padded_features(
    inputs: Sequence[ModelInput], tokenizer: FullTokenizer, max_seq_length: int
) -> dict[str, np.ndarray]:
    """Returns `input_ids`, `input_mask` and `segment_ids`, each int32[batch, max_seq_length], padded with 0."""
    table = encoder_features(max_seq_length)
    batch = {feature.name: np.zeros((len(inputs), feature.length), feature.dtype) for feature in table}
    for row, (tokens, segment_ids) in enumerate(inputs):
        batch["input_ids"][row, : len(tokens)] = tokenizer.convert_tokens_to_ids(tokens)
        batch["input_mask"][row, : len(tokens)] = 1
        batch["segment_ids"][row, : len(tokens)] = segment_ids
    return batch


def check_vocabulary(tokenizer: FullTokenizer, vocab_size: int, vocab_file: str):
    """Refuses a vocabulary that does not fit the model, and warns of one that is shorter than the embedding table.

    Args:
        tokenizer: a tokenizer with the vocabulary.
        vocab_size: the number of rows of the model's embedding table.
        vocab_file: the path of the vocabulary, for the error message.

    Raises:
        InputError: a special token is missing, or an id lies outside the embedding table.
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
    if num_ids < vocab_size:
        warn(
            "%s: has %d lines, fewer than the model's vocab_size %d: is it whole?",
            vocab_file,
            num_ids,
            vocab_size,
        )
