"""Makes the next-sentence pairs of one document, draw for draw as the original.

In: the token offsets of each document's segments ("sentences"). Out: pairs as token spans. The tokens themselves are
not needed, so the same function serves documents of ids and documents of strings.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from official_bert.data.corpus.draws import randbelow
from official_bert.errors import InputError

NUM_SPECIAL_TOKENS = 3  # [CLS] a [SEP] b [SEP]


class SentencePair(NamedTuple):
    """Tokens [a_begin, a_end) of one document and tokens [b_begin, b_end) of document `b_document`.

    The offsets are those of `bounds_of`, an argument of `sentence_pairs`. `is_random_next` is True where segment B was
    drawn at random, even if the draw gave the document of segment A.
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
    """Yields the pairs of one pass over `document`, in order.

    The caller must mask each pair, which draws from `rng`, before it asks for the next pair: the original draws in
    this order.

    Args:
        document: the index of the document.
        num_documents: the number of documents; random second segments are drawn from all of them.
        bounds_of: index of a document -> int[segments + 1], the token offsets at which its segments begin and end.
        max_seq_length: the largest number of tokens of a pair, special tokens included.
        short_seq_prob: the probability that all pairs of this pass aim at a shorter random length.
        rng: the source of the draws.

    Raises:
        InputError: max_seq_length leaves no token for one of the two segments.
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
            first = middle  # the segments that A left over start the next pair, as in the original
        else:
            b_document, b_begin, b_end, is_random_next = document, a_end, bounds[end], False
            first = end
        a_begin, a_end, b_begin, b_end = truncated(a_begin, a_end, b_begin, b_end, max_num_tokens, rng.random)
        yield SentencePair(a_begin, a_end, b_document, b_begin, b_end, is_random_next)


def truncated(
    a_begin: int, a_end: int, b_begin: int, b_end: int, max_num_tokens: int, draw: Callable[[], float]
) -> tuple[int, int, int, int]:
    """Cuts two spans to `max_num_tokens` in all: the longer span (B on a tie) loses a token at a random end."""
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
    """Returns the end of the shortest run of segments from `first` on that has `num_tokens` tokens.

    The run has at least one segment; it ends with the document if the tokens do not suffice.
    """
    return min(bisect_left(bounds, bounds[first] + num_tokens, first + 1), len(bounds) - 1)


def _another_document(document: int, num_documents: int, getrandbits: Callable[[int], int]) -> int:
    """Draws a document other than `document`; after ten draws the last one counts, even if it is `document`."""
    for _ in range(10):
        drawn = randbelow(num_documents, getrandbits)
        if drawn != document:
            break
    return drawn
