"""Makes model inputs from one text or two: truncation, special tokens, segments, padding; logs
examples.
"""

import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from absl import logging

from official_bert.features import EncodedSet, encoder_features, length_mask
from official_bert.io.errors import InputError, warn
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_call import NEEDED_PIECES
from official_bert.tokenizer_config import build_pair, warn_about_casing

_SHOWN_TOKENS = 20
_UNKNOWN_SHARE, _FEWEST_TOKENS = 0.2, 100  # of the tokens of a text; fewer are no sample
FIRST_TEXTS = 1000  # whose tokens are looked at


class RaggedRows:
    """Rows of integers of different lengths, concatenated in one array.

    `starts`, int64[rows + 1], are the offsets in `values` at which the rows begin, then the end of
    the last one.
    """

    def __init__(self, rows: Iterable[Iterable[int]]):
        values = array.array("i")
        starts = array.array("q", [0])
        for row in rows:
            values.extend(row)
            starts.append(len(values))
        self.values = np.array(values)
        self.starts = np.array(starts)
        self.lengths = np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.values[self.starts[row] : self.starts[row + 1]]

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Returns the chosen rows, padded with zeros.

        Args:
            rows: int[n], the indices of the rows.
            length: the length to which they are padded; no row may be longer.

        Returns:
            int32[n, length].
        """
        batch = np.zeros((len(rows), length), self.values.dtype)
        if len(rows):
            mask = length_mask(self.lengths[rows], length)
            batch[mask] = np.concatenate([self[row] for row in rows])
        return batch


class ModelInputs:
    """The inputs of a data set: the ids of each, special tokens included, and the number of its
    tokens in segment 0.
    """

    def __init__(self, inputs: Iterable[tuple[Sequence[int], int]]):
        num_first = []

        def rows():
            for ids, count in inputs:
                num_first.append(count)
                yield ids

        self.ids = RaggedRows(rows())
        self.num_first = np.asarray(num_first, np.int32)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each input, special tokens included: int64[inputs]."""
        return self.ids.lengths

    def features(self, rows: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """Returns the encoder features of some inputs, padded to one length.

        Args:
            rows: int[n], the indices of the inputs.
            length: the number of tokens to which they are padded; no input may be longer.

        Returns:
            The features by name, each int32[n, length].
        """
        mask = length_mask(self.lengths[rows], length)
        is_first = length_mask(self.num_first[rows], length)
        values = (
            self.ids.padded(rows, length),
            mask,
            mask & ~is_first,
        )
        table = encoder_features(length)
        return {
            feature.name: value.astype(feature.dtype)
            for feature, value in zip(table, values, strict=True)
        }


class ModelInput(NamedTuple):
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, without padding; the segment ids are 0 up to
    the first [SEP].
    """

    tokens: list[str]
    segment_ids: list[int]


def model_input(
    tokenizer: FullTokenizer,
    text_a: str,
    text_b: str | None,
    max_seq_length: int,
) -> ModelInput:
    """Tokenizes and truncates a text, or a pair whose second text has tokens.

    Args:
        tokenizer: the tokenizer of the model.
        text_a: the first text.
        text_b: the second text; None for a single text.
        max_seq_length: the number of tokens, special tokens included, to which the input is
            truncated.
    """
    tokens_b = tokenizer.tokenize(text_b) if text_b else []
    tokens, num_first = build_pair(
        tokenizer.tokenize(text_a),
        tokens_b,
        max_seq_length,
        "[CLS]",
        "[SEP]",
    )
    num_second = len(tokens) - num_first
    segment_ids = [0] * num_first + [1] * num_second
    return ModelInput(tokens, segment_ids)


class IdEncoder(Protocol):
    """What `model_input_ids` needs of a tokenizer.

    Attributes:
        vocab: id of each piece.
    """

    vocab: dict[str, int]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the tokens of a text, without special tokens.

        Args:
            text: the text.
        """
        ...


def model_input_ids(
    tokenizer: IdEncoder,
    text_a: str,
    text_b: str | None,
    max_seq_length: int,
) -> tuple[list[int], int]:
    """Does what `model_input` does, but makes ids without making token strings.

    Args:
        tokenizer: the tokenizer of the model.
        text_a: the first text.
        text_b: the second text; None for a single text.
        max_seq_length: the number of tokens, special tokens included, to which the input is
            truncated.

    Returns:
        The ids of `model_input`'s tokens, and the number of tokens in segment 0.
    """
    ids_b = tokenizer.encode(text_b) if text_b else []
    return build_pair(
        tokenizer.encode(text_a),
        ids_b,
        max_seq_length,
        tokenizer.vocab["[CLS]"],
        tokenizer.vocab["[SEP]"],
    )


def doc_spans(num_tokens: int, max_tokens: int, doc_stride: int) -> list[tuple[int, int]]:
    """Returns (start, length) of each window of a document.

    Args:
        num_tokens: the number of tokens of the document; 0 for no window.
        max_tokens: the length of a window in tokens; the last one may be shorter.
        doc_stride: the number of tokens between the starts of two windows; a larger stride than a
            window is reduced to its length.
    """
    starts = [0]
    while starts[-1] + max_tokens < num_tokens:
        starts.append(starts[-1] + min(max_tokens, doc_stride))
    return [(start, min(max_tokens, num_tokens - start)) for start in starts if num_tokens]


def padded_features(
    inputs: Sequence[ModelInput],
    tokenizer: FullTokenizer,
    max_seq_length: int,
) -> dict[str, np.ndarray]:
    """Returns the encoder features of a batch, padded with 0.

    Args:
        inputs: the inputs of the batch.
        tokenizer: the tokenizer that made them; it has the id of each token.
        max_seq_length: the number of tokens to which they are padded; no input may be longer.

    Returns:
        `input_ids`, `input_mask` and `segment_ids`, each int32[batch, max_seq_length].
    """
    batch = {}
    for feature in encoder_features(max_seq_length):
        shape = (len(inputs), feature.length)
        batch[feature.name] = np.zeros(shape, feature.dtype)
    for row, (tokens, segment_ids) in enumerate(inputs):
        ids = tokenizer.convert_tokens_to_ids(tokens)
        batch["input_ids"][row, : len(ids)] = ids
        batch["input_mask"][row, : len(ids)] = 1
        batch["segment_ids"][row, : len(ids)] = segment_ids
    return batch


def check_vocabulary(tokenizer: FullTokenizer, vocab_size: int, vocab_file: str) -> None:
    """Validates that a vocabulary fits the model, and warns of one that is shorter than the
    embedding table.

    It also warns as `check_casing` does.

    Args:
        tokenizer: the tokenizer with the vocabulary.
        vocab_size: the number of rows of the model's embedding table.
        vocab_file: the path of the vocabulary, for messages.

    Raises:
        InputError: the vocabulary lacks a special token, or has more lines than the model has
            embeddings.
    """
    missing = [piece for piece in NEEDED_PIECES if piece not in tokenizer.vocab]
    if missing:
        raise InputError(f"{vocab_file}: lacks {', '.join(missing)}; add a line for each of them")
    num_ids = 1 + max(tokenizer.vocab.values())
    if num_ids > vocab_size:
        raise InputError(
            f"{vocab_file}: has {num_ids} lines, but the model was made for vocab_size "
            f"{vocab_size}; use the vocabulary and the configuration that belong together"
        )
    if num_ids < vocab_size:
        warn(
            "%s: has %d lines, fewer than the model's vocab_size %d: is it whole?",
            vocab_file,
            num_ids,
            vocab_size,
        )
    check_casing(tokenizer, vocab_file)


def check_casing(tokenizer: FullTokenizer, vocab_file: str) -> None:
    """Warns if text is lower-cased although the vocabulary has capitals, or is not although it
    has none.

    Args:
        tokenizer: the tokenizer with the vocabulary and the casing.
        vocab_file: the path of the vocabulary, for the warning.
    """
    warn_about_casing(tokenizer.vocab, tokenizer.basic_tokenizer.do_lower_case, vocab_file)


def check_unknown(tokenizer: FullTokenizer, ids: np.ndarray) -> bool:
    """Warns if too many of the tokens of the first texts are [UNK].

    Args:
        tokenizer: the tokenizer with the vocabulary.
        ids: integers of any shape, the ids of the first texts; special tokens and padding are not
            counted.

    Returns:
        Whether it warned.
    """
    is_text, is_unknown = _text_and_unknown(tokenizer, ids)
    num_tokens = is_text.sum()
    return num_tokens >= _FEWEST_TOKENS and warn_about_unknown(is_unknown.sum() / num_tokens)


def _text_and_unknown(
    tokenizer: FullTokenizer,
    ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which ids are tokens of a text, and which of those are [UNK], bool like `ids`."""
    vocab = tokenizer.vocab
    frame_ids = [vocab.get(piece, 0) for piece in ("[PAD]", "[CLS]", "[SEP]")]
    is_text = ~np.isin(ids, frame_ids)
    is_unknown = is_text & (ids == vocab["[UNK]"])
    return is_text, is_unknown


def check_unknown_in(tokenizer: FullTokenizer, encoded: EncodedSet, length: int) -> None:
    """Does what `check_unknown` does for the first texts of a set.

    Args:
        tokenizer: the tokenizer with the vocabulary.
        encoded: the set.
        length: the number of tokens to which the texts are padded.
    """
    rows = np.arange(min(FIRST_TEXTS, len(encoded.lengths)))
    if rows.size:
        check_unknown(tokenizer, encoded.features(rows, length)["input_ids"])


def warn_about_unknown(share: float) -> bool:
    """Warns of a share of [UNK] that no vocabulary has for text of its language and casing.

    Args:
        share: the share of [UNK] in the tokens, from 0 to 1.

    Returns:
        Whether it warned.
    """
    if share > _UNKNOWN_SHARE:
        warn(
            "%.0f %% of the first tokens are [UNK]: does the vocabulary fit the text and its "
            "casing?",
            100 * share,
        )
    return bool(share > _UNKNOWN_SHARE)


def warn_about_unknown_requests(tokenizer: FullTokenizer, encoded: EncodedSet, length: int) -> bool:
    """Warns of requests as `check_unknown` does, and of a request without any known token.

    Args:
        tokenizer: the tokenizer with the vocabulary.
        encoded: the requests.
        length: the number of tokens to which they are padded.

    Returns:
        Whether it warned.
    """
    rows = np.arange(min(FIRST_TEXTS, len(encoded.lengths)))
    if not rows.size:
        return False
    ids = encoded.features(rows, length)["input_ids"]
    if check_unknown(tokenizer, ids):
        return True
    ids = ids.reshape(len(ids), -1)
    is_text, is_unknown = _text_and_unknown(tokenizer, ids)
    has_only_unknown = is_unknown.any(-1) & (is_unknown == is_text).all(-1)
    num_unknown = int(has_only_unknown.sum())
    if num_unknown:
        noun = "a text is" if num_unknown == 1 else f"{num_unknown} texts are"
        warn(
            "%s [UNK] only, so that nothing is known of it: does the vocabulary fit the text and "
            "its casing?",
            noun,
        )
    return num_unknown > 0


def log_example(
    tokens: Sequence[str],
    is_first: bool,
    details: Callable[[], Iterable[str]],
) -> None:
    """Logs the first example in a line, or with --verbosity=1 the details of each.

    Args:
        tokens: the tokens of the example; the line has the first ones.
        is_first: whether it is the first example.
        details: a function that returns the lines of the details; it is called only if they are
            logged.
    """
    if logging.level_debug():
        logging.debug("*** Example ***")
        for line in details():
            logging.debug("%s", line)
    elif is_first:
        more = " ..." if len(tokens) > _SHOWN_TOKENS else ""
        logging.info("First example: %s%s", " ".join(tokens[:_SHOWN_TOKENS]), more)
