"""Exports that TensorFlow 2.21 wrote give their outputs in this version of TensorFlow, such as that
of TensorFlow Serving 2.20.

The outputs were computed by TensorFlow 2.21: see tests/golden/record_exports.py.
"""

import tarfile

import numpy as np
import pytest
import tensorflow as tf

from tests.golden.record_exports import ARCHIVE, EXPORTS, make_requests
from tests.serving.answers import TOLERANCE, call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_of_tensorflow_2_21_gives_its_outputs(folder, name):
    signatures = tf.saved_model.load(str(folder / name)).signatures
    recorded = np.load(folder / name / "outputs.npz")
    num_compared = 0
    for signature, inputs in make_requests(name).items():
        for output, values in call(signatures[signature], inputs).items():
            expected = recorded[f"{signature}/{output}"]
            if expected.dtype == np.float32:
                np.testing.assert_allclose(values, expected, atol=TOLERANCE, rtol=TOLERANCE)
            elif expected.dtype.kind == "S":
                assert values.tolist() == expected.tolist()
            else:
                np.testing.assert_array_equal(values, expected)
            num_compared += 1
    assert num_compared == len(recorded.files)
