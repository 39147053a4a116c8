"""The functions that users import from create_pretraining_data.py.

Their instances have token strings instead of ids. The functions wrap the generator `exact`. They
have the arguments, random draws and results of the original. Where a function of the original reads
a flag, its counterpart here has a keyword argument with the flag's name and default.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from official_bert.data.pretraining.documents import read_documents
from official_bert.data.pretraining.exact import (
    TokenSet,
    create_instances,
    draw_masks,
    sentence_pairs,
    truncated,
)
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.data.records.framing import open_example_files
from official_bert.data.records.record_files import log_files, write_features
from official_bert.features import pretraining_features
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer

if TYPE_CHECKING:
    import tensorflow as tf

_BATCH_SIZE = 1024


@dataclasses.dataclass(repr=False)
class TrainingInstance:
    """One sentence pair with its masks.

    Attributes:
        tokens: `[CLS] a [SEP] b [SEP]` after masking.
        segment_ids: 0 for [CLS], a and the first [SEP], 1 for b and the last [SEP].
        masked_lm_positions: the positions of the predictions, in increasing order.
        masked_lm_labels: the tokens at these positions before masking.
        is_random_next: whether b was drawn at random.
    """

    tokens: list[str]
    segment_ids: list[int]
    masked_lm_positions: list[int]
    masked_lm_labels: list[str]
    is_random_next: bool

    def __str__(self):
        names = (
            "tokens",
            "segment_ids",
            "is_random_next",
            "masked_lm_positions",
            "masked_lm_labels",
        )
        lists = vars(self) | {"is_random_next": [self.is_random_next]}
        return "".join(f"{name}: {' '.join(map(str, lists[name]))}\n" for name in names) + "\n"

    __repr__ = __str__


class MaskedLmInstance(NamedTuple):
    """A prediction: its position, and the token there before masking."""

    index: int
    label: str


def create_int_feature(values: Iterable[int]) -> tf.train.Feature:
    """Returns a feature of a tf.Example with integers, which are int64 in a file.

    Args:
        values: the integers.
    """
    import tensorflow as tf

    return tf.train.Feature(int64_list=tf.train.Int64List(value=list(values)))


def create_float_feature(values: Iterable[float]) -> tf.train.Feature:
    """Returns a feature of a tf.Example with numbers, which are float32 in a file.

    Args:
        values: the numbers.
    """
    import tensorflow as tf

    return tf.train.Feature(float_list=tf.train.FloatList(value=list(values)))


def create_training_instances(  # noqa: PLR0913 - the original's arguments
    input_files: Sequence[str],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    dupe_factor: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    rng: random.Random,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """Makes the instances of raw text files, in the order of the records.

    Args:
        input_files: the paths of the text files, with a sentence in each line and an empty line
            between documents.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens of an instance, special tokens included.
        dupe_factor: the number of passes over the documents, each with other masks.
        short_seq_prob: the probability that the pairs of a document are shorter, from 0 to 1.
        masked_lm_prob: the share of the tokens that are predicted, from 0 to 1.
        max_predictions_per_seq: the maximum number of predictions in an instance.
        rng: the source of all draws.
        do_whole_word_mask: whether all WordPieces of a word are predicted together.

    Raises:
        InputError: the files have no text or cannot be read, or `max_seq_length` is too small for a
            pair.
    """
    config = PairConfig(
        max_seq_length=max_seq_length, short_seq_prob=short_seq_prob, dupe_factor=dupe_factor
    )
    masks = _mask_config(masked_lm_prob, max_predictions_per_seq, do_whole_word_mask)
    documents, vocabulary = (
        read_documents(input_files, tokenizer),
        InstanceVocabulary.from_vocab(tokenizer.vocab),
    )
    instances, order = create_instances(documents, vocabulary, config, masks, rng)
    return [
        _make_instance(features, row, tokenizer.inv_vocab)
        for features in instances.batches(order)
        for row in range(len(features["input_ids"]))
    ]


def create_instances_from_document(  # noqa: PLR0913 - the original's arguments
    all_documents: Sequence[Sequence[Sequence[str]]],
    document_index: int,
    max_seq_length: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """Makes the instances of one pass over the document `all_documents[document_index]`.

    A document is a list of segments, and a segment is a list of tokens.

    Args:
        all_documents: all documents, from which random second segments come.
        document_index: the index of the document.
        max_seq_length: the maximum number of tokens of an instance, special tokens included.
        short_seq_prob: the probability that the pairs of the document are shorter, from 0 to 1.
        masked_lm_prob: the share of the tokens that are predicted, from 0 to 1.
        max_predictions_per_seq: the maximum number of predictions in an instance.
        vocab_words: the tokens of the vocabulary, from which random replacements are drawn.
        rng: the source of all draws.
        do_whole_word_mask: whether all WordPieces of a word are predicted together.

    Raises:
        InputError: `max_seq_length` is too small for a pair.
    """

    def segment_bounds(document: int) -> list[int]:
        return list(accumulate(map(len, all_documents[document]), initial=0))

    def read_tokens(document: int, begin: int, end: int) -> list[str]:
        return list(islice(chain.from_iterable(all_documents[document]), begin, end))

    instances = []
    for pair in sentence_pairs(
        document_index, len(all_documents), segment_bounds, max_seq_length, short_seq_prob, rng
    ):
        a_tokens = read_tokens(document_index, pair.a_begin, pair.a_end)
        b_tokens = read_tokens(pair.b_document, pair.b_begin, pair.b_end)
        tokens, positions, labels = create_masked_lm_predictions(
            ["[CLS]", *a_tokens, "[SEP]", *b_tokens, "[SEP]"],
            masked_lm_prob,
            max_predictions_per_seq,
            vocab_words,
            rng,
            do_whole_word_mask,
        )
        segment_ids = [0] * (len(a_tokens) + 2) + [1] * (len(b_tokens) + 1)
        instances.append(
            TrainingInstance(tokens, segment_ids, positions, labels, pair.is_random_next)
        )
    return instances


def create_masked_lm_predictions(
    tokens: Sequence[str],
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: random.Random,
    do_whole_word_mask: bool = False,
) -> tuple[list[str], list[int], list[str]]:
    """Masks a sequence.

    Args:
        tokens: the sequence. [CLS] and [SEP] are never masked.
        masked_lm_prob: the share of all tokens that are predicted, from 0 to 1.
        max_predictions_per_seq: the maximum number of predictions.
        vocab_words: the tokens of the vocabulary, from which random replacements are drawn.
        rng: the source of all draws.
        do_whole_word_mask: whether all WordPieces of a word are predicted together.

    Returns:
        The tokens after masking, the predicted positions in increasing order, and the tokens at
        these positions before masking.
    """
    candidates = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    masks = _mask_config(masked_lm_prob, max_predictions_per_seq, do_whole_word_mask)
    token_set = TokenSet("[MASK]", vocab_words, continues=lambda token: token.startswith("##"))
    masked_positions, replacements = draw_masks(tokens, candidates, masks, token_set, rng)
    output_tokens = list(tokens)
    for position, token in zip(masked_positions, replacements, strict=True):
        output_tokens[position] = token
    positions = sorted(masked_positions)
    return output_tokens, positions, [tokens[position] for position in positions]


def truncate_seq_pair(
    tokens_a: list[str], tokens_b: list[str], max_num_tokens: int, rng: random.Random
) -> None:
    """Shortens two token lists in place until both together have at most `max_num_tokens`.

    The longer list, or `tokens_b` on a tie, loses one token at a time, from its front or its end at
    random.

    Args:
        tokens_a: the first list, which is changed.
        tokens_b: the second list, which is changed.
        max_num_tokens: the maximum number of tokens of both lists together, without special tokens.
        rng: the source of the draws, one for each token that is removed.
    """
    a_begin, a_end, b_begin, b_end = truncated(
        0, len(tokens_a), 0, len(tokens_b), max_num_tokens, rng.random
    )
    tokens_a[:] = tokens_a[a_begin:a_end]
    tokens_b[:] = tokens_b[b_begin:b_end]


def write_instance_to_example_files(
    instances: Sequence[TrainingInstance],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    max_predictions_per_seq: int,
    output_files: Sequence[str],
) -> None:
    """Writes instances as TFRecords into n files, instance k into file k mod n.

    Args:
        instances: the instances, in the order of the records.
        tokenizer: the tokenizer of the model, which maps tokens to ids.
        max_seq_length: the number of tokens of a record, padding included.
        max_predictions_per_seq: the number of predictions of a record, padding included.
        output_files: the paths of the n files; one whose name ends in .gz is compressed.

    Raises:
        InputError: an instance does not fit into a record, or there is no file, or one is named
            twice.
    """
    log_files("Writing to output files", output_files)
    with open_example_files(output_files) as example_files:
        batches = _feature_batches(instances, tokenizer, max_seq_length, max_predictions_per_seq)
        write_features(batches, example_files, tokenizer.inv_vocab)


def _mask_config(
    masked_lm_prob: float, max_predictions_per_seq: int, do_whole_word_mask: bool
) -> MaskConfig:
    return MaskConfig(
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        do_whole_word_mask=do_whole_word_mask,
    )


def _make_instance(
    features: dict[str, np.ndarray], row: int, inv_vocab: dict[int, str]
) -> TrainingInstance:
    length = int(features["input_mask"][row].sum())
    count = int(features["masked_lm_weights"][row].sum())
    return TrainingInstance(
        tokens=[inv_vocab[i] for i in features["input_ids"][row, :length].tolist()],
        segment_ids=features["segment_ids"][row, :length].tolist(),
        masked_lm_positions=features["masked_lm_positions"][row, :count].tolist(),
        masked_lm_labels=[inv_vocab[i] for i in features["masked_lm_ids"][row, :count].tolist()],
        is_random_next=bool(features["next_sentence_labels"][row, 0]),
    )


def _feature_batches(
    instances: Sequence[TrainingInstance],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> Iterator[dict[str, np.ndarray]]:
    table = pretraining_features(max_seq_length, max_predictions_per_seq)
    for start in range(0, len(instances), _BATCH_SIZE):
        batch = instances[start : start + _BATCH_SIZE]
        features = {
            feature.name: np.zeros((len(batch), feature.length), feature.dtype) for feature in table
        }
        for row, instance in enumerate(batch):
            values = (
                tokenizer.convert_tokens_to_ids(instance.tokens),
                [1] * len(instance.tokens),
                instance.segment_ids,
                instance.masked_lm_positions,
                tokenizer.convert_tokens_to_ids(instance.masked_lm_labels),
                [1.0] * len(instance.masked_lm_positions),
                [int(instance.is_random_next)],
            )
            for feature, content in zip(table, values, strict=True):
                if len(content) > feature.length:
                    raise InputError(
                        f"instance {start + row}: {feature.name} has {len(content)} values, more "
                        f"than the {feature.length} that the record holds"
                    )
                features[feature.name][row, : len(content)] = content
        yield features
