"""The Keras optimizer makes the updates of the project's own step, in `fit` and beside it, and
is saved whole.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertClassifier, BertConfig, keras_optimizer
from official_bert.checkpoints import named_variables
from official_bert.modeling import heads
from official_bert.optimization import KerasAdamWeightDecay, WarmupLinearDecay
from official_bert.tasks.classification.glue import MnliProcessor
from official_bert.tasks.classification.task import ClassificationTask
from tests import toy
from tests.golden_model import steps_of

UPDATES, BATCH, LENGTH = 10, 4, 9
CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT)


def batches() -> dict[str, np.ndarray]:
    """Features of all updates, [updates, batch, ...]; ids repeat within a batch."""
    draws = np.random.default_rng(2)
    shape = (UPDATES, BATCH, LENGTH)
    lengths = draws.integers(4, LENGTH + 1, (UPDATES, BATCH, 1))
    return {
        "input_ids": draws.integers(0, 12, shape).astype(np.int32),
        "input_mask": (np.arange(LENGTH) < lengths).astype(np.int32),
        "segment_ids": draws.integers(0, 2, shape).astype(np.int32),
        "label_ids": draws.integers(0, 3, shape[:2]).astype(np.int32),
        "is_real_example": np.ones(shape[:2], np.int32),
    }


def trained_by_the_step(model, features) -> dict[str, np.ndarray]:
    """Trains as the scripts do; returns the weights and the slots by name."""
    weights = {name: variable.value for name, variable in named_variables(model).items()}
    run, optimizer = steps_of(
        ClassificationTask(MnliProcessor()).objective(model),
        weights,
        WarmupLinearDecay(0.002, 12, 3),
    )
    for update in range(UPDATES):
        run({name: tf.constant(values[update][None]) for name, values in features.items()}, 1)
    return {name: variable.numpy() for name, variable in (weights | optimizer.slots).items()}


def test_ten_updates_are_those_of_the_step(monkeypatch):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    features = batches()
    # Its gradients are large enough to be clipped.
    monkeypatch.setattr(heads, "HEAD_INITIALIZER_RANGE", 1.0)
    # No name of a model counts.
    ours, theirs = (BertClassifier(CONFIG, 3), BertClassifier(CONFIG, 3, name="bias"))
    theirs.set_weights(ours.get_weights())
    initial = {name: variable.numpy() for name, variable in named_variables(ours).items()}
    expected = trained_by_the_step(ours, features)

    optimizer = keras_optimizer(0.002, num_train_steps=12, num_warmup_steps=3)
    theirs.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    inputs = {
        name: features[name].reshape(-1, LENGTH)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    theirs.fit(
        inputs,
        features["label_ids"].reshape(-1),
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
    )

    assert int(optimizer.iterations) == UPDATES
    for name, variable in named_variables(theirs).items():
        np.testing.assert_allclose(
            variable.numpy(),
            expected[name],
            rtol=0,
            atol=1e-6,
            err_msg=name,
        )
    assert max(np.abs(expected[name] - initial[name]).max() for name in initial) > 0.01, (
        "the weights have moved"
    )
    slots = {slot.path: slot.numpy() for slot in optimizer.variables}
    for index, variable in enumerate(theirs.trainable_variables):
        name = {id(value): name for name, value in named_variables(theirs).items()}[id(variable)]
        for slot, value in (("adam_m", optimizer._m[index]), ("adam_v", optimizer._v[index])):
            np.testing.assert_allclose(
                value.numpy(),
                expected[f"{name}/{slot}"],
                rtol=1e-3,
                atol=2e-7,
            )
    assert len(slots) == 2 + 2 * len(theirs.trainable_variables) - 1


@pytest.mark.parametrize("rate", [{}, {"num_train_steps": 9, "num_warmup_steps": 4}])
def test_the_configuration_makes_it_again(rate):
    optimizer = keras_optimizer(0.25, weight_decay_rate=0.125, **rate)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is KerasAdamWeightDecay
    assert again.get_config() == optimizer.get_config()
    assert (again.weight_decay_rate, again.global_clipnorm) == (0.125, 1.0)
    again.build([])
    assert float(again.learning_rate) == (0.0 if rate else 0.25)
