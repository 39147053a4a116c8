"""A loss that compares all examples of a batch: its parts, under masks of their own, have the
gradient of the whole.
"""

import numpy as np
import tensorflow as tf

from official_bert.training.whole_batch import WholeBatch

DRAWS = np.random.default_rng(3)
FEATURES = {
    "input_ids": tf.constant(DRAWS.normal(size=(6, 4)), tf.float32),
    "scores": tf.constant(DRAWS.normal(size=6), tf.float32),
}
SEEDS = tf.constant([[1, 2], [3, 4], [5, 6]])  # of three parts


class Comparison:
    """Linear vectors, of which a seed leaves some components out, and a loss of all their
    products.
    """

    sum_names = ("loss",)
    compared = ("scores",)

    def __init__(self):
        self.kernel = tf.Variable(
            DRAWS.normal(size=(4, 5)),
            dtype=tf.float32,
        )

    def vectors(self, features, dropout_seed):
        vectors = tf.matmul(features["input_ids"], self.kernel)
        if dropout_seed is None:
            return vectors
        return vectors * tf.cast(
            tf.random.stateless_uniform(tf.shape(vectors), dropout_seed) < 0.7,
            tf.float32,
        )

    def batch_loss(self, vectors, features):
        return tf.reduce_logsumexp(
            tf.matmul(vectors, vectors, transpose_b=True) * features["scores"][:, None]
        )


def parts_of(features: dict) -> list[dict]:
    return [
        {name: value[start : start + 2] for name, value in features.items()} for start in (0, 2, 4)
    ]


def test_parts_have_the_loss_and_the_gradient_of_the_whole_batch():
    objective = Comparison()
    with tf.GradientTape() as tape:
        vectors = [objective.vectors(*pair) for pair in zip(parts_of(FEATURES), SEEDS, strict=True)]
        expected = objective.batch_loss(tf.concat(vectors, axis=0), FEATURES)
    expected_gradient = tape.gradient(expected, objective.kernel)

    whole = WholeBatch(objective)
    totals = whole.totals(FEATURES)
    micro_batches = {
        name: tf.reshape(value, [3, 2, *value.shape[1:]]) for name, value in FEATURES.items()
    }
    given = whole.with_gradients(micro_batches, SEEDS, FEATURES, totals)
    with tf.GradientTape() as tape:
        found = [
            whole.loss(part, totals, seed)
            for part, seed in zip(parts_of(given), SEEDS, strict=True)
        ]
        total = tf.add_n([loss for loss, _ in found])
    np.testing.assert_allclose(
        tape.gradient(total, objective.kernel),
        expected_gradient,
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        sum(sums["loss"] for _, sums in found),
        expected,
        rtol=1e-6,
    )

    loss, sums = whole.loss(FEATURES, totals, None)
    np.testing.assert_allclose(
        [loss, sums["loss"]],
        [objective.batch_loss(objective.vectors(FEATURES, None), FEATURES)] * 2,
    )
