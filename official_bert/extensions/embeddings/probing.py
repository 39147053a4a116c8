"""Metrics of vectors with labels: what clusters and simple classifiers of frozen vectors find of
the labels.

In: vectors, float32[n, width], and the label of each, int or str [n]. Out: {name: value}. The one
module that imports scikit-learn, when it is asked.
"""

from collections.abc import Sequence

import numpy as np

from official_bert.io.errors import InputError

SHOTS = (8, 16)  # how many examples of each label are drawn


def clustering(vectors: np.ndarray, labels: Sequence, seed: int = 0) -> dict[str, float]:
    """Returns how well as many clusters as labels agree with the labels, as `v_measure`, from 0 to
    1.

    The V-measure (Rosenberg and Hirschberg, 2007) is the harmonic mean of two shares: how far each
    cluster has one label, and how far each label is in one cluster. The clusters are those of
    k-means in batches, as in MTEB (Muennighoff et al., 2023).
    """
    sklearn = _scikit_learn()
    num_labels = len(np.unique(labels))
    k_means = sklearn.cluster.MiniBatchKMeans(
        num_labels, batch_size=500, n_init="auto", random_state=seed
    )
    return {
        "v_measure": float(sklearn.metrics.v_measure_score(labels, k_means.fit_predict(vectors)))
    }


def few_shot(
    train_vectors: np.ndarray,
    train_labels: Sequence,
    test_vectors: np.ndarray,
    test_labels: Sequence,
    shots: Sequence[int] = SHOTS,
    num_draws: int = 10,
    seed: int = 0,
) -> dict[str, float]:
    """Returns the accuracy of a logistic regression that learns from few examples of each label.

    Args:
        train_vectors: the vectors of which examples are drawn, with `train_labels`.
        test_vectors: the vectors that the accuracy is of, with `test_labels`.
        shots: how many examples of each label are drawn.
        num_draws: how often, at least 2. A draw depends on the seed, its own number and that of the
            shots alone.
        seed: what the draws begin with.

    Returns:
        The mean over the draws, as `accuracy_8` for 8 shots, and their standard deviation, as
        `accuracy_8_std`.
    """
    regression = _scikit_learn().linear_model.LogisticRegression(max_iter=1000)
    vectors, labels = np.asarray(train_vectors, np.float64), np.asarray(train_labels)
    names, counts = np.unique(labels, return_counts=True)
    if counts.min() < max(shots):
        raise InputError(
            f"the label {str(names[counts.argmin()])!r} has {counts.min()} examples to draw "
            f"{max(shots)} from; give it more, or draw fewer"
        )
    scores = {}
    for num_shots in shots:
        accuracies = []
        for draw in range(num_draws):
            draws = np.random.default_rng([seed, num_shots, draw])
            rows = [
                draws.choice(np.flatnonzero(labels == name), num_shots, replace=False)
                for name in names
            ]
            regression.fit(vectors[np.concatenate(rows)], np.repeat(names, num_shots))
            accuracies.append(np.mean(regression.predict(test_vectors) == np.asarray(test_labels)))
        scores[f"accuracy_{num_shots}"] = float(np.mean(accuracies))
        scores[f"accuracy_{num_shots}_std"] = float(np.std(accuracies, ddof=1))
    return scores


def _scikit_learn():
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
