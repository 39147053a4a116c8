"""Next-sentence pairs of one document, draw for draw as the original.

In: how many tokens each segment ("sentence") of the documents has. Out: pairs as token spans. No token is looked at,
so the same walk serves documents of ids and documents of strings.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from official_bert.data.corpus.draws import randbelow
from official_bert.errors import InputError

NUM_SPECIAL_TOKENS = 3  # [CLS] a [SEP] b [SEP]


class SentencePair(NamedTuple):
    """Tokens [a_begin, a_end) of the walked document and [b_begin, b_end) of document `b_document`.

    Offsets count as the bounds that the walk was given. `is_random_next` is True where B was drawn at random, even
    if the draw fell on the walked document itself.
    """

    a_begin: int
    a_end: int
    b_document: int
    b_begin: int
    b_end: int
    is_random_next: bool


def sentence_pairs(
    document: int,
    num_documents: int,
    bounds_of: Callable[[int], Sequence[int]],
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
) -> Iterator[SentencePair]:
    """Pairs of one pass over `document`, in order.

    The masking of a pair must draw from `rng` before the next pair is asked for: that is the original's order.

    Args:
        document: index of the document to walk.
        num_documents: how many there are; random second segments are drawn from all of them.
        bounds_of: index of a document -> int[segments + 1], the token offsets at which its segments begin and end.
        max_seq_length: tokens of a pair with its special tokens.
        short_seq_prob: probability that this pass aims at a shorter length, for all its pairs.

    Raises:
        InputError: a max_seq_length that leaves no token for one of the sides.
    """
    max_num_tokens = max_seq_length - NUM_SPECIAL_TOKENS
    if max_num_tokens < 2:
        raise InputError(f"max_seq_length is {max_seq_length}; it must be at least {NUM_SPECIAL_TOKENS + 2}")
    getrandbits = rng.getrandbits
    target = max_num_tokens
    if rng.random() < short_seq_prob:
        target = 2 + randbelow(max_num_tokens - 1, getrandbits)
    bounds = bounds_of(document)
    num_segments = len(bounds) - 1
    first = 0
    while first < num_segments:
        end = _segments_until(bounds, first, target)
        size = end - first
        middle = first + (1 if size == 1 else 1 + randbelow(size - 1, getrandbits))
        a_begin, a_end = bounds[first], bounds[middle]
        if size == 1 or rng.random() < 0.5:
            b_document = _another_document(document, num_documents, getrandbits)
            b_bounds = bounds_of(b_document)
            b_first = randbelow(len(b_bounds) - 1, getrandbits)
            b_begin = b_bounds[b_first]
            b_end = b_bounds[_segments_until(b_bounds, b_first, target - (a_end - a_begin))]
            is_random_next = True
            first = middle  # the segments that B did not take are visited again
        else:
            b_document, b_begin, b_end, is_random_next = document, a_end, bounds[end], False
            first = end
        a_begin, a_end, b_begin, b_end = truncated(a_begin, a_end, b_begin, b_end, max_num_tokens, rng.random)
        yield SentencePair(a_begin, a_end, b_document, b_begin, b_end, is_random_next)


def truncated(
    a_begin: int, a_end: int, b_begin: int, b_end: int, max_num_tokens: int, draw: Callable[[], float]
) -> tuple[int, int, int, int]:
    """Spans cut to `max_num_tokens` in all: one token at a time off a random end of the longer (B on a tie)."""
    a_length, b_length = a_end - a_begin, b_end - b_begin
    while a_length + b_length > max_num_tokens:
        from_front = draw() < 0.5
        if a_length > b_length:
            a_begin += from_front
            a_length -= 1
        else:
            b_begin += from_front
            b_length -= 1
    return a_begin, a_begin + a_length, b_begin, b_begin + b_length


def _segments_until(bounds: Sequence[int], first: int, num_tokens: int) -> int:
    """End of the fewest segments from `first` on (one at least) with `num_tokens` tokens, or of all there are."""
    return min(bisect_left(bounds, bounds[first] + num_tokens, first + 1), len(bounds) - 1)


def _another_document(document: int, num_documents: int, getrandbits: Callable[[int], int]) -> int:
    """Ten draws at a document other than `document`; the tenth is taken as it falls."""
    for _ in range(10):
        drawn = randbelow(num_documents, getrandbits)
        if drawn != document:
            break
    return drawn
