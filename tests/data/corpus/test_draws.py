"""The expected results, and the generator's states after them, are those of the standard library."""

import random

import pytest

from official_bert.data.corpus.draws import randbelow, shuffle


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 9, 125, 127, 128, 129, 1000])
def test_shuffles_as_random_does(size):
    ours, theirs = random.Random(size), random.Random(size)
    items, expected = list(range(size)), list(range(size))
    shuffle(items, ours.getrandbits)
    theirs.shuffle(expected)
    assert items == expected
    assert ours.getstate() == theirs.getstate()


def test_draws_integers_as_randint_does():
    ours, theirs = random.Random(3), random.Random(3)
    ranges = [*range(1, 70), 30522, 1 << 20, 1 << 32, (1 << 40) + 1]
    assert [randbelow(n, ours.getrandbits) for n in ranges] == [theirs.randint(0, n - 1) for n in ranges]
    assert ours.getstate() == theirs.getstate()
