import numpy as np

from official_bert.data.pretraining import random_streams


def test_the_numbers_are_those_of_splitmix64():
    # The first outputs of the published generator for the seed 1234567.
    key = np.array([1234567], np.uint64)
    drawn = [int(random_streams.draw(key, number)[0]) for number in range(3)]
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_streams_differ_by_every_part_and_their_order():
    keys = [random_streams.stream(*parts)[0] for parts in [(1, 2), (2, 1), (1, 3), (0, 2), (1,), (1, 2, 0), (-1, 2)]]
    assert len(set(keys)) == len(keys)
    documents = np.arange(5)
    together = random_streams.stream(7, 3, documents)
    assert together.tolist() == [int(random_streams.stream(7, 3, number)[0]) for number in documents]


def test_uniform_and_below_have_the_right_range_and_mean():
    drawn = random_streams.draw(random_streams.stream(5), np.arange(100_000))
    uniform = random_streams.uniform(drawn)
    assert 0 <= uniform.min() < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 4 * np.sqrt(1 / 12 / len(uniform))
    below = random_streams.below(drawn, 7)
    counts = np.bincount(below)
    assert len(counts) == 7
    assert abs(counts - len(drawn) / 7).max() < 4 * np.sqrt(len(drawn) * 6 / 49)
    assert random_streams.below(drawn[:3], np.array([1, 1, 1])).tolist() == [0, 0, 0]


def test_binomial_numbers_have_their_mean_and_variance_for_few_and_many_trials():
    num_trials = np.repeat([0, 1, 5, 64, 65, 1000, 50_001], 20_000)
    found = random_streams.binomial(random_streams.stream(9, np.arange(len(num_trials))), 3, num_trials).reshape(7, -1)
    assert not found[0].any()
    for row, trials in zip(found[1:], (1, 5, 64, 65, 1000, 50_001), strict=True):
        assert 0 <= row.min() <= row.max() <= trials
        assert abs(row.mean() - trials / 2) < 4 * np.sqrt(trials / 4 / len(row))
        assert abs(row.var() / (trials / 4) - 1) < 0.05
