"""Predictions come back in the order of the set, whatever was batched with what."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert.training import loop
from official_bert.training.loop import compiled_outputs, predict

LENGTHS = np.random.default_rng(2).integers(1, 30, 23)


@pytest.mark.parametrize("pad_to_longest", [True, False])
@pytest.mark.parametrize("batch_size", [1, 4, 50])
def test_every_example_gets_its_own_answer(pad_to_longest, batch_size):
    seen = []

    class Encoded:
        lengths = LENGTHS

        def features(self, rows, length):
            seen.append(length)
            return {"row": rows, "mask": (np.arange(length) < LENGTHS[rows][:, None]).astype(np.float32)}

    def outputs(batch):
        return {
            "sum": tf.reduce_sum(batch["mask"], axis=1),
            "pair": tf.stack([batch["row"], batch["row"] * 2], axis=1),
            "mask": batch["mask"],
        }

    strategy = tf.distribute.get_strategy()
    run = compiled_outputs(strategy, outputs)
    found = predict(run, strategy, Encoded(), batch_size, 32, pad_to_longest)
    np.testing.assert_array_equal(found["sum"], LENGTHS)
    np.testing.assert_array_equal(found["pair"], [[k, 2 * k] for k in range(23)])
    np.testing.assert_array_equal(found["mask"], np.arange(32) < LENGTHS[:, None])
    if pad_to_longest:
        assert seen == sorted(seen, reverse=True)
        assert all(length % 8 == 0 for length in seen)
    else:
        assert set(seen) == {32}


@pytest.mark.parametrize(("on_tpu", "sizes"), [(False, [10, 10, 3]), (True, [10, 10, 10])])
def test_batches_on_a_tpu_have_one_size(monkeypatch, on_tpu, sizes):
    """So a TPU compiles once; a batch that is filled with copies of its last example gives no more answers."""

    class Encoded:
        lengths = LENGTHS

        def features(self, rows, length):
            return {"row": rows}

    ran = []

    def run(batch):
        ran.append(len(batch["row"]))
        return {"double": 2 * batch["row"]}

    monkeypatch.setattr(loop, "is_tpu", lambda strategy: on_tpu)
    found = predict(run, tf.distribute.get_strategy(), Encoded(), 10, 32, pad_to_longest=False)
    np.testing.assert_array_equal(found["double"], 2 * np.arange(23))
    assert ran == sizes
