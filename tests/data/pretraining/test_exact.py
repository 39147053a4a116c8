"""The original's records of the toy corpus, Python's draws; tests/compat compares all rules with an oracle."""

import hashlib
import random

import numpy as np
import pytest

from official_bert.data.pretraining.documents import Documents, read_documents
from official_bert.data.pretraining.exact import (
    Instances,
    SentencePair,
    create_instances,
    num_predictions,
    randbelow,
    sentence_pairs,
    shuffle,
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


def test_a_length_without_room_for_both_sides_is_refused():
    with pytest.raises(InputError, match="max_seq_length is 4; it must be at least 5"):
        list(sentence_pairs(0, 1, [[0, 3]].__getitem__, 4, 0.1, random.Random(1)))


@pytest.mark.parametrize(
    ("length", "expected"),
    [(3, 1), (30, 4), (70, 10), (110, 16), (128, 19), (512, 20)],  # 4.5, 10.5 and 16.5 round to even
)
def test_number_of_predictions(length, expected):
    assert num_predictions(length, 0.15, 20) == expected


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
