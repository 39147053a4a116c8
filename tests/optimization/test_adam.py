"""The original's optimizer, LAMB by its formula, the treatment of gradients before them, and
XLA.
"""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization import (
    EXCLUDED_FROM_DECAY,
    OPTIMIZERS,
    AdamWeightDecayOptimizer,
    LambOptimizer,
    clip_by_global_norm,
    dense_gradients,
)
from official_bert.optimization.adam import compiled_by_xla, has_xla


def scalar(value: float) -> tf.Variable:
    return tf.Variable(np.float32(value))


def test_three_updates_by_hand():
    # m' = .9 m + .1 g, v' = .999 v + .001 g^2, u = m' / (sqrt(v') + 1e-6) + .01 w, w' = w - lr u
    gradients_and_rates = [(0.5, 0.1), (0.5, 0.1), (-0.2, 0.05)]
    expected = [
        (0.05, 0.00025, 0.682792),
        (0.095, 0.00049975, 0.257169),
        (0.0655, 0.00053925025, 0.116015),
    ]
    rates = tf.constant([rate for _, rate in gradients_and_rates])
    optimizer = AdamWeightDecayOptimizer(lambda step: rates[step], weight_decay_rate=0.01)
    weight = scalar(1.0)
    optimizer.build([("w/kernel", weight)])
    for (gradient, _), (m, v, w) in zip(gradients_and_rates, expected, strict=True):
        optimizer.apply_gradients([(tf.constant(gradient), weight)])
        np.testing.assert_allclose(optimizer.slots["w/kernel/adam_m"], m, rtol=1e-6)
        np.testing.assert_allclose(optimizer.slots["w/kernel/adam_v"], v, rtol=1e-6)
        np.testing.assert_allclose(weight, w, atol=5e-7)  # recorded to six digits
    assert int(optimizer.global_step) == 3


def test_names_decide_about_decay():
    optimizer = AdamWeightDecayOptimizer(
        1.0,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    decayed = [
        "bert/embeddings/word_embeddings",
        "a/dense/kernel",
        "cls/seq_relationship/output_weights",
    ]
    spared = ["a/dense/bias", "output_bias", "bert/embeddings/LayerNorm/gamma", "x/layer_norm/beta"]
    assert [optimizer.decays(name) for name in decayed + spared] == [True] * 3 + [False] * 4
    assert not AdamWeightDecayOptimizer(1.0).decays("a/dense/kernel")


def test_a_variable_without_gradient_is_not_touched():
    moved, left = scalar(1.0), scalar(1.0)
    optimizer = AdamWeightDecayOptimizer(0.1, weight_decay_rate=0.5)
    optimizer.build([("moved", moved), ("left", left)])
    gradients = clip_by_global_norm(dense_gradients([tf.constant(3.0), None]))
    optimizer.apply_gradients(zip(gradients, [moved, left], strict=True))
    assert float(left) == 1.0
    assert float(optimizer.slots["left/adam_m"]) == 0.0
    # The gradient 3 is clipped to 1: u = .1 / (sqrt(.001) + 1e-6) + .5, w' = 1 - .1 u.
    np.testing.assert_allclose(moved, 1.0 - 0.1 * (0.1 / (np.sqrt(0.001) + 1e-6) + 0.5), rtol=1e-6)


def test_the_norm_is_that_of_the_summed_rows():
    table = tf.Variable(np.zeros((4, 1), np.float32))
    with tf.GradientTape() as tape:
        # Row 2 is looked up twice with gradients 3 and -3, row 1 once with 0.6.
        looked_up = tf.gather(table, [2, 2, 1])
        loss = tf.reduce_sum(looked_up[:, 0] * tf.constant([3.0, -3.0, 0.6]))
    gradients = dense_gradients([tape.gradient(loss, table)])
    np.testing.assert_allclose(gradients[0], [[0], [0.6], [0], [0]])
    # The norm is 0.6, below 1: nothing is scaled. The norm of the single rows would be 4.3.
    np.testing.assert_allclose(clip_by_global_norm(gradients)[0], [[0], [0.6], [0], [0]])


@pytest.mark.parametrize("kind", [AdamWeightDecayOptimizer, OPTIMIZERS["adamw_bias_correction"]])
def test_bias_correction_by_numpy(kind):
    draws = np.random.default_rng(5)
    weight = tf.Variable(draws.normal(size=(3, 4)).astype(np.float32))
    w, m, v = weight.numpy().astype(np.float64), 0.0, 0.0
    given = {"bias_correction": True} if kind is AdamWeightDecayOptimizer else {}
    optimizer = kind(0.02, weight_decay_rate=0.01, **given)
    optimizer.build([("w/kernel", weight)])
    for number in range(1, 6):
        gradient = draws.normal(size=(3, 4)).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), weight)])
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient.astype(np.float64) ** 2
        direction = (m / (1 - 0.9**number)) / (np.sqrt(v / (1 - 0.999**number)) + 1e-6)
        w = w - 0.02 * (direction + 0.01 * w)
        np.testing.assert_allclose(weight, w, atol=2e-6)
    # Slots are not corrected.
    np.testing.assert_allclose(optimizer.slots["w/kernel/adam_v"], v, rtol=1e-5)


