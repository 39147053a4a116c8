"""Which tensors can be weights: values of every float type arrive as float32, everything else is named."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints import tf1
from official_bert.io.errors import InputError

VALUES = [[1.5, -2.0], [0.25, 1e6]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_floats_become_float32(tmp_path, dtype):
    prefix = str(tmp_path / "a")
    tf1.write(prefix, {"w": np.array(VALUES, dtype)})
    checkpoint = tf1.Tf1Checkpoint(prefix)
    tf1.check_type(checkpoint, "w")
    weight = tf1.read_weight(checkpoint, "w")
    assert weight.dtype == np.float32
    np.testing.assert_array_equal(weight, np.array(VALUES, dtype).astype(np.float32))


@pytest.mark.parametrize(
    ("value", "said"), [(1.01e6, "1.01e+06"), (-3e30, "-3e+30"), (1e300, "inf"), (np.nan, "nan"), (-np.inf, "-inf")]
)
def test_values_of_no_sound_model_are_named(tmp_path, value, said):
    prefix = str(tmp_path / "a")
    tf1.write(prefix, {"w": np.array([0.0, value])})
    with pytest.raises(InputError) as refusal:
        tf1.read_weight(tf1.Tf1Checkpoint(prefix), "w")
    assert f"a: w holds {said}, so the checkpoint is damaged or of a run that diverged" in str(refusal.value)


def test_a_step_is_an_integer(tmp_path):
    prefix = str(tmp_path / "a")
    tf1.write(prefix, {"global_step": np.float32(3), "w": np.int64(3)})
    checkpoint = tf1.Tf1Checkpoint(prefix)
    tf1.check_type(checkpoint, "w", is_float=False)
    with pytest.raises(InputError, match="global_step has the type float32, which is none of int32, int64;"):
        tf1.check_type(checkpoint, "global_step", is_float=False)


def test_variables_are_looked_through_as_they_are_now():
    variables = {
        "a": tf.Variable([1.0, -1e6]),
        "b": tf.Variable([[0.5]]),
        "step": tf.Variable(2**40, dtype=tf.int64),
        "empty": tf.zeros([0, 3]),
    }
    assert tf1.find_invalid(variables) is None
    for value, said in ((np.nan, "nan"), (np.inf, "inf"), (-2e6, "-2e+06")):
        variables["b"].assign([[value]])
        assert tf1.find_invalid(variables) == f"b holds {said}"
    variables["b"].assign([[2.0]])
    assert tf1.find_invalid(variables) is None
