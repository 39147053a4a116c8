"""The encoder's public interface: names, defaults, variable shapes, and refused inputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

from official_bert import BertConfig, BertModel, BertPretrainer, InputError
from official_bert.modeling import (
    bert,
    create_attention_mask_from_input_mask,
    create_initializer,
    gather_indexes,
    get_shape_list,
    layers,
)

CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=5,
    num_attention_heads=4,
    intermediate_size=37,
)
IDS = np.random.default_rng(3).integers(0, 99, (13, 7)).astype(np.int32)


@pytest.fixture(scope="module")
def model():
    return BertModel(CONFIG)


def test_initial_weights_are_a_cut_normal(model):
    for weight in model.weights:
        values = weight.numpy()
        if weight.path.endswith(("bias", "beta")):
            assert not values.any()
        elif weight.path.endswith("gamma"):
            assert (values == 1).all()
        else:
            assert np.abs(values).max() <= 0.04 + 1e-7
    # A normal cut at two deviations has 0.8796 of the deviation.
    np.testing.assert_allclose(
        np.std(model.embeddings.position_embeddings.numpy()),
        0.02 * 0.8796,
        rtol=0.03,
    )
    np.testing.assert_allclose(
        np.std(create_initializer(0.5)((20000,)).numpy()),
        0.5 * 0.8796,
        rtol=0.03,
    )
    np.testing.assert_allclose(
        np.std(create_initializer()((20000,)).numpy()),
        0.02 * 0.8796,
        rtol=0.03,
    )


def test_missing_mask_is_ones_and_missing_segments_are_zeros(model):
    bare = model(IDS)
    given = model(IDS, input_mask=np.ones_like(IDS), segment_ids=np.zeros_like(IDS))
    np.testing.assert_array_equal(bare.pooled_output, given.pooled_output)
    assert len(bare.all_encoder_layers) == 5
    assert bare.sequence_output is bare.all_encoder_layers[-1]


@pytest.mark.parametrize("output_attentions", [False, True])
def test_outputs_are_read_by_name_and_not_by_position(model, output_attentions):
    """The first output of transformers has the shape of our first one, and is another tensor."""
    out = model(IDS, output_attentions=output_attentions)
    assert out["sequence_output"] is out.sequence_output
    assert out["pooled_output"] is out.pooled_output
    for position in (0, 1, -1, slice(2)):
        with pytest.raises(
            TypeError,
            match=r"has other positions than an output .* sequence_output \(theirs at 0\)",
        ):
            out[position]
    embedded, layers, *_ = out
    assert embedded is out.embedding_output
    assert layers is out.all_encoder_layers


def test_outputs_of_replicas_are_put_together(model):
    """As `strategy.run` and Keras' `predict` do on several devices."""
    for output_attentions in (False, True):
        outs = [
            model(IDS[: 2 + number], output_attentions=output_attentions) for number in range(2)
        ]
        together = distribute_utils.regroup(outs)
        assert type(together) is type(outs[0])
        for number, out in enumerate(outs):
            assert together.sequence_output.values[number] is out.sequence_output
            assert together.pooled_output.values[number] is out.pooled_output


def test_layers_have_the_name_of_transformers():
    model = BertModel(CONFIG)
    model.encoder.layer[1].trainable = False
    frozen = {variable.path.split("/")[2] for variable in model.weights} - {
        variable.path.split("/")[2] for variable in model.trainable_variables
    }
    assert frozen == {"layer_1"}


def test_a_name_that_no_extension_adds_is_an_error_of_python(model):
    with pytest.raises(AttributeError, match="'BertOutput' object has no attribute 'pooled'"):
        _ = model(IDS).pooled


def test_every_dropout_has_draws_of_its_own(model, monkeypatch):
    indices = []
    for module in (bert, layers):
        monkeypatch.setattr(
            module,
            "dropout",
            lambda x, rate, seed, index: indices.append(index) or x,
        )
    model(IDS, training=True)
    assert len(indices) == 1 + 3 * 5 == len(set(indices))