def test_averages_follow_the_decay_formula():
    """The decay rate of update t, counted from 0, is min(0.3, (1 + t) / (10 + t))."""
    weight = tf.Variable(np.float32([1.0, -2.0]))
    optimizer = AdamWeightDecayOptimizer(0.5, ema_decay=0.3)
    optimizer.build([("w/kernel", weight)])
    optimizer.start_averages()
    average = weight.numpy().astype(np.float64)
    for decay in (1 / 10, 2 / 11, 3 / 12, 0.3, 0.3):
        optimizer.apply_gradients([(tf.constant([0.5, -1.0]), weight)])
        average = decay * average + (1 - decay) * weight.numpy()
        np.testing.assert_allclose(optimizer.slots["w/kernel/ema"], average, rtol=1e-6)


@pytest.mark.parametrize(("devices", "compiles"), [(["CPU"], True), (["CPU", "TPU_SYSTEM"], False)])
def test_a_function_is_compiled_where_tensorflow_can(monkeypatch, devices, compiles):
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda kind: [name for name in devices if name == kind],
    )
    was_eager = []

    @compiled_by_xla
    def root_of_sum(x, y):
        """Adds, and takes the root."""
        was_eager.append(tf.executing_eagerly())
        return tf.sqrt(x + y)

    assert has_xla() == compiles
    for _ in range(2):
        np.testing.assert_allclose(
            root_of_sum(tf.constant([9.0, 1.0]), 7.0),
            [4.0, 8.0**0.5],
            rtol=1e-6,
        )
    # A compiled function is traced in a graph, once; a plain one runs at each call.
    assert was_eager == ([False] if compiles else [True, True])
    assert root_of_sum.__doc__ == "Adds, and takes the root."


PARTS = {"dense/kernel": (5, 3), "dense/bias": (3,), "LayerNorm/gamma": (3,)}
LAYERS = {
    f"bert/encoder/layer_{k}/{part}": shape for k in range(3) for part, shape in PARTS.items()
}
SHAPES = LAYERS | {"bert/pooler/dense/kernel": (3, 3), "bert/pooler/dense/bias": (3,)}


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_a_layer_is_one_launch_and_has_the_bits_of_its_variables_alone(kind):
    draws = np.random.default_rng(3)
    values, gradients = (
        {name: draws.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
        for _ in range(2)
    )

    def updated(names) -> tuple[dict[str, bytes], int]:
        """Two updates; the bits of the variables and their slots, and the number of the launches
        of one update.
        """
        optimizer = kind(0.1, 0.01, exclude_from_weight_decay=EXCLUDED_FROM_DECAY, ema_decay=0.9)
        variables = {name: tf.Variable(values[name]) for name in names}
        optimizer.build(variables.items(), lambda name: 0.5 if "layer_1" in name else 1.0)
        update = tf.function(
            lambda: optimizer.apply_gradients(
                [(tf.constant(gradients[name]), variables[name]) for name in names]
            )
        )
        graph = update.get_concrete_function().graph
        for _ in range(2):
            update()
        found = {
            name: variable.numpy().tobytes()
            for name, variable in (variables | optimizer.slots).items()
        }
        return found, sum(
            "PartitionedCall" in operation.type for operation in graph.get_operations()
        )

    together, num_launches = updated(list(SHAPES))
    assert num_launches == 4
    alone = [updated([name]) for name in SHAPES]
    assert together == {name: value for found, _ in alone for name, value in found.items()}


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
    optimizer = LambOptimizer(
        RATE,
        weight_decay_rate=DECAY,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    optimizer.build([(name, variable)])
    w, m, v = variable.numpy().astype(np.float64), 0.0, 0.0
    for number in range(1, 6):
        gradient = draws.normal(size=(4, 3)).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        w, m, v = lamb(
            w,
            m,
            v,
            gradient.astype(np.float64),
            number,
            is_scaled,
            DECAY if is_scaled else 0.0,
        )
        np.testing.assert_allclose(variable, w, atol=3e-6 * size)
    assert optimizer.slots.keys() == {f"{name}/adam_m", f"{name}/adam_v"}


def test_weights_of_zero_move_by_the_rate():
    variable = tf.Variable(np.zeros((2, 2), np.float32))
    optimizer = LambOptimizer(RATE, weight_decay_rate=DECAY)
    optimizer.build([("a/kernel", variable)])
    optimizer.apply_gradients([(tf.constant([[1.0, -1.0], [2.0, -3.0]]), variable)])
    np.testing.assert_allclose(variable, -RATE * np.array([[1.0, -1.0], [1.0, -1.0]]), rtol=1e-4)
