"""LAMB equals its formula in numpy; biases, layer norms and zero norms have no trust ratio."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization import EXCLUDED_FROM_DECAY, LambOptimizer

RATE, DECAY = 0.05, 0.01


def lamb(w, m, v, gradient, number, is_scaled, decay):
    m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
    r = (m / (1 - 0.9**number)) / (np.sqrt(v / (1 - 0.999**number)) + 1e-6) + decay * w
    ratio = np.linalg.norm(w) / np.linalg.norm(r) if is_scaled and np.linalg.norm(w) else 1.0
    return w - RATE * ratio * r, m, v


@pytest.mark.parametrize(
    ("name", "is_scaled", "size"),
    [
        ("a/dense/kernel", True, 1.0),
        ("a/dense/kernel", True, 100.0),  # the ratio has no bound
        ("a/dense/bias", False, 1.0),
        ("a/LayerNorm/gamma", False, 1.0),
    ],
)
def test_five_updates_by_numpy(name, is_scaled, size):
    draws = np.random.default_rng(7)
    variable = tf.Variable(draws.normal(scale=size, size=(4, 3)).astype(np.float32))
    optimizer = LambOptimizer(RATE, weight_decay_rate=DECAY, exclude_from_weight_decay=EXCLUDED_FROM_DECAY)
    optimizer.build([(name, variable)])
    w, m, v = variable.numpy().astype(np.float64), 0.0, 0.0
    for number in range(1, 6):
        gradient = draws.normal(size=(4, 3)).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        w, m, v = lamb(w, m, v, gradient.astype(np.float64), number, is_scaled, DECAY if is_scaled else 0.0)
        np.testing.assert_allclose(variable, w, atol=3e-6 * size)
    assert optimizer.slots.keys() == {f"{name}/adam_m", f"{name}/adam_v"}


def test_weights_of_zero_move_by_the_rate():
    variable = tf.Variable(np.zeros((2, 2), np.float32))
    optimizer = LambOptimizer(RATE, weight_decay_rate=DECAY)
    optimizer.build([("a/kernel", variable)])
    optimizer.apply_gradients([(tf.constant([[1.0, -1.0], [2.0, -3.0]]), variable)])
    np.testing.assert_allclose(variable, -RATE * np.array([[1.0, -1.0], [1.0, -1.0]]), rtol=1e-4)
