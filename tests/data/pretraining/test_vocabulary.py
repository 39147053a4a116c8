"""The counts are so small that the characters and WordPieces can be chosen by hand."""

import pytest

from official_bert.data.pretraining.vocabulary import SPECIAL_TOKENS, learn_vocabulary, select_words
from official_bert.io.errors import InputError
from official_bert.tokenization import BasicTokenizer


def test_words_come_by_frequency_and_then_by_name():
    counts = {"b": 1, "c": 3, "a": 1}
    words = select_words(counts, character_coverage=1.0, max_words=10)
    assert words.counts == [
        ("c", 3),
        ("a", 1),
        ("b", 1),
    ]
    assert words.characters == frozenset("abc")
    assert words.share == 1.0


def test_rare_characters_go_with_their_words():
    # 12 characters: e 6, a 5, z 1. The share 11/12 is covered by e and a.
    counts = {"ea": 4, "e": 1, "eaz": 1}
    words = select_words(counts, character_coverage=11 / 12, max_words=10)
    assert words.counts == [
        ("ea", 4),
        ("e", 1),
    ]
    assert words.share == 5 / 6
    all_words = select_words(counts, character_coverage=0.95, max_words=10)
    assert len(all_words.counts) == 3


def test_overlong_words_and_those_beyond_the_limit_are_left_out():
    longest_word = "x" * 50
    overlong_word = "x" * 51
    counts = {
        overlong_word: 9,
        longest_word: 8,
        "b": 7,
        "a": 1,
    }
    words = select_words(counts, character_coverage=1.0, max_words=2)
    assert words.counts == [
        (longest_word, 8),
        ("b", 7),
    ]
    with pytest.raises(InputError, match="no word to learn from"):
        select_words({overlong_word: 3}, character_coverage=1.0, max_words=10)


def learn(counts, vocab_size, min_frequency=1):
    words = select_words(counts, character_coverage=1.0, max_words=100)
    return learn_vocabulary(words, vocab_size, min_frequency, BasicTokenizer())


def test_special_tokens_characters_words_and_fill():
    counts = {"ab": 5, "cab": 1, ",": 9, "北": 3}
    vocabulary = learn(counts, vocab_size=16, min_frequency=2)
    special_tokens = vocabulary.lines[:5]
    characters = vocabulary.lines[5:10]
    pieces = vocabulary.lines[10:14]
    fill = vocabulary.lines[14:]
    # The comma and the ideograph never continue a word. "cab" is too rare; "##ab" occurs once.
    assert special_tokens == list(SPECIAL_TOKENS)
    assert characters == [",", "a", "b", "c", "北"]
    assert sorted(pieces) == ["##a", "##b", "##c", "ab"]
    assert fill == ["[unused0]", "[unused1]"]
    assert vocabulary.num_learnt == 9
    assert vocabulary.num_cut == 0


def test_what_does_not_fit_is_cut_but_never_a_character():
    # Four words of one frequency: no threshold gives two.
    counts = {"aaaa": 5, "bbbb": 5, "cccc": 5, "dddd": 5}
    vocabulary = learn(counts, vocab_size=15)
    first_characters = ["a", "b", "c", "d"]
    characters = {*first_characters, *(f"##{one}" for one in first_characters)}
    words = {"aaaa", "bbbb"}
    assert len(vocabulary.lines) == 15
    assert set(vocabulary.lines) == {*SPECIAL_TOKENS, *characters, *words}
    assert vocabulary.num_cut == 2


def test_a_size_below_the_characters_names_the_least():
    # 5 special tokens, a, b, ##a, ##b and the comma.
    counts = {"ab": 5, ",": 1}
    with pytest.raises(InputError, match="at least 10"):
        learn(counts, vocab_size=9)
