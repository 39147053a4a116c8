"""The original's optimizer, LAMB by its formula, the treatment of gradients before them, and
XLA.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from official_bert.optimization import (
    EXCLUDED_FROM_DECAY,
    OPTIMIZERS,
    AdamWeightDecayOptimizer,
    LambOptimizer,
    adam,
    clip_by_global_norm,
    dense_gradients,
)
from official_bert.optimization.adam import Moments, compiled_by_xla, has_xla


def make_variable(values) -> tf.Variable:
    return tf.Variable(np.float32(values))


def apply(optimizer, weight, gradient):
    """Makes an update of one weight."""
    optimizer.apply_gradients([(tf.constant(gradient), weight)])


def test_three_updates_by_hand():
    # m' = .9 m + .1 g, v' = .999 v + .001 g^2, u = m' / (sqrt(v') + 1e-6) + .01 w, w' = w - lr u
    rates = tf.constant([0.1, 0.1, 0.05])
    # The gradient, and m, v and the weight after each update.
    updates = [
        (0.5, 0.05, 0.00025, 0.682792),
        (0.5, 0.095, 0.00049975, 0.257169),
        (-0.2, 0.0655, 0.00053925025, 0.116015),
    ]
    optimizer = AdamWeightDecayOptimizer(lambda step: rates[step], weight_decay_rate=0.01)
    weight = make_variable(1.0)
    optimizer.build([("w/kernel", weight)])
    slots = optimizer.slots
    for gradient, m, v, w in updates:
        apply(optimizer, weight, gradient)
        assert_allclose(slots["w/kernel/adam_m"], m, rtol=1e-6)
        assert_allclose(slots["w/kernel/adam_v"], v, rtol=1e-6)
        assert_allclose(weight, w, atol=5e-7)  # recorded to six digits
    assert int(optimizer.global_step) == 3


@pytest.mark.parametrize(
    ("name", "decays"),
    [
        ("bert/embeddings/word_embeddings", True),
        ("a/dense/kernel", True),
        ("cls/seq_relationship/output_weights", True),
        ("a/dense/bias", False),
        ("output_bias", False),
        ("bert/embeddings/LayerNorm/gamma", False),
        ("x/layer_norm/beta", False),
    ],
)
def test_the_name_decides_about_decay(name, decays):
    optimizer = AdamWeightDecayOptimizer(
        1.0,
        weight_decay_rate=0.01,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    assert optimizer.decays(name) == decays


def test_nothing_decays_without_a_rate():
    assert not AdamWeightDecayOptimizer(1.0).decays("a/dense/kernel")


def test_a_variable_without_gradient_is_not_touched():
    moving = make_variable(1.0)
    fixed = make_variable(1.0)
    optimizer = AdamWeightDecayOptimizer(0.1, weight_decay_rate=0.5)
    optimizer.build([("moving", moving), ("fixed", fixed)])
    gradients = dense_gradients([tf.constant(3.0), None])
    moving_gradient, fixed_gradient = clip_by_global_norm(gradients)
    optimizer.apply_gradients(
        [
            (moving_gradient, moving),
            (fixed_gradient, fixed),
        ]
    )
    assert float(fixed) == 1.0
    assert float(optimizer.slots["fixed/adam_m"]) == 0.0
    # The gradient 3 is clipped to 1.
    denominator = np.sqrt(0.001) + 1e-6
    update = 0.1 / denominator + 0.5
    expected = 1.0 - 0.1 * update
    assert_allclose(moving, expected, rtol=1e-6)


def test_the_norm_is_that_of_the_summed_rows():
    table = make_variable([[0], [0], [0], [0]])
    with tf.GradientTape() as tape:
        # Row 2 is looked up twice with gradients 3 and -3, row 1 once with 0.6.
        rows = tf.gather(table, [2, 2, 1])
        row_gradients = tf.constant([3.0, -3.0, 0.6])
        loss = tf.reduce_sum(rows[:, 0] * row_gradients)
    expected = [[0], [0.6], [0], [0]]
    sparse_gradient = tape.gradient(loss, table)
    gradients = dense_gradients([sparse_gradient])
    assert_allclose(gradients[0], expected)
    # The norm is 0.6, below 1: nothing is scaled. The norm of the single rows would be 4.3.
    clipped = clip_by_global_norm(gradients)
    assert_allclose(clipped[0], expected)


@pytest.mark.parametrize(
    "make_optimizer",
    [
        pytest.param(
            functools.partial(AdamWeightDecayOptimizer, bias_correction=True),
            id="argument",
        ),
        pytest.param(OPTIMIZERS["adamw_bias_correction"], id="name"),
    ],
)
def test_bias_correction_by_numpy(make_optimizer):
    rng = np.random.default_rng(5)
    weight = make_variable(draw_normal(rng, shape=(3, 4)))
    optimizer = make_optimizer(0.02, weight_decay_rate=0.01)
    optimizer.build([("w/kernel", weight)])
    w = weight.numpy().astype(np.float64)
    m = 0.0
    v = 0.0
    for number in range(1, 6):
        gradient = draw_normal(rng, shape=(3, 4))
        apply(optimizer, weight, gradient)
        m = 0.9 * m + 0.1 * gradient
        square = gradient.astype(np.float64) ** 2
        v = 0.999 * v + 0.001 * square
        direction = corrected_direction(m, v, number)
        update = direction + 0.01 * w
        w = w - 0.02 * update
        assert_allclose(weight, w, atol=2e-6)
    # Slots are not corrected.
    slot = optimizer.slots["w/kernel/adam_v"]
    assert_allclose(slot, v, rtol=1e-5)


def draw_normal(rng, shape, scale: float = 1.0) -> np.ndarray:
    draws = rng.normal(scale=scale, size=shape)
    return draws.astype(np.float32)


def corrected_direction(m, v, number: int):
    """Returns Adam's direction with bias correction at update `number`, counted from 1."""
    corrected_m = m / (1 - 0.9**number)
    corrected_v = v / (1 - 0.999**number)
    denominator = np.sqrt(corrected_v) + 1e-6
    return corrected_m / denominator


