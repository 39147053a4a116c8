"""A loss that compares all examples of a batch: its parts, under masks of their own, have the
gradient of the whole.
"""

import numpy as np
import tensorflow as tf

from official_bert.training.whole_batch import MeanLoss, WholeBatch

DRAWS = np.random.default_rng(3)
INPUT_IDS = DRAWS.normal(size=(6, 4))
SCORES = DRAWS.normal(size=6)
FEATURES = {
    "input_ids": tf.constant(INPUT_IDS, tf.float32),
    "scores": tf.constant(SCORES, tf.float32),
}
# Of three parts.
SEEDS = tf.constant(
    [
        [1, 2],
        [3, 4],
        [5, 6],
    ]
)


class Comparison:
    """Linear vectors, of which a seed leaves some components out, and a loss of all their
    products.
    """

    sum_names = ("loss",)
    compared = ("scores",)

    def __init__(self):
        values = DRAWS.normal(size=(4, 5))
        self.kernel = tf.Variable(values, dtype=tf.float32)

    def vectors(self, features, dropout_seed):
        vectors = tf.matmul(features["input_ids"], self.kernel)
        if dropout_seed is None:
            return vectors
        uniform = tf.random.stateless_uniform(tf.shape(vectors), dropout_seed)
        return vectors * tf.cast(uniform < 0.7, tf.float32)

    def batch_loss(self, vectors, features):
        products = tf.matmul(vectors, vectors, transpose_b=True)
        scores = features["scores"]
        return tf.reduce_logsumexp(products * scores[:, None])


def parts_of(features: dict) -> list[dict]:
    """Three parts of two examples."""
    parts = []
    for start in (0, 2, 4):
        rows = slice(start, start + 2)
        parts.append({name: value[rows] for name, value in features.items()})
    return parts


def test_parts_have_the_loss_and_the_gradient_of_the_whole_batch():
    objective = Comparison()
    with tf.GradientTape() as tape:
        vectors = []
        for part, seed in zip(parts_of(FEATURES), SEEDS, strict=True):
            vectors.append(objective.vectors(part, seed))
        all_vectors = tf.concat(vectors, axis=0)
        expected = objective.batch_loss(all_vectors, FEATURES)
    expected_gradient = tape.gradient(expected, objective.kernel)

    whole = WholeBatch(objective)
    totals = whole.totals(FEATURES)
    micro_batches = {}
    for name, value in FEATURES.items():
        _, *inner_shape = value.shape
        micro_batches[name] = tf.reshape(value, [3, 2, *inner_shape])
    features = whole.with_gradients(micro_batches, SEEDS, FEATURES, totals)
    losses = []
    summed_losses = []
    with tf.GradientTape() as tape:
        for part, seed in zip(parts_of(features), SEEDS, strict=True):
            loss, sums = whole.loss(part, totals, seed)
            losses.append(loss)
            summed_losses.append(sums["loss"])
        total = tf.add_n(losses)
    gradient = tape.gradient(total, objective.kernel)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5)
    np.testing.assert_allclose(sum(summed_losses), expected, rtol=1e-6)

    vectors = objective.vectors(FEATURES, None)
    expected = objective.batch_loss(vectors, FEATURES)
    loss, sums = whole.loss(FEATURES, totals, None)
    np.testing.assert_allclose(loss, expected)
    np.testing.assert_allclose(sums["loss"], expected)


def test_an_objective_reports_its_mean_loss():
    objective = MeanLoss()
    assert objective.sum_names == ("loss",)
    assert objective.progress({"loss": 6.0}, 4) == {"loss": 1.5}
