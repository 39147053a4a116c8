"""Sequences without padding, and layers that are computed again, give the numbers of the usual encoder."""

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig
from official_bert.checkpoints import named_variables
from official_bert.modeling import BertPretrainer
from official_bert.modeling.packing import pack
from official_bert.training.precision import computing_in
from tests import toy

LENGTHS = [3, 16, 0, 7, 16, 1, 9]  # the third sequence is nothing but padding


def masks(lengths=LENGTHS, length=16) -> np.ndarray:
    return (np.arange(length) < np.array(lengths)[:, None]).astype(np.int32)


def rows_of(mask: np.ndarray) -> list[tuple[int, int]]:
    """The tokens (sequence, position) in the order of the packed matrix, by plain Python."""
    tokens = [[p for p, one in enumerate(row) if one or p == 0] for row in mask.tolist()]
    order = sorted(range(len(mask)), key=lambda number: -len(tokens[number]))
    return [(number, p) for number in order for p in tokens[number]]


@pytest.mark.parametrize("mask", [masks(), masks([5]), np.int32([[1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 0]])])
def test_each_token_has_its_place(mask):
    """Also where padding stands before tokens."""
    packing = pack(tf.constant(mask))
    wanted = rows_of(mask)
    x = np.random.default_rng(1).normal(size=(mask.size, 3)).astype(np.float32)
    expected = np.array([x[number * mask.shape[1] + p] for number, p in wanted])
    packed = packing.packed(tf.constant(x))
    np.testing.assert_array_equal(packed, expected)
    padded = np.zeros_like(x)
    for row, (number, p) in zip(expected, wanted, strict=True):
        padded[number * mask.shape[1] + p] = row
    np.testing.assert_array_equal(packing.padded(packed), padded)

    groups = packing.in_groups(packed)
    np.testing.assert_array_equal(packing.from_groups(groups), expected)
    assert len(groups) == min(4, len(mask))
    start = 0
    for part, group in zip(groups, packing.groups, strict=True):
        lengths = group.mask.numpy().sum(1)
        assert group.mask.shape[1] == lengths.max()  # padded to the longest of the group
        rows = part.numpy().reshape(*group.mask.shape, 3)
        for row, length in zip(rows, lengths, strict=True):
            np.testing.assert_array_equal(row[:length], expected[start : start + length])
            start += length
    assert start == len(expected)


def test_gradients_move_with_the_rows():
    """Against those that TensorFlow finds by adding up rows."""
    mask = masks()
    packing = pack(tf.constant(mask))
    x = tf.constant(np.random.default_rng(1).normal(size=(mask.size, 3)).astype(np.float32))
    index = np.array([number * mask.shape[1] + p for number, p in rows_of(mask)])
    weights = tf.constant(np.random.default_rng(2).normal(size=(len(index), 3)).astype(np.float32))
    wide = tf.constant(np.random.default_rng(3).normal(size=x.shape).astype(np.float32))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        moved = packing.packed(x)
        moved = packing.from_groups([part * 2.0 for part in packing.in_groups(moved)])
        loss = tf.reduce_sum(tf.square(moved) * weights) + tf.reduce_sum(packing.padded(moved) ** 3 * wide)
        plain = 2.0 * tf.gather(x, index)
        spread = tf.scatter_nd(index[:, None], plain, x.shape)
        expected = tf.reduce_sum(tf.square(plain) * weights) + tf.reduce_sum(spread**3 * wide)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    gradient, wanted = tape.gradient(loss, x), tape.gradient(expected, x)
    np.testing.assert_allclose(gradient, tf.convert_to_tensor(wanted), rtol=1e-5)


def features_of(lengths) -> dict[str, np.ndarray]:
    draws, mask = np.random.default_rng(0), masks(lengths)
    ids = draws.integers(1, len(toy.VOCABULARY), mask.shape, dtype=np.int32) * mask
    segments = (np.arange(16) > 4).astype(np.int32) * mask
    positions = draws.integers(0, np.maximum(lengths, 1), (3, len(lengths))).T.astype(np.int32)
    return {"input_ids": ids, "input_mask": mask, "segment_ids": segments, "masked_lm_positions": positions}


def losses_and_gradients(model, features, seed=None):
    variables = {name: variable.value for name, variable in named_variables(model).items()}

    @tf.function
    def compute():
        with tf.GradientTape() as tape:
            out = model(features, training=seed is not None, dropout_seed=seed)
            loss = tf.reduce_sum(out.masked_lm_logits**2) + tf.reduce_sum(out.next_sentence_logits)
        found = tape.gradient(loss, variables)
        return out.encoded.all_encoder_layers, loss, {n: tf.convert_to_tensor(found[n]) for n in variables}

    return compute()


