"""Makes the next-sentence pairs of all documents of a shard at once: the generator `sharded`.

In: documents and streams of random numbers. Out: token spans in one array for each field. All passes over all documents
advance together, a pair at each step, so that numpy makes thousands of pairs in a call. What a pair is, and how likely,
is as in `sentence_pairs`, with one difference: the random next segments never come from the same document where there
is another one.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from official_bert.data.pretraining import random_streams
from official_bert.data.pretraining.documents import Documents
from official_bert.data.pretraining.settings import PairConfig

_SCANS_AT_ONCE = 1 << 15  # bounds the memory: a scan is one pass over one document
# The numbers of the draws in the stream of a scan, and in that of a pair.
_IS_SHORT, _LENGTH, _FIRST_PAIR = 0, 1, 2
_MIDDLE, _IS_RANDOM, _DOCUMENT, _SEGMENT, _KEY, _CUT_A, _CUT_B = 0, 1, 2, 3, 4, 1 << 8, 1 << 40


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of segments, each [n]; without next-sentence prediction the second ones are empty.

    Attributes:
        a_begin, a_length: int64 and int32, the tokens of the first segment: offset in the ids of the documents, and
            number.
        b_begin, b_length: those of the second one.
        is_random_next: bool, whether the second segment was drawn at random.
        is_truncated: bool, whether tokens were cut off.
        keys: uint64, a stream of random numbers for each pair, which masks its tokens.
    """

    a_begin: np.ndarray
    a_length: np.ndarray
    b_begin: np.ndarray
    b_length: np.ndarray
    is_random_next: np.ndarray
    is_truncated: np.ndarray
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows) -> "Pairs":
        return Pairs(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))

    @classmethod
    def joined(cls, parts: list["Pairs"]) -> "Pairs":
        """Returns the pairs of several parts, in their order."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclasses.dataclass(frozen=True)
class Chunks:
    """Pairs as runs of whole segments, before truncation, each int64[n].

    Attributes:
        document: of the first part.
        a_first, a_end: the segments of the first part, numbers in the documents' `segment_starts`.
        b_document: of the second part.
        b_first, b_end: the segments of the second part; both 0 without next-sentence prediction.
        is_random_next: bool[n].
        keys: uint64[n], a stream for each pair.
    """

    document: np.ndarray
    a_first: np.ndarray
    a_end: np.ndarray
    b_document: np.ndarray
    b_first: np.ndarray
    b_end: np.ndarray
    is_random_next: np.ndarray
    keys: np.ndarray


def make_pairs(documents: Documents, config: PairConfig, key: np.ndarray) -> Pairs:
    """Makes the pairs of all passes over all documents, in an order that is not that of the text.

    Args:
        key: uint64[], the stream of the shard.
    """
    max_num_tokens = num_text_tokens(config)
    return Pairs.joined(
        [truncated(chunks, documents, max_num_tokens) for chunks in make_chunks(documents, config, key)]
    )


def num_text_tokens(config: PairConfig) -> int:
    """Returns the largest number of tokens of a pair, without special tokens."""
    return config.max_seq_length - (3 if config.use_next_sentence else 2)


def make_chunks(documents: Documents, config: PairConfig, key: np.ndarray) -> Iterator[Chunks]:
    """Yields the pairs before truncation; the arguments are those of `make_pairs`."""
    max_num_tokens = num_text_tokens(config)
    num_scans = config.dupe_factor * len(documents)
    for start in range(0, num_scans, _SCANS_AT_ONCE):
        scans = np.arange(start, min(start + _SCANS_AT_ONCE, num_scans))
        document, number_of_pass = scans % len(documents), scans // len(documents)
        scan_keys = random_streams.stream(key, number_of_pass, document)
        is_short = random_streams.uniform(random_streams.draw(scan_keys, _IS_SHORT)) < config.short_seq_prob
        lengths = 2 + random_streams.below(random_streams.draw(scan_keys, _LENGTH), max_num_tokens - 1)
        target = np.where(is_short, lengths, max_num_tokens)
        yield from _scan(documents, document, target, config.use_next_sentence, scan_keys)


def _scan(
    documents: Documents, document: np.ndarray, target: np.ndarray, use_next_sentence: bool, keys: np.ndarray
) -> Iterator[Chunks]:
    """Yields the pairs of some scans, those of one step at a time.

    Args:
        document: int64[n], the document of each scan.
        target: int64[n], the number of tokens that the pairs of a scan aim at.
        keys: uint64[n], the stream of each scan.
    """
    starts, document_starts = documents.segment_starts, documents.document_starts
    first, document_end = document_starts[document], document_starts[document + 1]
    number = _FIRST_PAIR
    while len(first):
        pair_keys = random_streams.draw(keys, number)
        number += 1
        end = np.minimum(np.searchsorted(starts, starts[first] + target), document_end)
        if use_next_sentence:
            chunks = _with_next(documents, document, first, end, target, pair_keys)
            # A's left-over segments are used again.
            first = np.where(chunks.is_random_next, chunks.a_end, end)
        else:
            none = np.zeros(len(first), np.int64)
            chunks = Chunks(document, first, end, document, none, none, none.astype(bool), pair_keys)
            first = end
        yield chunks
        goes_on = first < document_end
        if not goes_on.all():
            first, document, document_end, target, keys = (
                values[goes_on] for values in (first, document, document_end, target, keys)
            )


def _with_next(documents, document, first, end, target, keys) -> Chunks:
    """Splits runs of segments, [first, end) of each scan, into A and its next segments, or draws others for B."""
    starts, document_starts = documents.segment_starts, documents.document_starts
    size = end - first
    middle = first + 1 + random_streams.below(random_streams.draw(keys, _MIDDLE), np.maximum(size - 1, 1))
    is_random = (size == 1) | (random_streams.uniform(random_streams.draw(keys, _IS_RANDOM)) < 0.5)

    num_others = max(len(documents) - 1, 1)
    other = random_streams.below(random_streams.draw(keys, _DOCUMENT), num_others)
    if len(documents) > 1:
        other += other >= document
    other_first, other_end = document_starts[other], document_starts[other + 1]
    drawn_first = other_first + random_streams.below(random_streams.draw(keys, _SEGMENT), other_end - other_first)
    wanted = starts[drawn_first] + target - (starts[middle] - starts[first])
    drawn_end = np.minimum(np.maximum(np.searchsorted(starts, wanted), drawn_first + 1), other_end)
    return Chunks(
        document=document,
        a_first=first,
        a_end=middle,
        b_document=np.where(is_random, other, document),
        b_first=np.where(is_random, drawn_first, middle),
        b_end=np.where(is_random, drawn_end, end),
        is_random_next=is_random,
        keys=keys,
    )


def truncated(chunks: Chunks, documents: Documents, max_num_tokens: int) -> Pairs:
    """Cuts pairs to `max_num_tokens` in all.

    As in `exact.truncated`, the longer side (B on a tie) loses one token after the other at a random end: the
    numbers of tokens that are left do not depend on the draws, and those cut off the front are binomial.
    """
    starts = documents.segment_starts
    a_begin, b_begin = starts[chunks.a_first], starts[chunks.b_first]
    a_length, b_length = starts[chunks.a_end] - a_begin, starts[chunks.b_end] - b_begin
    is_truncated = a_length + b_length > max_num_tokens
    half = max_num_tokens - max_num_tokens // 2  # A's tokens if both sides are cut
    a_left = np.where(is_truncated, np.minimum(a_length, np.maximum(max_num_tokens - b_length, half)), a_length)
    b_left = np.where(is_truncated, np.minimum(b_length, max_num_tokens - a_left), b_length)
    return Pairs(
        a_begin=a_begin + random_streams.binomial(chunks.keys, _CUT_A, a_length - a_left),
        a_length=a_left.astype(np.int32),
        b_begin=b_begin + random_streams.binomial(chunks.keys, _CUT_B, b_length - b_left),
        b_length=b_left.astype(np.int32),
        is_random_next=chunks.is_random_next,
        is_truncated=is_truncated,
        keys=random_streams.draw(chunks.keys, _KEY),
    )
