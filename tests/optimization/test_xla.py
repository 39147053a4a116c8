"""A function is compiled by XLA, unless TensorFlow is the package for TPUs, which cannot."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.optimization.xla import compiled_by_xla, has_xla


@pytest.mark.parametrize(("devices", "compiles"), [(["CPU"], True), (["CPU", "TPU_SYSTEM"], False)])
def test_a_function_is_compiled_where_tensorflow_can(monkeypatch, devices, compiles):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [name for name in devices if name == kind]
    )
    was_eager = []

    @compiled_by_xla
    def root_of_sum(x, y):
        """Adds, and takes the root."""
        was_eager.append(tf.executing_eagerly())
        return tf.sqrt(x + y)

    assert has_xla() == compiles
    for _ in range(2):
        np.testing.assert_allclose(root_of_sum(tf.constant([9.0, 1.0]), 7.0), [4.0, 8.0**0.5], rtol=1e-6)
    # A compiled function is traced in a graph, once; a plain one runs at each call.
    assert was_eager == ([False] if compiles else [True, True])
    assert root_of_sum.__doc__ == "Adds, and takes the root."