def test_averages_follow_the_decay_formula():
    """The decay rate of update t, counted from 0, is min(0.3, (1 + t) / (10 + t))."""
    weight = make_variable([1.0, -2.0])
    optimizer = AdamWeightDecayOptimizer(0.5, ema_decay=0.3)
    optimizer.build([("w/kernel", weight)])
    optimizer.start_averages()
    average = weight.numpy().astype(np.float64)
    expected_decays = [
        1 / 10,
        2 / 11,
        3 / 12,
        0.3,
        0.3,
    ]
    for decay in expected_decays:
        apply(optimizer, weight, gradient=[0.5, -1.0])
        w = weight.numpy()
        average = decay * average + (1 - decay) * w
        assert_allclose(
            optimizer.slots["w/kernel/ema"],
            average,
            rtol=1e-6,
        )


@pytest.mark.parametrize(
    ("devices", "compiles"),
    [
        pytest.param({"CPU"}, True, id="CPU"),
        pytest.param({"CPU", "TPU_SYSTEM"}, False, id="TPU"),
    ],
)
def test_a_function_is_compiled_where_tensorflow_can(monkeypatch, devices, compiles):
    def list_devices(device_type):
        return sorted(devices & {device_type})

    monkeypatch.setattr(tf.config, "list_physical_devices", list_devices)
    was_eager = []

    @compiled_by_xla
    def root_of_sum(x, y):
        """Adds, and takes the root."""
        was_eager.append(tf.executing_eagerly())
        return tf.sqrt(x + y)

    assert has_xla() == compiles
    x = tf.constant([9.0, 1.0])
    expected = [4.0, 8.0**0.5]
    for _ in range(2):
        roots = root_of_sum(x, 7.0)
        assert_allclose(roots, expected, rtol=1e-6)
    # A compiled function is traced in a graph, once; a plain one runs at each call.
    assert was_eager == ([False] if compiles else [True, True])
    assert root_of_sum.__doc__ == "Adds, and takes the root."


def make_shapes() -> dict[str, tuple[int, ...]]:
    """Returns the shapes of an encoder's variables by their names."""
    shapes = {}
    for number in range(3):
        layer = f"bert/encoder/layer_{number}"
        shapes[f"{layer}/dense/kernel"] = (5, 3)
        shapes[f"{layer}/dense/bias"] = (3,)
        shapes[f"{layer}/LayerNorm/gamma"] = (3,)
    shapes["bert/pooler/dense/kernel"] = (3, 3)
    shapes["bert/pooler/dense/bias"] = (3,)
    return shapes


SHAPES = make_shapes()


def draw_values(rng) -> dict[str, np.ndarray]:
    return {name: draw_normal(rng, shape) for name, shape in SHAPES.items()}


def rate_share(name: str) -> float:
    """Returns the share of the learning rate that a variable has."""
    return 0.5 if "layer_1" in name else 1.0


@pytest.mark.parametrize("kind", OPTIMIZERS.values())
def test_launches_are_few_and_have_the_bits_of_each_variable_alone(kind, monkeypatch):
    rng = np.random.default_rng(3)
    values = draw_values(rng)
    gradients = draw_values(rng)

    def update_twice(names) -> tuple[dict[str, bytes], int]:
        """Makes two updates; returns the bits of the variables and their slots, and the number of
        launches of one update.
        """
        optimizer = kind(
            0.1,
            weight_decay_rate=0.01,
            exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
            ema_decay=0.9,
        )
        variables = {name: make_variable(values[name]) for name in names}
        optimizer.build(variables.items(), rate_share)

        @tf.function
        def update():
            pairs = []
            for name, variable in variables.items():
                gradient = tf.constant(gradients[name])
                pairs.append((gradient, variable))
            optimizer.apply_gradients(pairs)

        graph = update.get_concrete_function().graph
        types = [operation.type for operation in graph.get_operations()]
        num_launches = sum("PartitionedCall" in type_ for type_ in types)
        update()
        update()
        bits = {}
        for name, variable in (variables | optimizer.slots).items():
            bits[name] = variable.numpy().tobytes()
        return bits, num_launches

    names = list(SHAPES)
    bits_in_vectors, num_vectors = update_twice(names)
    monkeypatch.setattr(adam, "_MIN_GROUPED_SIZE", 0)
    bits_in_layers, num_layers = update_twice(names)
    bits_alone = {}
    for name in names:
        bits, _ = update_twice([name])
        bits_alone |= bits
    assert bits_in_vectors == bits_in_layers == bits_alone
    assert num_layers == 4
    # A vector for each learning rate. LAMB scales each decayed variable by its norm, so that only
    # the others are in vectors.
    assert num_vectors == (6 if kind is LambOptimizer else 2)


