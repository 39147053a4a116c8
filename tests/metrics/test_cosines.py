"""The map of vectors, on their principal components."""

import numpy as np
import pytest

from official_bert.metrics.cosines import map_texts


def read_map(vectors: np.ndarray) -> np.ndarray:
    records = list(map_texts([f"text {row}" for row in range(len(vectors))], vectors))
    assert [record["text"] for record in records] == [f"text {row}" for row in range(len(records))]
    return np.array([(record["x"], record["y"]) for record in records])


def test_a_map_keeps_the_distances_in_a_plane():
    """Vectors that differ in two directions only, most of all in the first one."""
    random = np.random.default_rng(0)
    plane = random.normal(size=(50, 2)) * (5.0, 1.0)
    axes, _ = np.linalg.qr(random.normal(size=(8, 2)))
    places = read_map((plane @ axes.T + 3.0).astype(np.float32))
    assert places.std(axis=0) == pytest.approx(plane.std(axis=0), rel=0.05)
    for first, second in ((0, 1), (7, 30)):
        expected = np.linalg.norm(plane[first] - plane[second])
        assert np.linalg.norm(places[first] - places[second]) == pytest.approx(expected, abs=1e-3)
    assert places.mean(axis=0) == pytest.approx([0, 0], abs=1e-4)


def test_vectors_without_two_directions_have_places():
    assert read_map(np.ones((1, 4), np.float32)).tolist() == [[0, 0]]
    assert np.abs(read_map(np.array([[1.0], [3.0]]))).tolist() == [[1, 0], [1, 0]]


def test_large_sets_are_sampled():
    vectors = np.arange(5000.0)[:, None]
    records = list(map_texts(["x" * 999] * 5000, vectors))
    assert len(records) == 1000
    assert {len(record["text"]) for record in records} == {400}
    assert abs(records[0]["x"] - records[-1]["x"]) == pytest.approx(4999)
