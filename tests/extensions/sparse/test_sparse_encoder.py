"""SparseEncoder: order, batches, lists, words, search, and what it refuses."""

import numpy as np
import pytest

from official_bert import BertModel, FullTokenizer, InputError, SparseEncoder
from tests.extensions.sparse.trained import TEXTS, write_model
from tests.shown_progress import check_shown_progress


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return SparseEncoder(write_model(tmp_path_factory.mktemp("model") / "trained"))


def test_texts_keep_their_order_whatever_the_batch(encoder):
    whole = encoder.encode(TEXTS)
    assert whole.shape == (4, 50)
    assert whole.dtype == np.float32
    for batch_size in (1, 3):
        assert abs(encoder.encode(TEXTS, batch_size) - whole).max() < 1e-5
    assert abs(encoder.encode(TEXTS[1]) - whole[1]).max() < 1e-5
    assert encoder.encode([]).shape == (0, 50)
    assert abs(encoder.encode_queries(TEXTS) - whole).max() == 0
    assert "query_encoder='model'" in repr(encoder)


def test_progress_is_shown_on_request(encoder, caplog):
    check_shown_progress(encoder, TEXTS, lambda a, b: abs(a - b).max() == 0, caplog)


def test_words_and_lists_are_those_of_the_matrix(encoder):
    matrix = encoder.encode(TEXTS)
    vocabulary = sorted(encoder.tokenizer.vocab, key=encoder.tokenizer.vocab.get)
    for row, words, (indices, weights) in zip(
        matrix.toarray(), encoder.decode(matrix, k=3), encoder.to_lists(matrix), strict=True
    ):
        order = np.argsort(-row, kind="stable")[:3]
        assert words == [(vocabulary[index], row[index]) for index in order]
        assert indices == np.flatnonzero(row).tolist()
        np.testing.assert_array_equal(weights, row[indices])


def test_a_search_ranks_by_dot_products(encoder):
    matrix = encoder.encode(TEXTS)
    query = "The cat sat on the train"
    scores = (encoder.encode_query(query) @ matrix.T).toarray()[0]
    best = np.argsort(-scores)[:2]
    hits = encoder.search(query, TEXTS, k=2)
    assert [hit["row"] for hit in hits] == best.tolist()
    assert [hit["text"] for hit in hits] == [TEXTS[row] for row in best]
    assert [hit["score"] for hit in hits] == pytest.approx(scores[best], rel=1e-5)
    (hits_without_text,) = encoder.search([query], matrix, k=2)
    assert hits_without_text == [{"row": hit["row"], "score": hit["score"]} for hit in hits]
    assert encoder.search([], matrix) == []
    assert len(encoder.search(query, TEXTS, k=9)) == 4


def test_the_largest_words_are_kept(encoder, tmp_path):
    folder = write_model(tmp_path / "kept", max_terms=4)
    kept = SparseEncoder(folder).encode(TEXTS)
    assert kept.getnnz(axis=1).tolist() == [4] * 4
    for row, all_words in zip(kept.toarray(), encoder.encode(TEXTS).toarray(), strict=True):
        order = np.argsort(-all_words)[:4]
        assert set(np.flatnonzero(row)) == {*order}
    assert SparseEncoder(folder, max_terms=2).encode(TEXTS).nnz == 8


def test_long_texts_are_truncated(encoder, tmp_path):
    short = SparseEncoder(write_model(tmp_path / "short"), max_seq_length=4)
    assert encoder.max_seq_length == 12
    assert abs(short.encode("A train left") - short.encode("A train sat")).max() == 0
    assert abs(encoder.encode("A train left") - encoder.encode("A train sat")).max() > 0


def test_what_it_refuses(encoder, base, tmp_path):
    for arguments, message in (
        ({"max_terms": 0}, "max_terms=0: must be a positive"),
        ({"max_seq_length": True}, "max_seq_length=True: must be a positive"),
        ({"max_seq_length": 513}, "max_seq_length=513: the model was made for sequences up to 512"),
    ):
        with pytest.raises(InputError, match=message):
            SparseEncoder(str(base), **arguments)
    with pytest.raises(InputError, match="batch_size=0: must be a positive"):
        encoder.encode(TEXTS, 0)
    with pytest.raises(InputError, match="k=0: must be a positive"):
        encoder.search("a", TEXTS, k=0)
    with pytest.raises(InputError, match="has 7 columns, but the vocabulary 50 words"):
        encoder.search("a", encoder.encode(TEXTS)[:, :7])
    BertModel.from_pretrained(str(base)).save_pretrained(
        str(tmp_path / "plain"), tokenizer=FullTokenizer.from_pretrained(str(base))
    )
    with pytest.raises(InputError, match=r"plain.*: has no cls/predictions/output_bias, the head"):
        SparseEncoder(str(tmp_path / "plain"))
