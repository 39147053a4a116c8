import numpy as np
import pytest

from official_bert.data.corpus.documents import Documents
from official_bert.data.corpus.instances import Instances, InstanceSettings, InstanceVocabulary
from official_bert.data.corpus.sentence_pairs import SentencePair
from official_bert.errors import InputError

SETTINGS = InstanceSettings(
    max_seq_length=10, dupe_factor=1, short_seq_prob=0.1, masked_lm_prob=0.15, max_predictions_per_seq=3
)
VOCABULARY = InstanceVocabulary(cls_id=101, sep_id=102, mask_id=103, word_ids=[], continues=[])


def three_instances() -> Instances:
    ids = np.arange(1, 21, dtype=np.uint16)  # token k of the corpus is k + 1
    instances = Instances(Documents(ids, np.array([0, 20]), np.array([0, 1])), VOCABULARY, SETTINGS)
    instances.append(SentencePair(0, 3, 1, 10, 14, True), [8, 2], [103, 77])  # as drawn: not sorted
    instances.append(SentencePair(18, 19, 0, 19, 20, False), [], [])  # a word too long to mask: no prediction
    instances.append(SentencePair(5, 6, 0, 6, 9, False), [3, 1, 5], [103, 6, 103])
    return instances


def test_features():
    features = three_instances().features(np.array([2, 0, 1]))
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


def test_batches_cover_the_order():
    batches = list(three_instances().batches(np.array([2, 0, 1]), batch_size=2))
    assert [batch["input_ids"][:, 1].tolist() for batch in batches] == [[6, 1], [19]]


def test_vocabulary_with_repeated_pieces():
    # Lines a, [CLS], ##b, a, [SEP], [MASK], [UNK]: the repeated WordPiece keeps its position and has its last id.
    vocabulary = InstanceVocabulary.of({"a": 3, "[CLS]": 1, "##b": 2, "[SEP]": 4, "[MASK]": 5, "[UNK]": 6})
    assert vocabulary.word_ids == [3, 1, 2, 4, 5, 6]
    assert vocabulary.continues == [False, False, True, False, False, False, False]
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (1, 4, 5)


def test_missing_special_tokens_are_named():
    with pytest.raises(InputError, match=r"the vocabulary lacks \[CLS\], \[MASK\], \[UNK\]; add a line"):
        InstanceVocabulary.of({"a": 0, "[SEP]": 1})
