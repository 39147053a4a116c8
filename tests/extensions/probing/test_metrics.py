"""Tests of classifiers and clusters of vectors, beside scikit-learn."""

import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score

from official_bert.extensions.probing.metrics import LabelledVectors, clustering, few_shot
from official_bert.io.errors import InputError
from tests.metrics.vectors import WIDTH, close, draw_vectors


def draw_clusters(
    seed: int,
    num: int,
    names: str,
    spread: float,
) -> LabelledVectors:
    """Draw vectors around one centre for each label.

    Args:
        seed: The seed of the generator.
        num: The number of vectors.
        names: The labels, one character each.
        spread: The standard deviation around a centre.
    """
    numbers = np.arange(num) % len(names)
    centres = np.eye(len(names), WIDTH)
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=(num, WIDTH))
    vectors = centres[numbers] + spread * noise
    labels = np.array(list(names))
    return LabelledVectors(np.float32(vectors), labels[numbers])


def rounded(values: list[float]) -> set[float]:
    return set(np.round(values, 9))


def test_clusters_are_compared_with_labels():
    vectors, labels = draw_clusters(1, 300, "abc", 0.1)
    metrics = clustering(vectors, labels, seed=1)
    assert metrics == close({"v_measure": 1.0})

    # Which two of the three clusters are joined depends on the seed.
    two_labels = np.where(labels == "c", "a", labels)
    measures = []
    for seed in range(8):
        metrics = clustering(vectors, two_labels, seed)
        measures.append(metrics["v_measure"])
    possible = [v_measure_score(two_labels, labels == name) for name in "abc"]
    assert rounded(measures) == rounded(possible)

    again = clustering(vectors, two_labels, seed=3)
    assert again == {"v_measure": measures[3]}


def few_shot_accuracy(
    train: LabelledVectors,
    test: LabelledVectors,
    shots: int,
    seed: tuple[int, ...],
) -> float:
    """Fit scikit-learn's regression to some examples of each label and return its accuracy."""
    generator = np.random.default_rng(seed)
    rows = []
    for name in "xyz":
        label_rows = np.flatnonzero(train.labels == name)
        rows.extend(generator.choice(label_rows, shots, replace=False))
    vectors = np.float64(train.vectors[rows])
    model = LogisticRegression(max_iter=1000)
    model.fit(vectors, train.labels[rows])
    return model.score(test.vectors, test.labels)


def test_few_shot_draws_examples_of_each_label_by_numbered_draws():
    train = draw_clusters(1, 60, "xyz", 1.0)
    test = draw_clusters(2, 90, "xyz", 1.0)

    metrics = few_shot(train, test, shots=(2, 5), num_draws=3, seed=4)

    expected = {}
    for shots in (5, 2):
        accuracies = []
        for draw in (2, 1, 0):
            seed = (4, shots, draw)
            accuracy = few_shot_accuracy(train, test, shots, seed)
            accuracies.append(accuracy)
        deviation = np.std(accuracies, ddof=1)
        expected[f"accuracy_{shots}"] = np.mean(accuracies)
        expected[f"accuracy_{shots}_std"] = deviation
    assert metrics == close(expected)


def test_few_shot_has_two_numbers_of_shots_by_default():
    train = draw_clusters(1, 60, "xyz", 1.0)
    test = draw_clusters(2, 90, "xyz", 1.0)
    metrics = few_shot(train, test, num_draws=2)
    assert len(metrics) == 4


def test_few_shot_refuses_more_shots_than_examples():
    test = draw_clusters(1, 60, "xyz", 1.0)
    vectors, labels = test
    train = LabelledVectors(vectors[2:6], labels[2:6])
    message = r"the label 'x' has 1 examples to draw 8 from; give it more"
    with pytest.raises(InputError, match=message):
        few_shot(train, test, shots=(1, 8))


def test_an_error_says_how_to_install_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    vectors = draw_vectors(1, 3, WIDTH)
    message = r"need scikit-learn, .*; pip install 'official-bert\[evaluation\]'"
    with pytest.raises(InputError, match=message):
        clustering(vectors, [0, 1, 1])
