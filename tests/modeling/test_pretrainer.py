"""The model against what the original computed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from official_bert import BertConfig, BertPretrainer, InputError
from official_bert.features import ENCODER_INPUTS, MASKED_LM_POSITIONS
from official_bert.modeling import losses
from official_bert.optimization import dense_gradients
from tests.checkpoints.sample import CONFIG as SMALL
from tests.golden_model import (
    BATCHES,
    GRADIENTS,
    LOSSES,
    MASKED_ROWS,
    OUTPUTS,
    golden,  # noqa: F401  a fixture
    largest_difference,
    load_batch,
    load_pretrainer,
    losses_of,
    named_weights,
)


@pytest.mark.parametrize("kind", BATCHES)
def test_outputs_and_losses_equal_the_originals(golden, kind):  # noqa: F811
    expected = np.load(golden / f"{kind}_outputs.npz")
    expected_layers = expected["layers"]
    batch = load_batch(golden, kind)
    pretrainer = load_pretrainer(golden)
    out = pretrainer(batch)
    encoded = out.encoded
    layers = np.stack(encoded.all_encoder_layers)
    labels = batch["masked_lm_ids"].reshape(-1)
    word_losses = losses.cross_entropy(out.masked_lm_logits, labels)
    tolerance = MASKED_ROWS if kind == "masked_rows" else OUTPUTS
    for actual, recorded in (
        (encoded.embedding_output, expected["embedding_output"]),
        (layers, expected_layers),
        (encoded.sequence_output, expected_layers[-1]),
        (encoded.pooled_output, expected["pooled_output"]),
        (out.masked_lm_log_probs, expected["masked_lm_log_probs"]),
        (out.next_sentence_log_probs, expected["next_sentence_log_probs"]),
        (word_losses, expected["masked_lm_example_loss"]),
    ):
        assert largest_difference(actual, recorded) <= tolerance

    batch_losses = losses_of(pretrainer, batch)
    tolerance = MASKED_ROWS if kind == "masked_rows" else LOSSES
    for actual, recorded in (
        (batch_losses.masked_lm, expected["masked_lm_loss"]),
        (batch_losses.next_sentence, expected["next_sentence_loss"]),
        (batch_losses.total, expected["total_loss"]),
    ):
        assert largest_difference(actual, recorded) <= tolerance


@pytest.mark.parametrize("kind", ["usual", "one_prediction"])
def test_gradients_equal_the_originals(golden, kind):  # noqa: F811
    expected = np.load(golden / f"{kind}_gradients.npz")
    pretrainer = load_pretrainer(golden)
    batch = load_batch(golden, kind)
    gradients = compute_gradients(pretrainer, batch)
    assert sorted(gradients) == sorted(expected.files)
    for name, gradient in gradients.items():
        assert largest_difference(gradient, expected[name]) <= GRADIENTS


def compute_gradients(pretrainer, batch) -> dict[str, tf.Tensor]:
    """Computes the dense gradients of the total loss by the names of the weights."""
    weights = dict(named_weights(pretrainer))
    with tf.GradientTape() as tape:
        batch_losses = losses_of(pretrainer, batch)
        loss = batch_losses.total
    gradients = tape.gradient(loss, list(weights.values()))
    return dict(zip(weights, dense_gradients(gradients), strict=True))


def sine_filled_model():
    """The model of the recorded vectors: variable n of the sorted names holds 0.1 sin(1 + k + 31
    n).
    """
    config = BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        type_vocab_size=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    pretrainer = BertPretrainer(config)
    weights = dict(named_weights(pretrainer))
    for n, name in enumerate(sorted(weights)):
        weight = weights[name]
        k = np.arange(np.prod(weight.shape))
        sines = 0.1 * np.sin(1.0 + k + 31.0 * n)
        values = sines.reshape(weight.shape).astype(np.float32)
        weight.assign(values + name.endswith("gamma"))
    return pretrainer


SINE_BATCH = {
    "input_ids": np.int32(
        [
            [2, 7, 11, 3, 8, 3, 0, 0],
            [2, 5, 9, 12, 13, 3, 14, 3],
        ]
    ),
    "input_mask": np.int32(
        [
            [1, 1, 1, 1, 1, 1, 0, 0],
            [1, 1, 1, 1, 1, 1, 1, 1],
        ]
    ),
    "segment_ids": np.int32(
        [
            [0, 0, 0, 0, 1, 1, 0, 0],
            [0, 0, 0, 0, 0, 0, 1, 1],
        ]
    ),
    "masked_lm_positions": np.int32(
        [
            [1, 4, 0],
            [2, 3, 6],
        ]
    ),
    "masked_lm_ids": np.int32(
        [
            [9, 8, 0],
            [9, 20, 14],
        ]
    ),
    "masked_lm_weights": np.float32(
        [
            [1, 1, 0],
            [1, 1, 1],
        ]
    ),
    "next_sentence_labels": np.int32([[0], [1]]),
}


def test_a_model_of_sines_gives_the_recorded_vectors():
    pretrainer = sine_filled_model()
    out = pretrainer(SINE_BATCH)
    encoded = out.encoded
    assert_allclose(
        encoded.embedding_output[0, 0, :3],
        [0.3198602, 1.4462962, 1.0155776],
        atol=2e-6,
    )
    assert_allclose(
        encoded.sequence_output[1, 6, :3],
        [-0.8956438, -0.8337483, 0.5198717],
        atol=2e-6,
    )
    assert_allclose(
        encoded.sequence_output[0, 7, :3],
        [-0.7488718, 0.6947461, 1.9913458],
        atol=2e-6,
    )
    assert_allclose(
        encoded.pooled_output[1, :3],
        [0.0515318, -0.0042502, -0.0561113],
        atol=1e-6,
    )
    assert_allclose(
        losses_of(pretrainer, SINE_BATCH),
        [4.3642597, 3.670907, 0.6933527],
        atol=1e-6,
    )
    assert_allclose(
        out.next_sentence_log_probs,
        [
            [-0.6726679, -0.7140547],
            [-0.6726843, -0.7140375],
        ],
        atol=1e-6,
    )

    gradients = compute_gradients(pretrainer, SINE_BATCH)
    norm = tf.linalg.global_norm(list(gradients.values()))
    assert_allclose(norm, 11.684333, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("masked_lm_positions", 8, "masked_lm_positions holds 8, outside 0 to 7"),
        ("masked_lm_ids", 30, "masked_lm_ids holds 30, outside 0 to 29"),
        ("next_sentence_labels", -1, "next_sentence_labels holds -1"),
    ],
)
def test_values_outside_their_range_are_named(name, value, message):
    values = SINE_BATCH[name].copy()
    values[1, 0] = value
    batch = SINE_BATCH | {name: values}
    with pytest.raises(InputError, match=message):
        losses_of(sine_filled_model(), batch)


def test_labels_are_not_needed_for_an_answer():
    """Features come in any form, too."""
    names = (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
    unlabelled = {name: SINE_BATCH[name].tolist() for name in names}
    model = sine_filled_model()
    out = model(unlabelled)
    expected = model(SINE_BATCH)
    assert_array_equal(out.masked_lm_log_probs, expected.masked_lm_log_probs)


SMALL_IDS = np.int32(
    [
        [2, 7, 9, 3],
        [2, 8, 3, 0],
    ]
)


def test_every_position_is_scored_without_positions():
    model = BertPretrainer(SMALL)
    positions = np.int32([[1, 3], [0, 2]])
    every = model({"input_ids": SMALL_IDS})
    some = model({"input_ids": SMALL_IDS, "masked_lm_positions": positions})
    logits = every.masked_lm_logits.numpy()
    assert logits.shape == (2, 4, SMALL.vocab_size)
    logits_at_positions = logits[[0, 0, 1, 1], positions.ravel()]
    assert_allclose(logits_at_positions, some.masked_lm_logits, atol=1e-5)
    probabilities = np.exp(every.masked_lm_log_probs)
    assert_allclose(
        probabilities.sum(-1),
        np.ones((2, 4)),
        rtol=1e-5,
    )
    assert_array_equal(every.next_sentence_logits, some.next_sentence_logits)


def test_fit_learns_masked_words_as_a_masked_lm_of_transformers():
    """The labels are ids, and -100 where no loss counts; the loss is the mean over the rest."""
    model = BertPretrainer(SMALL)
    is_masked = SMALL_IDS > 6
    labels = np.where(is_masked, SMALL_IDS, -100)
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100),
        metrics=["sparse_categorical_accuracy"],
        run_eagerly=True,
    )
    before = model.get_weights()
    out = model(SMALL_IDS)
    log_probs = np.asarray(out.masked_lm_log_probs)
    label_log_probs = log_probs[is_masked, SMALL_IDS[is_masked]]
    is_correct = log_probs.argmax(-1) == labels
    loss, accuracy = model.evaluate(SMALL_IDS, labels, verbose=0)
    assert loss == pytest.approx(-label_log_probs.mean(), rel=1e-5)
    assert accuracy == pytest.approx(is_correct.mean())
    model.fit(SMALL_IDS, labels, verbose=0)
    after = model.get_weights()
    assert len(after) == len(before)
    assert not all(map(np.array_equal, after, before))
