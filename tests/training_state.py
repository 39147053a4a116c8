"""Weights and Adam slots of one training run against those of another, each kind at a tolerance that fits its size.

Most second moments are below 1e-6, so an absolute tolerance that suits weights would let zeros pass: they are compared
relatively. Some biases (of keys, of SQuAD's head) have a gradient of 0 but for rounding; what rounding leaves in their
second moments, up to 1e-17, agrees in nothing, and NOISE allows for it.
"""

from collections.abc import Mapping

import numpy as np

SECOND_MOMENTS = 1e-3  # relative; beta_2 = 0.9991 instead of 0.999 moves them by a tenth
NOISE = 1e-16


def assert_close(actual: Mapping, expected: Mapping, *, weights: float, first_moments: float):
    """The same variables with the same values, within rounding.

    Args:
        actual: arrays or tf.Variables by name in a checkpoint: weights, slots, and maybe `global_step`.
        expected: likewise.
        weights: absolute tolerance of weights.
        first_moments: absolute tolerance of `adam_m`.
    """
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        absolute, relative = weights, 0.0
        if name.endswith("adam_m"):
            absolute = first_moments
        elif name.endswith("adam_v"):
            absolute, relative = NOISE, SECOND_MOMENTS
        np.testing.assert_allclose(
            np.asarray(actual[name]), value, rtol=relative, atol=absolute, err_msg=name
        )


def assert_equal(actual: Mapping, expected: Mapping):
    """The same variables with the same bits."""
    assert sorted(actual) == sorted(expected)
    for name, value in expected.items():
        assert np.asarray(actual[name]).tobytes() == np.asarray(value).tobytes(), name
