import random

import pytest

from official_bert.data.corpus.sentence_pairs import sentence_pairs, truncated
from official_bert.errors import InputError


class Scripted(random.Random):
    """A generator that returns the listed numbers: floats from random(), integers from getrandbits()."""

    def __init__(self, *numbers):
        super().__init__(0)
        self._numbers = list(numbers)

    def random(self):
        return self._numbers.pop(0)

    def getrandbits(self, bits):
        number = self._numbers.pop(0)
        assert isinstance(number, int)
        assert number < 1 << bits
        return number

    def all_used(self):
        return not self._numbers


def walk(rng, bounds, document=0, max_seq_length=13, short_seq_prob=0.1):
    return [
        tuple(pair)
        for pair in sentence_pairs(
            document, len(bounds), bounds.__getitem__, max_seq_length, short_seq_prob, rng
        )
    ]


def test_the_next_segments_follow():
    # 10 tokens fit; the first three segments reach them. Draws: length, split after 1 + 1 segments, 0.5 is "next".
    rng = Scripted(0.5, 1, 0.5)
    assert walk(rng, [[0, 4, 6, 10]]) == [(0, 6, 0, 6, 10, False)]
    assert rng.all_used()


def test_a_random_second_side_gives_the_rest_of_the_chunk_back():
    # Document 0 in two segments: split after the first (no choice: one draw of one bit), random; then documents 0
    # (drawn again, as it is the walked one) and 1, second segment. The second segment of document 0 comes round alone:
    # random without asking.
    rng = Scripted(0.5, 0, 0.49, 0, 1, 1, 1, 0)
    pairs = walk(rng, [[0, 3, 8], [8, 12, 13]])
    assert pairs == [(0, 3, 1, 12, 13, True), (3, 8, 1, 8, 13, True)]
    assert rng.all_used()


def test_a_short_pass_aims_at_fewer_tokens():
    # 0.05 < 0.1: a target of 2 + 1 = 3 tokens, which one segment of 3 reaches; B needs 3 - 3 = 0 and takes one segment.
    rng = Scripted(0.05, 1, 1, 0, 1, 0)
    assert walk(rng, [[0, 3, 6], [6, 7, 8]]) == [(0, 3, 1, 6, 7, True), (3, 6, 1, 6, 7, True)]
    assert rng.all_used()


def test_a_single_document_is_its_own_random_one_after_ten_draws():
    rng = Scripted(0.5, *[0] * 10, 0)
    assert walk(rng, [[0, 3]]) == [(0, 3, 0, 0, 3, True)]
    assert rng.all_used()


@pytest.mark.parametrize(
    ("lengths", "room", "draws", "expected"),
    [
        ((3, 3), 6, (), (0, 3, 10, 13)),
        ((3, 3), 5, (0.4,), (0, 3, 11, 13)),  # a tie cuts B; below one half the first token goes
        ((3, 3), 5, (0.5,), (0, 3, 10, 12)),
        ((4, 2), 4, (0.1, 0.9), (1, 3, 10, 12)),  # 4 > 2, then 3 > 2: both off A
        ((1, 4), 2, (0.1, 0.1, 0.9), (0, 1, 12, 13)),
    ],
)
def test_truncates_the_longer_side(lengths, room, draws, expected):
    numbers = list(draws)
    spans = truncated(0, lengths[0], 10, 10 + lengths[1], room, lambda: numbers.pop(0))
    assert spans == expected
    assert not numbers


def test_a_length_without_room_for_both_sides_is_refused():
    with pytest.raises(InputError, match="max_seq_length is 4; it must be at least 5"):
        walk(random.Random(1), [[0, 3]], max_seq_length=4)