def test_padding_does_not_reach_the_tokens(model):
    mask = np.ones_like(IDS)
    mask[:, 4:] = 0
    short = model(IDS[:, :4])
    padded = model(IDS, mask)
    np.testing.assert_allclose(short.sequence_output, padded.sequence_output[:, :4], atol=2e-6)


def probabilities_by_numpy(model, layer, x, is_allowed):
    """The probabilities of a layer, float[B, N, S, S], from its weights, its input and 1 or 0
    for (from, to).
    """
    heads = model.encoder.stack[layer].attention.heads
    query, key = (
        np.matmul(x, projection.kernel.numpy().astype(np.float64)) + projection.bias.numpy()
        for projection in (heads.query, heads.key)
    )
    query, key = (part.reshape(*x.shape[:2], -1, 8).transpose(0, 2, 1, 3) for part in (query, key))
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(8) - 10000.0 * (1 - is_allowed)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_attention_probabilities_are_those_of_the_weights_and_the_first_token_alone_is_the_same():
    model = BertModel(CONFIG)
    for layer in model.encoder.stack:
        for projection in (layer.attention.heads.query, layer.attention.heads.key):
            projection.kernel.assign(projection.kernel * 20.0)
    mask = np.ones_like(IDS)
    mask[:, 5:] = 0
    out = model(IDS, mask, output_attentions=True)
    assert len(out.all_attention_probabilities) == 5
    inputs = [out.embedding_output, *out.all_encoder_layers[:-1]]
    for layer, (x, probabilities) in enumerate(
        zip(inputs, out.all_attention_probabilities, strict=True)
    ):
        expected = probabilities_by_numpy(
            model,
            layer,
            x.numpy().astype(np.float64),
            mask[:, None, None],
        )
        assert expected.max() > 0.5, "far from even"
        np.testing.assert_allclose(probabilities, expected, atol=2e-6)
    plain = model(IDS, mask)
    assert plain.all_attention_probabilities is None
    for ours, theirs in zip(plain, tuple(out)[:4], strict=True):
        np.testing.assert_array_equal(ours, theirs)

    first = model(IDS, mask, first_token_only=True, output_attentions=True)
    np.testing.assert_allclose(first.pooled_output, out.pooled_output, atol=2e-6)
    assert first.sequence_output.shape == (len(IDS), 1, CONFIG.hidden_size)
    np.testing.assert_allclose(first.sequence_output, out.sequence_output[:, :1], atol=2e-6)
    for mine, whole, cut in (
        (first.all_encoder_layers, out.all_encoder_layers, np.s_[:, :1]),
        (first.all_attention_probabilities, out.all_attention_probabilities, np.s_[:, :, :1]),
    ):
        np.testing.assert_array_equal(mine[:-1], whole[:-1])
        np.testing.assert_allclose(mine[-1], whole[-1][cut], atol=2e-6)


def test_attention_probabilities_are_before_dropout():
    """The embeddings are the first layer's input, so that without their dropout its
    probabilities are the same.
    """
    config = BertConfig.from_dict(
        CONFIG.to_dict() | {"hidden_dropout_prob": 0.0, "num_hidden_layers": 1}
    )
    model = BertModel(config)
    plain, trained = (
        model(IDS, training=training, output_attentions=True) for training in (False, True)
    )
    (ours,), (theirs,) = plain.all_attention_probabilities, trained.all_attention_probabilities
    np.testing.assert_array_equal(ours, theirs)
    assert np.abs(plain.sequence_output - trained.sequence_output).max() > 1e-4


def test_one_hot_lookup_gives_the_same(model):
    one_hot = BertModel(CONFIG, use_one_hot_embeddings=True)
    for target, source in zip(one_hot.weights, model.weights, strict=True):
        target.assign(source)
    np.testing.assert_allclose(one_hot(IDS).pooled_output, model(IDS).pooled_output, atol=1e-6)


