"""Chooses the masked LM predictions of one sequence, draw for draw as the original.

The functions work on tokens of any kind: on vocabulary ids in the generators, and on strings in the functions that
users import from create_pretraining_data.py.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from official_bert.data.corpus.draws import randbelow, shuffle

Token = TypeVar("Token", int, str)


def num_predictions(length: int, masked_lm_prob: float, max_predictions_per_seq: int) -> int:
    """Returns the number of predictions in a sequence of `length` tokens, special tokens included.

    A half rounds to the even number, as `round` does in Python 3.
    """
    return min(max_predictions_per_seq, max(1, round(length * masked_lm_prob)))


def draw_positions(positions: list[int], count: int, rng: random.Random) -> list[int]:
    """Draws `count` of the positions, or all if there are fewer; shuffles `positions` in place."""
    shuffle(positions, rng.getrandbits)
    return positions[:count]


def draw_whole_words(
    positions: list[int], continues: Sequence[bool], count: int, rng: random.Random
) -> list[int]:
    """Draws whole words with at most `count` positions in all; a word that would exceed `count` is skipped.

    Args:
        positions: the positions of the tokens that may be masked, in increasing order.
        continues: for every position of the sequence, whether its token starts with "##". Such a token joins the
            word before it, even across the [SEP] between the segments.
        count: the largest number of positions.
        rng: the source of the draws.
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
    """Draws the input token at each predicted position: 80 % [MASK], 10 % the token itself, 10 % a random word.

    Args:
        tokens: the sequence before masking.
        positions: the predicted positions in the order in which they were drawn. The WordPieces of one word draw
            independently.
        mask: the [MASK] token.
        words: the tokens that random words are drawn from: the whole vocabulary, special tokens included.
        rng: the source of the draws.
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