RATE = 0.05
DECAY = 0.01


def lamb(w, m, v, gradient, number, is_scaled, decay):
    """Returns the weight and its moments after update `number`, counted from 1."""
    m = 0.9 * m + 0.1 * gradient
    v = 0.999 * v + 0.001 * gradient**2
    direction = corrected_direction(m, v, number)
    r = direction + decay * w
    ratio = 1.0
    weight_norm = np.linalg.norm(w)
    if is_scaled and weight_norm:
        ratio = weight_norm / np.linalg.norm(r)
    return w - RATE * ratio * r, m, v


@pytest.mark.parametrize(
    ("name", "is_scaled", "size"),
    [
        pytest.param("a/dense/kernel", True, 1.0, id="kernel"),
        # The ratio has no bound.
        pytest.param("a/dense/kernel", True, 100.0, id="large kernel"),
        # No name puts a kernel into the vector of small variables.
        pytest.param("vector/dense/kernel", True, 1.0, id="scope vector"),
        pytest.param("a/dense/bias", False, 1.0, id="bias"),
        pytest.param("a/LayerNorm/gamma", False, 1.0, id="layer norm"),
    ],
)
def test_five_updates_of_lamb_by_numpy(name, is_scaled, size):
    rng = np.random.default_rng(7)
    variable = make_variable(draw_normal(rng, shape=(4, 3), scale=size))
    optimizer = LambOptimizer(
        RATE,
        weight_decay_rate=DECAY,
        exclude_from_weight_decay=EXCLUDED_FROM_DECAY,
    )
    optimizer.build([(name, variable)])
    w = variable.numpy().astype(np.float64)
    m = 0.0
    v = 0.0
    for number in range(1, 6):
        gradient = draw_normal(rng, shape=(4, 3))
        apply(optimizer, variable, gradient)
        w, m, v = lamb(
            w,
            m,
            v,
            gradient=gradient.astype(np.float64),
            number=number,
            is_scaled=is_scaled,
            decay=DECAY if is_scaled else 0.0,
        )
        assert_allclose(variable, w, atol=3e-6 * size)
    assert optimizer.slots.keys() == {f"{name}/adam_m", f"{name}/adam_v"}


class Lion(AdamWeightDecayOptimizer):
    """Lion (Chen et al., 2023): the sign of one momentum."""

    slot_names = ("adam_m",)

    def _rule(self, name: str):
        return lion_updated


def lion_updated(weight, moments, gradient, rate, decay, constants):
    beta_1 = constants.beta_1
    beta_2 = constants.beta_2
    mixed = beta_1 * moments.m + (1.0 - beta_1) * gradient
    direction = tf.sign(mixed)
    m = beta_2 * moments.m + (1.0 - beta_2) * gradient
    update = direction + decay * weight
    return weight - rate * update, Moments(m)


@pytest.mark.parametrize("is_applied", [None, True, False])
def test_an_optimizer_with_one_moment(is_applied):
    weight = make_variable(1.0)
    optimizer = Lion(0.1, weight_decay_rate=0.01, beta_2=0.99)
    optimizer.build([("w/kernel", weight)])
    is_applied_tensor = None if is_applied is None else tf.constant(is_applied)
    for gradient in (0.5, -0.2):
        pairs = [(tf.constant(gradient), weight)]
        optimizer.apply_gradients(pairs, is_applied_tensor)
    assert optimizer.slots.keys() == {"w/kernel/adam_m"}
    if is_applied is False:
        assert_allclose(weight, 1.0)
        return
    # The directions are sign(0.05) = 1 and sign(0.9 * 0.005 - 0.02) = -1.
    first = 1.0 - 0.1 * (1.0 + 0.01)
    second = first - 0.1 * (-1.0 + 0.01 * first)
    assert_allclose(weight, second, rtol=1e-6)
    m = 0.99 * 0.005 - 0.01 * 0.2
    slot = optimizer.slots["w/kernel/adam_m"]
    assert_allclose(slot, m, rtol=1e-5)


def test_weights_of_zero_move_by_the_rate():
    variable = make_variable([0.0, 0.0, 0.0, 0.0])
    optimizer = LambOptimizer(RATE, weight_decay_rate=DECAY)
    optimizer.build([("a/kernel", variable)])
    gradient = np.float32([1.0, -1.0, 2.0, -3.0])
    apply(optimizer, variable, gradient)
    expected = -RATE * np.sign(gradient)
    assert_allclose(variable, expected, rtol=1e-4)
