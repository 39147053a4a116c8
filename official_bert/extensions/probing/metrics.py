"""Metrics of vectors with labels: clusters and simple classifiers of frozen vectors.

Input: vectors, float32[n, width], and the label of each, int or str [n]. Output: {name: value}.
Only this module imports scikit-learn, when a metric needs it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.io.errors import InputError

SHOTS = (8, 16)  # The numbers of training examples of each label.
Labels = Sequence | np.ndarray


class LabelledVectors(NamedTuple):
    """Vectors, float32[n, width], and their labels."""

    vectors: np.ndarray
    labels: Labels


def clustering(vectors: np.ndarray, labels: Labels, seed: int = 0) -> dict[str, float]:
    """Return how well clusters agree with labels; there are as many clusters as labels.

    The V-measure (Rosenberg and Hirschberg, 2007) is the harmonic mean of two shares: how far each
    cluster has one label, and how far each label is in one cluster. The clusters are those of
    k-means in batches, as in MTEB (Muennighoff et al., 2023).

    Args:
        vectors: float32[n, width].
        labels: their labels.
        seed: the seed of k-means.

    Returns:
        The V-measure, from 0 to 1, as `v_measure`.
    """
    sklearn = _import_sklearn()
    num_labels = len(np.unique(labels))
    k_means = sklearn.cluster.MiniBatchKMeans(
        num_labels,
        batch_size=500,
        n_init="auto",
        random_state=seed,
    )
    clusters = k_means.fit_predict(vectors)
    return {"v_measure": float(sklearn.metrics.v_measure_score(labels, clusters))}


def few_shot(
    train: LabelledVectors,
    test: LabelledVectors,
    shots: Sequence[int] = SHOTS,
    num_draws: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """Return the accuracy of a logistic regression that learns from few examples of each label.

    Args:
        train: the vectors from which examples are drawn.
        test: the vectors to classify.
        shots: the numbers of training examples of each label.
        num_draws: the number of draws, at least 2. A draw depends only on the seed, its own number
            and the number of shots.
        seed: the seed of the draws.

    Returns:
        The mean over the draws, as `accuracy_8` for 8 shots, and their standard deviation, as
        `accuracy_8_std`.

    Raises:
        InputError: a label has too few examples.
    """
    sklearn = _import_sklearn()
    regression = sklearn.linear_model.LogisticRegression(max_iter=1000)
    vectors = np.asarray(train.vectors, np.float64)
    labels = np.asarray(train.labels)
    expected_labels = np.asarray(test.labels)
    names, counts = np.unique(labels, return_counts=True)
    if counts.min() < max(shots):
        rarest_name = str(names[counts.argmin()])
        raise InputError(
            f"the label {rarest_name!r} has {counts.min()} examples to draw {max(shots)} from; "
            "give it more, or draw fewer"
        )
    rows_by_label = [np.flatnonzero(labels == name) for name in names]
    metrics = {}
    for num_shots in shots:
        accuracies = []
        for draw in range(num_draws):
            generator = np.random.default_rng([seed, num_shots, draw])
            rows = [generator.choice(rows, num_shots, replace=False) for rows in rows_by_label]
            regression.fit(vectors[np.concatenate(rows)], np.repeat(names, num_shots))
            predictions = regression.predict(test.vectors)
            accuracies.append(np.mean(predictions == expected_labels))
        metrics[f"accuracy_{num_shots}"] = float(np.mean(accuracies))
        metrics[f"accuracy_{num_shots}_std"] = float(np.std(accuracies, ddof=1))
    return metrics


def _import_sklearn() -> Any:
    try:
        import sklearn.cluster
        import sklearn.linear_model
        import sklearn.metrics
    except ImportError as error:
        raise InputError(
            "clustering and few-shot accuracy need scikit-learn, which cannot be imported "
            f"({error}); pip install 'official-bert[evaluation]'"
        ) from None
    return sklearn
