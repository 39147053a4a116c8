"""What the losses of examples of several texts share."""

import numpy as np
from keras import ops

from official_bert.modeling.losses import encode_each_text


def test_each_text_is_encoded_by_itself():
    generator = np.random.default_rng(2)
    ids = generator.integers(1, 9, size=(2, 3, 4)).astype(np.int32)
    mask = (generator.random((2, 3, 4)) < 0.7).astype(np.int32)
    table = generator.normal(size=(9, 5)).astype(np.float32)

    def encode(features):
        assert features["input_ids"].shape == (6, 4)
        vectors = ops.take(table, features["input_ids"], axis=0)
        return vectors * ops.cast(features["input_mask"], "float32")[..., None]

    features = {"input_ids": ops.convert_to_tensor(ids), "input_mask": ops.convert_to_tensor(mask)}
    outputs = encode_each_text(encode, features)
    np.testing.assert_array_equal(outputs, table[ids] * mask[..., None])
