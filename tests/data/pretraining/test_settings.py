"""What the generators take from a vocabulary."""

import pytest

from official_bert.data.pretraining.settings import InstanceVocabulary
from official_bert.io.errors import InputError


def test_vocabulary_with_repeated_pieces():
    # Lines a, [CLS], ##b, a, [SEP], [MASK], [UNK]: the repeated WordPiece keeps its position and has its last id.
    vocabulary = InstanceVocabulary.of({"a": 3, "[CLS]": 1, "##b": 2, "[SEP]": 4, "[MASK]": 5, "[UNK]": 6})
    assert vocabulary.word_ids == [3, 1, 2, 4, 5, 6]
    assert vocabulary.continues == [False, False, True, False, False, False, False]
    assert (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id) == (1, 4, 5)


def test_missing_special_tokens_are_named():
    with pytest.raises(InputError, match=r"the vocabulary lacks \[CLS\], \[MASK\], \[UNK\]; add a line"):
        InstanceVocabulary.of({"a": 0, "[SEP]": 1})
