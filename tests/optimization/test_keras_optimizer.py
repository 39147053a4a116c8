"""The Keras optimizer makes the updates of the project's own step, in `fit` and beside it, and
is saved whole.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from official_bert import BertClassifier, BertConfig, keras_optimizer
from official_bert.checkpoints import named_variables
from official_bert.modeling import heads
from official_bert.optimization import KerasAdamWeightDecay, WarmupLinearDecay
from official_bert.tasks.classification.glue import MnliProcessor
from official_bert.tasks.classification.task import ClassificationTask
from tests import toy
from tests.golden_model import largest_difference, steps_of

NUM_UPDATES = 10
BATCH = 4
LENGTH = 9
CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | toy.NO_DROPOUT)


def draw_batches() -> dict[str, np.ndarray]:
    """Features of all updates, [updates, batch, ...]; ids repeat within a batch."""
    draws = np.random.default_rng(2)
    shape = (NUM_UPDATES, BATCH, LENGTH)
    lengths = draws.integers(4, LENGTH + 1, (NUM_UPDATES, BATCH, 1))
    is_token = np.arange(LENGTH) < lengths
    return {
        "input_ids": draws.integers(0, 12, shape).astype(np.int32),
        "input_mask": is_token.astype(np.int32),
        "segment_ids": draws.integers(0, 2, shape).astype(np.int32),
        "label_ids": draws.integers(0, 3, shape[:2]).astype(np.int32),
        "is_real_example": np.ones(shape[:2], np.int32),
    }


def train_by_the_step(model, features) -> dict[str, np.ndarray]:
    """Trains as the scripts do; returns the weights and the slots by name."""
    weights = {name: variable.value for name, variable in named_variables(model).items()}
    task = ClassificationTask(MnliProcessor())
    schedule = WarmupLinearDecay(0.002, 12, 3)
    run, optimizer = steps_of(
        task.objective(model),
        weights,
        schedule,
    )
    for update in range(NUM_UPDATES):
        batch = {name: tf.constant(values[update][None]) for name, values in features.items()}
        run(batch, 1)
    state = weights | optimizer.slots
    return {name: variable.numpy() for name, variable in state.items()}


def test_ten_updates_are_those_of_the_step(monkeypatch):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    # Its gradients are large enough to be clipped.
    monkeypatch.setattr(heads, "HEAD_INITIALIZER_RANGE", 1.0)
    features = draw_batches()
    step_model = BertClassifier(CONFIG, 3)
    # The name of a model changes nothing.
    keras_model = BertClassifier(CONFIG, 3, name="bias")
    keras_model.set_weights(step_model.get_weights())
    initial_variables = named_variables(step_model)
    initial = {name: variable.numpy() for name, variable in initial_variables.items()}
    expected = train_by_the_step(step_model, features)

    optimizer = keras_optimizer(0.002, num_train_steps=12, num_warmup_steps=3)
    keras_model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    inputs = {
        name: features[name].reshape(-1, LENGTH)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    labels = features["label_ids"].reshape(-1)
    keras_model.fit(
        inputs,
        labels,
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
    )

    assert int(optimizer.iterations) == NUM_UPDATES
    variables = named_variables(keras_model)
    for name, variable in variables.items():
        assert_allclose(
            variable.numpy(),
            expected[name],
            rtol=0,
            atol=1e-6,
            err_msg=name,
        )
    changes = [largest_difference(expected[name], initial[name]) for name in initial]
    assert max(changes) > 0.01, "the weights have moved"

    names = {id(variable): name for name, variable in variables.items()}
    for index, variable in enumerate(keras_model.trainable_variables):
        name = names[id(variable)]
        slots = {
            "adam_m": optimizer._m[index],
            "adam_v": optimizer._v[index],
        }
        for slot, value in slots.items():
            assert_allclose(
                value.numpy(),
                expected[f"{name}/{slot}"],
                rtol=1e-3,
                atol=2e-7,
            )
    num_weights = len(keras_model.trainable_variables)
    paths = {variable.path for variable in optimizer.variables}
    assert len(paths) == 2 + 2 * num_weights - 1


@pytest.mark.parametrize(
    "schedule_flags",
    [
        pytest.param({}, id="constant"),
        pytest.param({"num_train_steps": 9, "num_warmup_steps": 4}, id="warm-up"),
    ],
)
def test_the_configuration_makes_it_again(schedule_flags):
    optimizer = keras_optimizer(0.25, weight_decay_rate=0.125, **schedule_flags)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is KerasAdamWeightDecay
    assert again.get_config() == optimizer.get_config()
    assert again.weight_decay_rate == 0.125
    assert again.global_clipnorm == 1.0
    again.build([])
    assert float(again.learning_rate) == (0.0 if schedule_flags else 0.25)
