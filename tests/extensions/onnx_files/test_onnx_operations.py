"""Operations of TensorFlow, written into ONNX graphs, compute the same in onnxruntime."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.io.errors import InputError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from official_bert.extensions.onnx_files.onnx_operations import OPERATIONS
from tests.extensions.onnx_files.onnx_models import compile_onnx, compute_in_tensorflow

pytestmark = pytest.mark.needs_extra("onnx", "onnxruntime")

NAMES = ("a", "b", "c")
SHAPE = (2, 5)
ONE = tf.Variable(1)  # a weight that the body of a loop reads


def draw_inputs() -> dict[str, np.ndarray]:
    draws = np.random.default_rng(1)
    return {name: draws.integers(-4, 5, SHAPE).astype(np.int32) for name in NAMES}


def floats(x):
    """Positive and negative floats of an input, most of them no integers."""
    return tf.cast(x, tf.float32) * 0.7 + 0.1


def positive(x):
    return tf.abs(floats(x)) + 0.2


def make_rows(x):
    """Rows of 3, 0, 5 and 2 of the values."""
    return tf.RaggedTensor.from_row_splits(
        tf.reshape(x, [-1]), tf.constant([0, 3, 3, 8, 10], tf.int64), validate=False
    )


def make_texts(x):
    """Texts with 0 to 3 separators, and an empty one."""
    texts = tf.constant(["", "--", "ä--b", "a----b", "a-b---", "abc"])
    return tf.gather(texts, tf.concat([tf.range(6), tf.abs(x[0])], 0))


CASES = {
    "All": lambda a, b, c: tf.reduce_all(a > -4, axis=1),
    "Any": lambda a, b, c: tf.reduce_any(a > 3, axis=0, keepdims=True),
    "ArgMax": lambda a, b, c: tf.argmax(floats(a), axis=1, output_type=tf.int32),
    "ArgMax of int64": lambda a, b, c: tf.argmax(floats(a), axis=0),
    "BatchMatMulV2": lambda a, b, c: tf.matmul(
        floats(a)[:, None], floats(b)[:, None], adjoint_b=True
    ),
    "BroadcastTo": lambda a, b, c: tf.broadcast_to(a[:, :1], tf.shape(b)),
    "ConcatV2": lambda a, b, c: tf.concat([a, b, c], axis=-1),
    "Cumsum": lambda a, b, c: tf.cumsum(a, axis=1, exclusive=True),
    "Cumsum, reverse": lambda a, b, c: tf.cumsum(a, axis=-1, reverse=True),
    "DenseBincount": lambda a, b, c: tf.math.bincount(tf.abs(a), minlength=7, maxlength=7),
    "DivNoNan": lambda a, b, c: tf.math.divide_no_nan(floats(a), tf.cast(b, tf.float32)),
    "EnsureShape": lambda a, b, c: tf.ensure_shape(a, [2, None]),
    "Equal": lambda a, b, c: tf.equal(a, b),
    "Erf": lambda a, b, c: tf.math.erf(floats(a)),
    "Exp": lambda a, b, c: tf.exp(floats(a)),
    "ExpandDims": lambda a, b, c: tf.expand_dims(a, -1),
    "Fill": lambda a, b, c: tf.fill([tf.shape(a)[0]], 3.5),
    "Floor": lambda a, b, c: tf.floor(floats(a)),
    "FloorDiv": lambda a, b, c: a // tf.where(b > 0, 3, -3),
    "FloorMod": lambda a, b, c: a % tf.where(b > 0, 3, -3),
    "GatherNd": lambda a, b, c: tf.gather_nd(a, tf.where(b[:, :1] > 0, 1, 0)),
    "GatherV2": lambda a, b, c: tf.gather(a, [3, 0, 3], axis=1),
    "GatherV2 of batches": lambda a, b, c: tf.gather(a, tf.abs(b), batch_dims=1),
    "GatherV2, an item of each row": lambda a, b, c: tf.gather(a, tf.abs(b[:, 0]), batch_dims=1),
    "Greater": lambda a, b, c: a > b,
    "GreaterEqual": lambda a, b, c: a >= b,
    "IsFinite": lambda a, b, c: tf.math.is_finite(tf.math.log(tf.nn.relu(floats(a)))),
    "Less": lambda a, b, c: a < b,
    "LessEqual": lambda a, b, c: a <= b,
    "Log": lambda a, b, c: tf.math.log(positive(a)),
    "Log1p": lambda a, b, c: tf.math.log1p(positive(a)),
    "LogSoftmax": lambda a, b, c: tf.nn.log_softmax(floats(a)),
    "LogicalAnd": lambda a, b, c: (a > 0) & (b > 0),
    "LogicalNot": lambda a, b, c: ~(a > 0),
    "LogicalOr": lambda a, b, c: (a > 0) | (b > 0),
    "MatMul": lambda a, b, c: tf.matmul(floats(a), floats(b), transpose_b=True),
    "MatMul of a constant": lambda a, b, c: tf.matmul(
        tf.constant(np.ones((3, 2), np.float32)), floats(a)
    ),
    "Max": lambda a, b, c: tf.reduce_max(a, axis=1),
    "Maximum": lambda a, b, c: tf.maximum(a, b),
    "Mean": lambda a, b, c: tf.reduce_mean(floats(a), axis=[0, 1]),
    "Min": lambda a, b, c: tf.reduce_min(a, axis=0, keepdims=True),
    "Minimum": lambda a, b, c: tf.minimum(a, b),
    "NotEqual": lambda a, b, c: tf.not_equal(a, b),
    "OneHot": lambda a, b, c: tf.one_hot(a, 3, 7, 5),
    "OneHot of bools": lambda a, b, c: tf.one_hot(a, 3, True, False),
    "OnesLike": lambda a, b, c: tf.ones_like(a),
    "Pack": lambda a, b, c: tf.stack([a, b, c], axis=1),
    "Pad": lambda a, b, c: tf.pad(a, [[0, 0], [2, 1]]),
    "Pad to a computed length": lambda a, b, c: tf.pad(a, [[0, 0], [0, 9 - tf.shape(a)[1]]]),
    "PadV2": lambda a, b, c: tf.pad(floats(a), [[1, 0], [0, 2]], constant_values=7.0),
    "Pow": lambda a, b, c: tf.pow(positive(a), 1.5),
    "Prod": lambda a, b, c: tf.reduce_prod(a, axis=1),
    "RaggedGather": lambda a, b, c: tf.gather(make_rows(a), [3, 1, 1, 0]).values,
    "RaggedGather, its splits": lambda a, b, c: tf.gather(make_rows(a), [3, 1, 1]).row_splits,
    "RaggedRange": lambda a, b, c: tf.ragged.range(a[0], b[0]).values,
    "RaggedRange, its splits": lambda a, b, c: tf.ragged.range(tf.abs(b[0])).row_splits,
    "RaggedTensorToTensor": lambda a, b, c: make_rows(a).to_tensor(9),
    "RaggedTensorToTensor of texts": lambda a, b, c: (
        make_rows(a).with_values(tf.constant([*"abcdefghij"])).to_tensor("-")
    ),
    "RaggedTensorToTensor by rows": lambda a, b, c: tf.RaggedTensor.from_value_rowids(
        a[0], tf.constant([0, 0, 2, 3, 3]), 6, validate=False
    ).to_tensor(),
    "Range": lambda a, b, c: tf.range(tf.shape(a)[1]),
    "RealDiv": lambda a, b, c: floats(a) / positive(b),
    "Relu": lambda a, b, c: tf.nn.relu(floats(a)),
    "Reshape": lambda a, b, c: tf.reshape(a, [tf.shape(a)[1], -1]),
    "Round": lambda a, b, c: tf.round(floats(a)),
    "Rsqrt": lambda a, b, c: tf.math.rsqrt(positive(a)),
    "SegmentMax": lambda a, b, c: tf.math.segment_max(floats(a), [0, 1]),
    "SegmentMean": lambda a, b, c: tf.math.segment_mean(
        tf.transpose(floats(a)), tf.constant([0, 0, 1, 1, 1]) + 0 * a[0]
    ),
    "SelectV2": lambda a, b, c: tf.where(a > 0, b, c),
    "SelectV2 of bools": lambda a, b, c: tf.where(a > 0, b > 1, c > 2),
    "Sigmoid": lambda a, b, c: tf.sigmoid(floats(a)),
    "Sign": lambda a, b, c: tf.sign(floats(a)),
    "Size": lambda a, b, c: tf.size(a),
    "Softmax": lambda a, b, c: tf.nn.softmax(floats(a)),
    "Softplus": lambda a, b, c: tf.math.softplus(floats(a)),
    "Split": lambda a, b, c: tf.split(tf.concat([a, b], 1), 2, axis=1)[1],
    "Square": lambda a, b, c: tf.square(floats(a)),
    "SquaredDifference": lambda a, b, c: tf.math.squared_difference(floats(a), floats(b)),
    "Squeeze": lambda a, b, c: tf.squeeze(a[:, None], axis=1),
    "Sqrt": lambda a, b, c: tf.sqrt(positive(a)),
    "StringSplitV2": lambda a, b, c: tf.strings.split(make_texts(a), "--").to_tensor("*"),
    "StringSplitV2 of empty texts": lambda a, b, c: tf.strings.split(
        make_texts(a)[:1], "--"
    ).to_tensor("*"),
    "Sum": lambda a, b, c: tf.reduce_sum(a, axis=[-1], keepdims=True),
    "Tanh": lambda a, b, c: tf.tanh(floats(a)),
    "TensorScatterUpdate": lambda a, b, c: tf.tensor_scatter_nd_update(a, [[0, 1], [1, 4]], [8, 9]),
    "Tile": lambda a, b, c: tf.tile(a, [1, 2]),
    "TopKV2": lambda a, b, c: tf.math.top_k(a, 3).indices,
    "Transpose": lambda a, b, c: tf.transpose(a),
    "Unpack": lambda a, b, c: tf.unstack(tf.reshape(a, [2, 5]), axis=0)[1],
    "UnsortedSegmentMax": lambda a, b, c: tf.math.unsorted_segment_max(a[0], tf.abs(b[0]), 6),
    "UnsortedSegmentMax of floats": lambda a, b, c: tf.math.unsorted_segment_max(
        tf.transpose(floats(a)), tf.abs(b[0]), 6
    ),
    "UnsortedSegmentMin": lambda a, b, c: tf.math.unsorted_segment_min(a[0], tf.abs(b[0]), 6),
    "UnsortedSegmentSum": lambda a, b, c: tf.math.unsorted_segment_sum(
        tf.transpose(a), tf.abs(b[0]), 6
    ),
    "Where": lambda a, b, c: tf.where(a > 0),
    "ZerosLike": lambda a, b, c: tf.zeros_like(floats(a)),
    "a called function": lambda a, b, c: _add_one(_add_one(a)),
    "texts": lambda a, b, c: tf.gather(tf.constant(["", "x", "größer"]), tf.where(a > 0, 2, 0)),
}


def loop(x, y, limit):
    """Adds numbers in a loop until a sum is reached; y does not change in it."""

    def add(total, other):
        doubled = tf.cond(total < 10, lambda: total + ONE, lambda: total * 2)
        return doubled + tf.reduce_sum(y), other

    return tf.while_loop(
        lambda total, _: total < limit, add, (x, y), shape_invariants=(x.shape, y.shape)
    )[0]


def loop_lists(x, limit):
    """Concatenates the results of iterations, which have different lengths."""

    def write(step, results):
        return step + 1, results.write(step, tf.range(step))

    _, results = tf.while_loop(
        lambda step, _: step < limit, write, (0, tf.TensorArray(tf.int32, limit, infer_shape=False))
    )
    return results.concat()


LOOPS = {
    "a loop and a branch": lambda a, b, c: loop(a[0, 0], tf.abs(b) + 1, 900),
    "a loop without iterations": lambda a, b, c: loop(a[0, 0], tf.abs(b) + 1, -9),
    "a loop in a loop": lambda a, b, c: tf.while_loop(
        lambda total: total < 5000,
        lambda total: [loop(total, tf.abs(b) + 1, total + 99)],
        [a[0, 0]],
    )[0],
    "lists": lambda a, b, c: loop_lists(a, tf.abs(a[0, 0]) + 4),
    "a branch": lambda a, b, c: tf.cond(a[0, 0] > b[0, 0], lambda: a + c, lambda: b),
    "the other branch": lambda a, b, c: tf.cond(a[0, 0] <= b[0, 0], lambda: a + c, lambda: b),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches(name):
    assert_same(LOOPS[name])


@tf.function(autograph=False)
def _add_one(x):
    return tf.where(x > 1, x + 1, x * 2)


SLICES = [
    np.s_[1],
    np.s_[-1],
    np.s_[:, 0],
    np.s_[:, -1],
    np.s_[:, 1:],
    np.s_[:, :-2],
    np.s_[:, 1:4:2],
    np.s_[:, ::-1],
    np.s_[:, 3:0:-1],
    np.s_[:1, None],
    np.s_[None, 1, ..., None],
    np.s_[..., 2],
    np.s_[..., None, :3],
    np.s_[:, 4:9],
    np.s_[:, 4:2],
]


def assert_same(compute):
    inputs = draw_inputs()

    def outputs(features: dict) -> dict:
        return {"result": compute(*(features[name] for name in NAMES))}

    computed = compile_onnx(outputs, names=NAMES)(inputs)["result"]
    expected = compute_in_tensorflow(outputs, inputs)["result"]
    assert computed.dtype == expected.dtype
    if expected.dtype == np.float32:
        np.testing.assert_allclose(computed, expected, atol=1e-5, rtol=1e-5)
    else:
        np.testing.assert_array_equal(computed, expected)


@pytest.mark.parametrize("name", CASES)
def test_an_operation(name):
    assert_same(CASES[name])


@pytest.mark.parametrize("item", SLICES, ids=str)
def test_a_slice(item):
    assert_same(lambda a, b, c: a[item])


def test_a_slice_to_a_computed_position():
    assert_same(lambda a, b, c: a[:, 1 : tf.shape(b)[1] - 1])
    assert_same(lambda a, b, c: a[:, tf.shape(b)[0]])


def test_every_operation_has_a_case():
    """Aliases of the operations above, and those that every graph has."""
    aliases = {"Add", "AddV2", "BiasAdd", "BatchMatMul", "Select", "Sub", "Mul", "Neg", "Abs"}
    lists = {"TensorListConcatV2", "TensorListReserve", "TensorListSetItem"}  # of LOOPS
    everywhere = lists | {"Cast", "Const", "Identity", "IdentityN", "Shape", "StridedSlice"}
    only_in_trainings = {"PreventGradient", "StopGradient"}
    named = {name.split()[0].rstrip(",") for name in CASES}
    assert OPERATIONS.keys() - named <= aliases | everywhere | only_in_trainings


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        pytest.param(
            lambda a, b, c: tf.bitwise.bitwise_and(a, b),
            "the operation BitwiseAnd of the model .* has no ONNX form; give --export_format",
            id="unknown operation",
        ),
        pytest.param(
            lambda a, b, c: tf.transpose(a, tf.argsort(tf.shape(a))),
            "has no ONNX form|must be a constant for ONNX",
            id="computed axes",
        ),
        pytest.param(
            lambda a, b, c: tf.gather(a[:, :, None], tf.abs(b), batch_dims=1),
            "gathers rows of batches, which has no ONNX form here; give --export_format=litert",
            id="rows of batches",
        ),
    ],
)
def test_what_has_no_onnx_form_is_refused(compute, message):
    with pytest.raises(InputError, match=message):
        assert_same(compute)
