"""The expected numbers are the original's output on the toy corpus, or made by hand, and the draws are Python's."""

import hashlib
import random

import numpy as np
import pytest

from official_bert.data.pretraining.documents import Documents, read_documents
from official_bert.data.pretraining.exact import (
    Instances,
    SentencePair,
    create_instances,
    draw_whole_words,
    num_predictions,
    randbelow,
    replacements,
    sentence_pairs,
    shuffle,
    truncated,
)
from official_bert.data.pretraining.settings import InstanceVocabulary, MaskConfig, PairConfig
from official_bert.data.records.framing import encode_examples
from official_bert.io.errors import InputError
from official_bert.tokenization import FullTokenizer
from tests import toy


@pytest.mark.parametrize(
    ("whole_word", "num_files", "num_instances", "next_random", "sha256"),
    [
        (False, 2, 10, 0.3797177640003675, "941a5a06c8c2334e83cc1a63f6f55726762ea7f8e965d2fbe76f7371bb89101c"),
        (True, 1, 12, 0.07321264434084418, "f005c0ce609b1eb07756a6bc27c93115ca639fc20920f16f085716abb890c2e4"),
    ],
)
def test_the_originals_records(tmp_path, whole_word, num_files, num_instances, next_random, sha256):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path))
    documents = read_documents([toy.write_text(tmp_path)], tokenizer)
    config = PairConfig(max_seq_length=24, short_seq_prob=0.1, dupe_factor=2)
    masks = MaskConfig(masked_lm_prob=0.15, max_predictions_per_seq=4, do_whole_word_mask=whole_word)
    rng, visited = random.Random(12345), []
    instances, order = create_instances(
        documents, InstanceVocabulary.of(tokenizer.vocab), config, masks, rng, visited.append
    )
    assert len(instances) == num_instances
    assert sorted(order) == list(range(num_instances))
    assert rng.random() == next_random
    assert visited == [1, 2, 3, 4, 5, 6]
    records = encode_examples(instances.features(np.concatenate([order[k::num_files] for k in range(num_files)])))
    assert hashlib.sha256(b"".join(records)).hexdigest() == sha256


@pytest.mark.parametrize("size", [0, 1, 2, 3, 8, 127, 128, 1000])
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


def scan(rng, bounds, document=0, max_seq_length=13, short_seq_prob=0.1):
    return [
        tuple(pair)
        for pair in sentence_pairs(document, len(bounds), bounds.__getitem__, max_seq_length, short_seq_prob, rng)
    ]


def test_the_next_segments_follow():
    # 10 tokens fit; the first three segments reach them. Draws: length, split after 1 + 1 segments, 0.5 is "next".
    rng = Scripted(0.5, 1, 0.5)
    assert scan(rng, [[0, 4, 6, 10]]) == [(0, 6, 0, 6, 10, False)]
    assert rng.all_used()


def test_a_random_second_side_gives_the_rest_of_the_chunk_back():
    # Document 0 in two segments: split after the first (no choice: one draw of one bit), random; then documents 0
    # (drawn again, as it is the scanned one) and 1, second segment. The second segment of document 0 comes round alone:
    # random without asking.
    rng = Scripted(0.5, 0, 0.49, 0, 1, 1, 1, 0)
    pairs = scan(rng, [[0, 3, 8], [8, 12, 13]])
    assert pairs == [(0, 3, 1, 12, 13, True), (3, 8, 1, 8, 13, True)]
    assert rng.all_used()


def test_a_short_pass_aims_at_fewer_tokens():
    # 0.05 < 0.1: a target of 2 + 1 = 3 tokens, which one segment of 3 reaches; B needs 3 - 3 = 0 and takes one segment.
    rng = Scripted(0.05, 1, 1, 0, 1, 0)
    assert scan(rng, [[0, 3, 6], [6, 7, 8]]) == [(0, 3, 1, 6, 7, True), (3, 6, 1, 6, 7, True)]
    assert rng.all_used()


def test_a_single_document_is_its_own_random_one_after_ten_draws():
    rng = Scripted(0.5, *[0] * 10, 0)
    assert scan(rng, [[0, 3]]) == [(0, 3, 0, 0, 3, True)]
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
        scan(random.Random(1), [[0, 3]], max_seq_length=4)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(3, 1), (30, 4), (70, 10), (110, 16), (128, 19), (512, 20)],  # 4.5, 10.5 and 16.5 round to even
)
def test_number_of_predictions(length, expected):
    assert num_predictions(length, 0.15, 20) == expected


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


VOCABULARY = InstanceVocabulary(cls_id=101, sep_id=102, mask_id=103, word_ids=[], continues=[])


def three_instances() -> Instances:
    ids = np.arange(1, 21, dtype=np.uint16)  # token k of the corpus is k + 1
    documents = Documents(ids, np.array([0, 20]), np.array([0, 1]))
    instances = Instances(documents, VOCABULARY, max_seq_length=10, max_predictions_per_seq=3)
    instances.append(SentencePair(0, 3, 1, 10, 14, True), [8, 2], [103, 77])  # as drawn: not sorted
    instances.append(SentencePair(18, 19, 0, 19, 20, False), [], [])  # a word too long to mask: no prediction
    instances.append(SentencePair(5, 6, 0, 6, 9, False), [3, 1, 5], [103, 6, 103])
    return instances


def test_features():
    instances = three_instances()
    batches = instances.batches(np.array([2, 0, 1]), batch_size=2)
    assert [batch["input_ids"][:, 1].tolist() for batch in batches] == [[6, 1], [19]]
    features = instances.features(np.array([2, 0, 1]))
    expected = {
        "input_ids": [
            [101, 6, 102, 103, 8, 103, 102, 0, 0, 0],
            [101, 1, 77, 3, 102, 11, 12, 13, 103, 102],
            [101, 19, 102, 20, 102, 0, 0, 0, 0, 0],
        ],
        "input_mask": [[1] * 7 + [0] * 3, [1] * 10, [1] * 5 + [0] * 5],
        "segment_ids": [[0] * 3 + [1] * 4 + [0] * 3, [0] * 5 + [1] * 5, [0] * 3 + [1] * 2 + [0] * 5],
        "masked_lm_positions": [[1, 3, 5], [2, 8, 0], [0, 0, 0]],
        "masked_lm_ids": [[6, 7, 9], [2, 14, 0], [0, 0, 0]],
        "masked_lm_weights": [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
        "next_sentence_labels": [[0], [1], [0]],
    }
    assert list(features) == list(expected)
    for name, values in features.items():
        assert values.dtype == (np.float32 if name == "masked_lm_weights" else np.int32), name
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_vocabulary_with_repeated_pieces():
    # Lines a, [CLS], ##b, a, [SEP], [MASK], [UNK]: the repeated WordPiece keeps its position and has its last id.
    vocabulary = InstanceVocabulary.of({"a": 3, "[CLS]": 1, "##b": 2, "[SEP]": 4, "[MASK]": 5, "[UNK]": 6})
    assert vocabulary.word_ids == [3, 1, 2, 4, 5, 6]
    assert vocabulary.continues == [False, False, True, False, False, False, False]
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (1, 4, 5)


def test_missing_special_tokens_are_named():
    with pytest.raises(InputError, match=r"the vocabulary lacks \[CLS\], \[MASK\], \[UNK\]; add a line"):
        InstanceVocabulary.of({"a": 0, "[SEP]": 1})
