"""Masked LM predictions of one sequence, draw for draw as the original.

Works on tokens of any kind: vocabulary ids in the generators, strings in the functions that people import.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from official_bert.data.corpus.draws import randbelow, shuffle

Token = TypeVar("Token", int, str)


def num_predictions(length: int, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """Predictions in a sequence of `length` tokens, specials included; halves round to even, as in Python 3."""
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


def draw_positions(positions: list[int], count: int, rng: random.Random) -> list[int]:
    """Draws `count` of the positions, or all there are. Shuffles `positions` in place."""
    shuffle(positions, rng.getrandbits)
    return positions[:count]


def draw_whole_words(
    positions: list[int], continues: Sequence[bool], count: int, rng: random.Random
) -> list[int]:
    """Draws whole words with `count` positions at most; a word that would exceed it is passed over.

    Args:
        positions: increasing positions of the tokens that may be masked.
        continues: for every position of the sequence, whether its token starts with "##". Such a token joins the
            word before it, even across the [SEP] between the segments.
    """
    words: list[list[int]] = []
    for position in positions:
        if words and continues[position]:
            words[-1].append(position)
        else:
            words.append([position])
    shuffle(words, rng.getrandbits)
    drawn: list[int] = []
    for word in words:
        if len(drawn) >= count:
            break
        if len(drawn) + len(word) <= count:
            drawn += word
    return drawn


def replacements(
    tokens: Sequence[Token], positions: list[int], mask: Token, words: Sequence[Token], rng: random.Random
) -> list[Token]:
    """What stands at each position to be predicted: 80 % the mask, 10 % the token itself, 10 % a random word.

    Args:
        tokens: the sequence.
        positions: in the order in which they were drawn; pieces of one word draw independently.
        mask: the [MASK] token.
        words: what random words are drawn from: the whole vocabulary, special tokens included.
    """
    draw, getrandbits, num_words = rng.random, rng.getrandbits, len(words)
    replaced = []
    for position in positions:
        if draw() < 0.8:
            replaced.append(mask)
        elif draw() < 0.5:
            replaced.append(tokens[position])
        else:
            replaced.append(words[randbelow(num_words, getrandbits)])
    return replaced
