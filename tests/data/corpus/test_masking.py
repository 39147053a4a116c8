import random

import pytest

from official_bert.data.corpus.masking import draw_positions, draw_whole_words, num_predictions, replacements


@pytest.mark.parametrize(
    ("length", "expected"),
    [(3, 1), (30, 4), (70, 10), (110, 16), (128, 19), (512, 20)],  # 4.5, 10.5 and 16.5 round to even
)
def test_number_of_predictions(length, expected):
    assert num_predictions(length, 0.15, 20) == expected


def test_positions_are_the_front_of_a_shuffle():
    expected = list(range(1, 40))
    random.Random(5).shuffle(expected)
    assert draw_positions(list(range(1, 40)), 6, random.Random(5)) == expected[:6]


def test_words_stay_together_and_too_long_ones_are_passed_over():
    tokens = ["[CLS]", "##x", "a", "##b", "##c", "##d", "[SEP]", "##e", "f", "##g", "h", "[SEP]"]
    candidates = [i for i, token in enumerate(tokens) if token not in ("[CLS]", "[SEP]")]
    continues = [token.startswith("##") for token in tokens]
    words = [[1], [2, 3, 4, 5, 7], [8, 9], [10]]  # a leading piece stands alone, ##e joins across the [SEP]
    seen = set()
    for seed in range(30):
        shuffled = list(words)
        random.Random(seed).shuffle(shuffled)
        expected = []
        for word in shuffled:
            if len(expected) + len(word) <= 3:
                expected += word
        drawn = draw_whole_words(list(candidates), continues, 3, random.Random(seed))
        assert drawn == expected
        seen.add(tuple(sorted(drawn)))
    assert seen == {(1, 8, 9), (8, 9, 10), (1, 10)}


def test_replacements_are_masks_the_token_itself_or_random_words():
    tokens = ["same"] * 20000
    replaced = replacements(tokens, list(range(20000)), "[MASK]", ["x", "y"], random.Random(1))
    share = {token: replaced.count(token) / 20000 for token in set(replaced)}
    assert share == pytest.approx({"[MASK]": 0.8, "same": 0.1, "x": 0.05, "y": 0.05}, abs=0.01)


def test_replacements_draw_no_more_than_they_need():
    rng, expected = random.Random(2), random.Random(2)
    replaced = replacements(["a"] * 50, list(range(50)), "[MASK]", list("bcdef"), rng)
    for token in replaced:
        if expected.random() < 0.8:
            assert token == "[MASK]"
        elif expected.random() < 0.5:
            assert token == "a"
        else:
            assert token == "bcdef"[expected.randint(0, 4)]
    assert rng.getstate() == expected.getstate()