def test_batch_and_length_may_be_unknown_while_tracing(model):
    traced = tf.function(
        lambda ids: model(ids).sequence_output,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )
    np.testing.assert_allclose(traced(IDS), model(IDS).sequence_output, atol=2e-6)
    np.testing.assert_allclose(traced(IDS[:1, :3]), model(IDS[:1, :3]).sequence_output, atol=2e-6)


@pytest.mark.parametrize(
    "kind",
    [np.ndarray.tolist, np.uint8, lambda ids: tf.constant(ids, tf.int64)],
)
def test_ids_come_in_any_form(model, kind):
    mask, segments = np.ones_like(IDS), IDS % 2
    mask[:, 5:] = 0
    given = model(
        kind(IDS),
        kind(mask),
        kind(segments),
        training=True,
        dropout_seed=kind(np.array([1, 2])),
    )
    expected = model(IDS, mask, segments, training=True, dropout_seed=tf.constant([1, 2]))
    np.testing.assert_array_equal(given.pooled_output, expected.pooled_output)


def test_dropout_follows_from_its_seed(model):
    once, again, other = (
        model(IDS, training=True, dropout_seed=tf.constant(seed)).pooled_output.numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(once, again)
    assert np.abs(once - other).max() > 1e-3
    assert np.abs(once - model(IDS).pooled_output).max() > 1e-3
    drawn = [model(IDS, training=True).pooled_output.numpy() for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_ids": np.full((1, 4), 99, np.int32)}, "input_ids holds 99, outside 0 to 98"),
        ({"input_ids": np.zeros((1, 513), np.int32)}, "513 positions.*max_position_embeddings 512"),
        ({"input_ids": np.zeros((4,), np.int32)}, r"must be \[batch, length\]"),
        ({"input_ids": [[1, 2], [3]]}, "input_ids has rows of different lengths"),
        ({"input_ids": np.zeros((2, 4))}, "input_ids must be whole numbers, got float64"),
        ({"input_ids": np.full((1, 4), 2**32)}, "input_ids holds 4294967296"),
        ({"input_ids": IDS, "input_mask": IDS[:, :5]}, r"input_mask has shape \(13, 5\)"),
    ],
)
def test_unfit_inputs_are_refused_in_one_sentence(model, arguments, message):
    with pytest.raises(InputError, match=message) as refusal:
        model(**arguments)
    assert "\n" not in str(refusal.value)


def test_public_helpers():
    mask = create_attention_mask_from_input_mask(
        np.zeros((2, 3), np.int32),
        np.int32([[1, 0], [1, 1]]),
    )
    np.testing.assert_array_equal(mask, [[[1, 0]] * 3, [[1, 1]] * 3])

    vectors = np.arange(2 * 3 * 2, dtype=np.float32).reshape(2, 3, 2)
    gathered = gather_indexes(vectors, np.int32([[2, 0], [1, 1]]))
    np.testing.assert_array_equal(
        gathered,
        [vectors[0, 2], vectors[0, 0], vectors[1, 1], vectors[1, 1]],
    )

    assert get_shape_list(vectors, expected_rank=[2, 3]) == [2, 3, 2]
    with pytest.raises(ValueError, match="query: rank 3"):
        get_shape_list(vectors, expected_rank=2, name="query")


@keras.saving.register_keras_serializable(package="test")
class OfBefore(BertModel):
    """A user's encoder with the arguments that BertModel once had."""

    def __init__(self, config, use_one_hot_embeddings=False, name="bert"):
        super().__init__(config, use_one_hot_embeddings, name)


def test_a_subclass_with_fewer_arguments_is_made_again(tmp_path):
    model = OfBefore(CONFIG)
    assert type(keras.models.clone_model(model)) is OfBefore
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again([[5, 7]]).pooled_output, model([[5, 7]]).pooled_output)


def test_settings_are_kept():
    model = BertPretrainer(CONFIG, recompute_layers=True)
    encoder = BertPretrainer.from_config(model.get_config()).bert
    assert BertModel.from_config(encoder.get_config()).encoder.recompute_layers