@pytest.fixture(scope="module")
def padded():
    """A model, features, and the layers, the loss and the gradients that it has of them as padded sequences."""
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": 2}))
    features = features_of([3, 16, 7, 16, 1, 9])
    layers, loss, gradients = losses_and_gradients(model, features)
    assert np.abs(gradients["bert/encoder/layer_0/attention/self/query/kernel"]).max() > 1e-6
    return model, features, [layer * features["input_mask"][..., None] for layer in layers], loss, gradients


@pytest.mark.parametrize("recomputes", [False, True])
def test_outputs_and_gradients_equal_those_of_padded_sequences(padded, recomputes):
    model, features, layers, loss, gradients = padded
    packing = BertPretrainer(model.config, recompute_layers=recomputes, packed_sequences=True)
    packing.set_weights(model.get_weights())
    packed_layers, packed_loss, packed_gradients = losses_and_gradients(packing, features)
    for expected, packed in zip(layers, packed_layers, strict=True):
        np.testing.assert_allclose(packed, expected, atol=1e-5)
    np.testing.assert_allclose(packed_loss, loss, rtol=1e-5)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(packed_gradients[name], gradient, atol=1e-5, rtol=1e-4, err_msg=name)


def test_computing_again_changes_no_gradient(padded):
    """With the same dropout."""
    model, features, *_ = padded
    recomputing = BertPretrainer(model.config, recompute_layers=True)
    recomputing.set_weights(model.get_weights())
    kept, again = (losses_and_gradients(each, features, tf.constant([1, 2]))[2] for each in (model, recomputing))
    for name, gradient in kept.items():
        np.testing.assert_allclose(again[name], gradient, atol=2e-6, rtol=1e-5, err_msg=name)


def test_no_two_dropouts_share_a_mask(padded):
    layers = padded[0].bert.encoder.stack
    parts = [part for layer in layers for part in (layer.attention, layer.attention.merge, layer.merge)]
    assert len({0, *(part.dropout_index for part in parts)}) == 7, "0 is that of the embeddings"


def test_bfloat16_packs_as_float32_does(padded):
    """Within the precision of bfloat16, outputs and gradients are those of padded sequences in float32."""
    exact, features, layers, _, gradients = padded
    with computing_in("bfloat16"):
        model = BertPretrainer(exact.config, packed_sequences=True)
    model.set_weights(exact.get_weights())
    packed_layers, _, packed_gradients = losses_and_gradients(model, features)
    for expected, packed in zip(layers, packed_layers, strict=True):
        np.testing.assert_allclose(packed, expected, atol=0.05)
    assert np.abs(packed_layers[-1] - layers[-1]).max() > 1e-4  # it is bfloat16
    for name, gradient in gradients.items():
        assert packed_gradients[name].dtype == tf.float32
        difference = np.linalg.norm(packed_gradients[name] - gradient)
        assert difference < 0.05 * np.linalg.norm(gradient) + 1e-3, name


def test_groups_draw_masks_of_their_own():
    """Equal sequences in different groups get different dropout, the same for the same seed."""
    config = toy.BERT_CONFIG | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.5}
    model = BertPretrainer(BertConfig.from_dict(config), packed_sequences=True)
    features = {name: np.repeat(values[:1], 4, 0) for name, values in features_of([9, 9]).items()}

    def first_layer(seed):
        out = model(features, training=True, dropout_seed=tf.constant([seed, 2]))
        return out.encoded.all_encoder_layers[0].numpy()[:, :9]

    layer = first_layer(1)
    np.testing.assert_array_equal(first_layer(1), layer)
    assert not np.array_equal(first_layer(3), layer)
    differences = [np.abs(layer[a] - layer[b]).max() for a in range(4) for b in range(a)]
    assert min(differences) > 1e-3


def test_a_packed_layer_multiplies_no_padding():
    """The products of the dense layers have as many rows as there are tokens."""
    model = BertPretrainer(BertConfig.from_dict(toy.BERT_CONFIG), packed_sequences=True)
    features = features_of([3, 16, 7, 5])
    rows = []
    layer = model.bert.encoder.stack[0].intermediate.dense
    call = layer.call
    layer.call = lambda x: rows.append(len(x)) or call(x)
    model(features)
    assert rows == [3 + 16 + 7 + 5]
