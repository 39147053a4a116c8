"""The model against what the original computed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

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


def output_differences(pretrainer, folder, kind):
    """Largest differences of (outputs, losses) from the recording."""
    expected = np.load(folder / f"{kind}_outputs.npz")
    batch = load_batch(folder, kind)
    out, batch_losses = pretrainer(batch), losses_of(pretrainer, batch)
    word_losses = losses.cross_entropy(out.masked_lm_logits, batch["masked_lm_ids"].reshape(-1))
    outputs = [
        (out.encoded.embedding_output, expected["embedding_output"]),
        (np.stack(out.encoded.all_encoder_layers), expected["layers"]),
        (out.encoded.sequence_output, expected["layers"][-1]),
        (out.encoded.pooled_output, expected["pooled_output"]),
        (out.masked_lm_log_probs, expected["masked_lm_log_probs"]),
        (out.next_sentence_log_probs, expected["next_sentence_log_probs"]),
        (word_losses, expected["masked_lm_example_loss"]),
    ]
    scalars = [
        (batch_losses.masked_lm, expected["masked_lm_loss"]),
        (batch_losses.next_sentence, expected["next_sentence_loss"]),
        (batch_losses.total, expected["total_loss"]),
    ]
    return tuple(max(largest_difference(*pair) for pair in pairs) for pairs in (outputs, scalars))


def gradient_difference(pretrainer, folder, kind):
    """Largest difference of the dense gradients from the recording."""
    expected = np.load(folder / f"{kind}_gradients.npz")
    names, weights = zip(*named_weights(pretrainer), strict=True)
    with tf.GradientTape() as tape:
        loss = losses_of(pretrainer, load_batch(folder, kind)).total
    gradients = dense_gradients(tape.gradient(loss, weights))
    assert sorted(names) == sorted(expected.files)
    return max(
        largest_difference(g, expected[name]) for name, g in zip(names, gradients, strict=True)
    )


@pytest.mark.parametrize("kind", BATCHES)
def test_outputs_and_losses_equal_the_originals(golden, kind):  # noqa: F811
    outputs, scalars = output_differences(load_pretrainer(golden), golden, kind)
    assert outputs <= (MASKED_ROWS if kind == "masked_rows" else OUTPUTS)
    assert scalars <= (MASKED_ROWS if kind == "masked_rows" else LOSSES)


@pytest.mark.parametrize("kind", ["usual", "one_prediction"])
def test_gradients_equal_the_originals(golden, kind):  # noqa: F811
    assert gradient_difference(load_pretrainer(golden), golden, kind) <= GRADIENTS


def sine_filled_model():
    """The model of the recorded vectors: variable n of the sorted names holds 0.1 sin(1 + k + 31
    n).
    """
    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    pretrainer = BertPretrainer(config)
    for n, (name, weight) in enumerate(sorted(named_weights(pretrainer), key=lambda pair: pair[0])):
        values = 0.1 * np.sin(1.0 + np.arange(np.prod(weight.shape)) + 31.0 * n)
        weight.assign(values.reshape(weight.shape).astype(np.float32) + name.endswith("gamma"))
    return pretrainer


SINE_BATCH = {
    "input_ids": np.int32([[2, 7, 11, 3, 8, 3, 0, 0], [2, 5, 9, 12, 13, 3, 14, 3]]),
    "input_mask": np.int32([[1, 1, 1, 1, 1, 1, 0, 0], [1] * 8]),
    "segment_ids": np.int32([[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1]]),
    "masked_lm_positions": np.int32([[1, 4, 0], [2, 3, 6]]),
    "masked_lm_ids": np.int32([[9, 8, 0], [9, 20, 14]]),
    "masked_lm_weights": np.float32([[1, 1, 0], [1, 1, 1]]),
    "next_sentence_labels": np.int32([[0], [1]]),
}


def test_a_model_of_sines_gives_the_recorded_vectors():
    pretrainer = sine_filled_model()
    out = pretrainer(SINE_BATCH)
    close = np.testing.assert_allclose
    close(out.encoded.embedding_output[0, 0, :3], [0.3198602, 1.4462962, 1.0155776], atol=2e-6)
    close(out.encoded.sequence_output[1, 6, :3], [-0.8956438, -0.8337483, 0.5198717], atol=2e-6)
    close(out.encoded.sequence_output[0, 7, :3], [-0.7488718, 0.6947461, 1.9913458], atol=2e-6)
    close(out.encoded.pooled_output[1, :3], [0.0515318, -0.0042502, -0.0561113], atol=1e-6)
    close(losses_of(pretrainer, SINE_BATCH), [4.3642597, 3.670907, 0.6933527], atol=1e-6)
    close(
        out.next_sentence_log_probs,
        [[-0.6726679, -0.7140547], [-0.6726843, -0.7140375]],
        atol=1e-6,
    )

    with tf.GradientTape() as tape:
        loss = losses_of(pretrainer, SINE_BATCH).total
    gradients = dense_gradients(
        tape.gradient(loss, [weight for _, weight in named_weights(pretrainer)])
    )
    close(tf.linalg.global_norm(gradients), 11.684333, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("masked_lm_positions", 8, "masked_lm_positions holds 8, outside 0 to 7"),
        ("masked_lm_ids", 30, "masked_lm_ids holds 30, outside 0 to 29"),
        ("next_sentence_labels", -1, "next_sentence_labels holds -1"),
    ],
)
def test_values_outside_their_range_are_named(name, value, message):
    batch = SINE_BATCH | {name: SINE_BATCH[name].copy()}
    batch[name][1, 0] = value
    with pytest.raises(InputError, match=message):
        losses_of(sine_filled_model(), batch)


def test_labels_are_not_needed_for_an_answer():
    """Features come in any form, too."""
    unlabelled = {
        name: SINE_BATCH[name].tolist() for name in (*ENCODER_INPUTS, MASKED_LM_POSITIONS)
    }
    model = sine_filled_model()
    np.testing.assert_array_equal(
        model(unlabelled).masked_lm_log_probs,
        model(SINE_BATCH).masked_lm_log_probs,
    )


def test_every_position_is_scored_without_positions():
    model, ids = BertPretrainer(SMALL), np.int32([[2, 7, 9, 3], [2, 8, 3, 0]])
    every = model({"input_ids": ids})
    some = model({"input_ids": ids, "masked_lm_positions": np.int32([[1, 3], [0, 2]])})
    assert every.masked_lm_logits.shape == (2, 4, SMALL.vocab_size)
    chosen = every.masked_lm_logits.numpy()[[0, 0, 1, 1], [1, 3, 0, 2]]
    np.testing.assert_allclose(chosen, some.masked_lm_logits, atol=1e-5)
    np.testing.assert_allclose(
        np.exp(every.masked_lm_log_probs).sum(-1),
        np.ones((2, 4)),
        rtol=1e-5,
    )
    np.testing.assert_array_equal(every.next_sentence_logits, some.next_sentence_logits)


def test_fit_learns_masked_words_as_a_masked_lm_of_transformers():
    """The labels are ids, and -100 where no loss counts; the loss is the mean over the rest."""
    model, ids = BertPretrainer(SMALL), np.int32([[2, 7, 9, 3], [2, 8, 3, 0]])
    labels = np.where(ids > 6, ids, -100)
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100),
        metrics=["sparse_categorical_accuracy"],
        run_eagerly=True,
    )
    before = model.get_weights()
    log_probs = np.asarray(model(ids).masked_lm_log_probs)
    loss, accuracy = model.evaluate(ids, labels, verbose=0)
    rows, places = np.nonzero(ids > 6)
    assert loss == pytest.approx(-log_probs[rows, places, ids[rows, places]].mean(), rel=1e-5)
    assert accuracy == pytest.approx((log_probs.argmax(-1) == labels).mean())
    model.fit(ids, labels, verbose=0)
    assert any((new != old).any() for new, old in zip(model.get_weights(), before, strict=True))
