"""Vectors of tokens: packed, in 8 bits, in a file, and searched as loops over them do."""

import numpy as np
import pytest

from official_bert.extensions.late_interaction import token_vectors
from official_bert.extensions.late_interaction.token_vectors import (
    TokenVectors,
    score_blocks,
    search,
)
from official_bert.io.errors import InputError

GENERATOR = np.random.default_rng(1)


def draw(count: int, width: int = 6) -> list[np.ndarray]:
    texts = []
    for _ in range(count):
        vectors = GENERATOR.normal(size=(GENERATOR.integers(1, 9), width))
        texts.append(np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True)))
    return texts


TEXTS, QUERIES = draw(40), draw(9)
DOCUMENTS = TokenVectors.pack(TEXTS, 6)
PACKED_QUERIES = TokenVectors.pack(QUERIES, 6)
SCORES = np.array([[(query @ text.T).max(axis=1).sum() for text in TEXTS] for query in QUERIES])


def test_scores_are_those_of_each_pair(monkeypatch):
    monkeypatch.setattr(token_vectors, "_DOCUMENT_ROWS", 7)
    monkeypatch.setattr(token_vectors, "_QUERY_ROWS", 4)
    blocks = list(score_blocks(PACKED_QUERIES, DOCUMENTS))
    assert [len(block) for block in blocks] == [4, 4, 1]
    np.testing.assert_allclose(np.concatenate(blocks), SCORES, rtol=1e-5, atol=1e-6)


def test_a_search_of_all_documents_finds_the_largest_scores(monkeypatch):
    monkeypatch.setattr(token_vectors, "_DOCUMENT_ROWS", 7)
    for row, hits in enumerate(search(PACKED_QUERIES, DOCUMENTS, 5, 40)):
        order = np.argsort(-SCORES[row])[:5]
        assert [number for number, _ in hits] == order.tolist()
        assert [score for _, score in hits] == pytest.approx(SCORES[row, order], rel=1e-5)


def test_only_candidates_with_near_means_are_scored():
    def unit_mean(vectors):
        mean = vectors.mean(axis=0)
        return mean / np.linalg.norm(mean)

    for query, row_scores, hits in zip(
        QUERIES, SCORES, search(PACKED_QUERIES, DOCUMENTS, 3, 10), strict=True
    ):
        nearness = [unit_mean(query) @ unit_mean(text) for text in TEXTS]
        candidates = np.sort(np.argsort(-np.array(nearness))[:10])
        best = candidates[np.argsort(-row_scores[candidates])[:3]]
        assert [row for row, _ in hits] == best.tolist()


def test_of_equal_documents_the_first_comes_first():
    same = TokenVectors.pack([TEXTS[0]] * 5, 6)
    (hits,) = search(TokenVectors.pack(QUERIES[:1], 6), same, 3, 5)
    assert [row for row, _ in hits] == [0, 1, 2]
    assert search(TokenVectors.pack([], 6), same, 3, 5) == []


def test_8_bits_change_little_and_take_a_quarter(tmp_path):
    small = DOCUMENTS.quantize()
    assert small.values.dtype == np.int8
    assert small.values.nbytes * 4 == DOCUMENTS.values.nbytes
    for row, text in enumerate(TEXTS):
        np.testing.assert_allclose(small.text(row), text, atol=np.abs(text).max() / 254 + 1e-6)
    (scores,) = score_blocks(TokenVectors.pack(QUERIES[:1], 6), small)
    np.testing.assert_allclose(scores, SCORES[:1], atol=0.1)
    for vectors in (DOCUMENTS, small):
        path = str(tmp_path / "vectors.npz")
        vectors.save(path)
        loaded = TokenVectors.load(path)
        np.testing.assert_array_equal(loaded.values, vectors.values)
        np.testing.assert_array_equal(loaded.starts, vectors.starts)
        assert (loaded.scales is None) == (vectors.scales is None)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "vectors.npz"
    with pytest.raises(InputError, match=r"is no file of TokenVectors\.save"):
        TokenVectors.load(str(path))
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InputError, match=r"is no file of TokenVectors\.save"):
        TokenVectors.load(str(path))
    np.savez(path, values=np.zeros((3, 2)))
    with pytest.raises(InputError, match=r"is no file of TokenVectors\.save"):
        TokenVectors.load(str(path))
    np.savez(path, values=np.zeros((3, 2)), starts=np.array([0, 4]))
    with pytest.raises(InputError, match="its vectors and texts do not fit"):
        TokenVectors.load(str(path))
