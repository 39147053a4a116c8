"""The encoder's public interface: names, defaults, variable shapes, and refused inputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
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
from tests.golden_model import largest_difference

CONFIG = BertConfig(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=5,
    num_attention_heads=4,
    intermediate_size=37,
)
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, 99, (13, 7)).astype(np.int32)


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

    positions = model.embeddings.position_embeddings
    wide = create_initializer(0.5)
    default = create_initializer()
    assert_cut_normal(positions, deviation=0.02)
    assert_cut_normal(wide((20000,)), deviation=0.5)
    assert_cut_normal(default((20000,)), deviation=0.02)


def assert_cut_normal(weights, deviation: float):
    """A normal cut at two deviations has 0.8796 of the deviation."""
    values = weights.numpy()
    expected = deviation * 0.8796
    assert_allclose(np.std(values), expected, rtol=0.03)


def test_missing_mask_is_ones_and_missing_segments_are_zeros(model):
    bare = model(IDS)
    explicit = model(
        IDS,
        input_mask=np.ones_like(IDS),
        segment_ids=np.zeros_like(IDS),
    )
    assert_array_equal(bare.pooled_output, explicit.pooled_output)
    layer_outputs = bare.all_encoder_layers
    assert len(layer_outputs) == 5
    assert bare.sequence_output is layer_outputs[-1]


@pytest.mark.parametrize("output_attentions", [False, True])
def test_outputs_are_read_by_name_and_not_by_position(model, output_attentions):
    """The first output of transformers has the shape of our first one, and is another tensor."""
    out = model(IDS, output_attentions=output_attentions)
    assert out["sequence_output"] is out.sequence_output
    assert out["pooled_output"] is out.pooled_output
    message = r"has other positions than an output .* sequence_output \(theirs at 0\)"
    for position in (0, 1, -1, slice(2)):
        with pytest.raises(TypeError, match=message):
            out[position]
    embedding_output, layer_outputs, *_ = out
    assert embedding_output is out.embedding_output
    assert layer_outputs is out.all_encoder_layers


def test_outputs_of_replicas_are_put_together(model):
    """As `strategy.run` and Keras' `predict` do on several devices."""
    for output_attentions in (False, True):
        first = model(IDS[:2], output_attentions=output_attentions)
        second = model(IDS[:3], output_attentions=output_attentions)
        together = distribute_utils.regroup([first, second])
        assert type(together) is type(first)
        sequence_outputs = together.sequence_output.values
        assert sequence_outputs[0] is first.sequence_output
        assert sequence_outputs[1] is second.sequence_output
        pooled_outputs = together.pooled_output.values
        assert pooled_outputs[0] is first.pooled_output
        assert pooled_outputs[1] is second.pooled_output


def test_layers_have_the_name_of_transformers():
    model = BertModel(CONFIG)
    model.encoder.layer[1].trainable = False
    layer_names = {layer_name(variable) for variable in model.weights}
    trainable = {layer_name(variable) for variable in model.trainable_variables}
    assert layer_names - trainable == {"layer_1"}


def layer_name(variable) -> str:
    parts = variable.path.split("/")
    return parts[2]


def test_a_name_that_no_extension_adds_is_an_error_of_python(model):
    with pytest.raises(AttributeError, match="'BertOutput' object has no attribute 'pooled'"):
        _ = model(IDS).pooled


def test_every_dropout_has_draws_of_its_own(model, monkeypatch):
    indices = []

    def record_index(x, rate, seed, index):
        indices.append(index)
        return x

    for module in (bert, layers):
        monkeypatch.setattr(module, "dropout", record_index)
    model(IDS, training=True)
    assert len(indices) == 1 + 3 * 5
    assert len(set(indices)) == len(indices)


def test_padding_does_not_reach_the_tokens(model):
    mask = np.ones_like(IDS)
    mask[:, 4:] = 0
    short = model(IDS[:, :4])
    padded = model(IDS, mask)
    assert_allclose(
        short.sequence_output,
        padded.sequence_output[:, :4],
        atol=2e-6,
    )


def probabilities_by_numpy(model, layer, x, is_allowed):
    """The probabilities of a layer, float[B, N, S, S], from its weights, its input and 1 or 0
    for (from, to).
    """
    heads = model.encoder.stack[layer].attention.heads
    query = project_by_numpy(heads.query, x)
    key = project_by_numpy(heads.key, x)
    products = query @ key.transpose(0, 1, 3, 2)
    bias = 10000.0 * (1 - is_allowed)
    scores = products / np.sqrt(8) - bias
    largest = scores.max(-1, keepdims=True)
    exponentials = np.exp(scores - largest)
    totals = exponentials.sum(-1, keepdims=True)
    return exponentials / totals


def project_by_numpy(projection, x) -> np.ndarray:
    """Returns the queries or keys of heads of size 8, float64[B, N, S, 8]."""
    kernel = projection.kernel.numpy().astype(np.float64)
    bias = projection.bias.numpy()
    projected = np.matmul(x, kernel) + bias
    batch_size, length, _ = x.shape
    by_head = projected.reshape(batch_size, length, -1, 8)
    return by_head.transpose(0, 2, 1, 3)


def test_attention_probabilities_are_those_of_the_weights_and_the_first_token_alone_is_the_same():
    model = BertModel(CONFIG)
    for layer in model.encoder.stack:
        heads = layer.attention.heads
        for projection in (heads.query, heads.key):
            sharper = projection.kernel * 20.0
            projection.kernel.assign(sharper)
    mask = np.ones_like(IDS)
    mask[:, 5:] = 0
    is_allowed = mask[:, None, None]
    out = model(IDS, mask, output_attentions=True)
    layer_outputs = out.all_encoder_layers
    layer_inputs = [out.embedding_output, *layer_outputs[:-1]]
    probabilities = out.all_attention_probabilities
    assert len(probabilities) == len(layer_inputs) == 5
    for layer, layer_input in enumerate(layer_inputs):
        x = layer_input.numpy().astype(np.float64)
        expected = probabilities_by_numpy(model, layer, x, is_allowed)
        assert expected.max() > 0.5, "far from even"
        assert_allclose(probabilities[layer], expected, atol=2e-6)

    without = model(IDS, mask)
    assert without.all_attention_probabilities is None
    assert len(without) == 4
    assert_array_equal(without.embedding_output, out.embedding_output)
    assert_array_equal(without.all_encoder_layers, layer_outputs)
    assert_array_equal(without.sequence_output, out.sequence_output)
    assert_array_equal(without.pooled_output, out.pooled_output)

    # With `first_token_only`, the last layer computes the first token alone.
    first = model(
        IDS,
        mask,
        first_token_only=True,
        output_attentions=True,
    )
    assert_allclose(first.pooled_output, out.pooled_output, atol=2e-6)
    assert first.sequence_output.shape == (len(IDS), 1, CONFIG.hidden_size)
    assert_allclose(
        first.sequence_output,
        out.sequence_output[:, :1],
        atol=2e-6,
    )
    *inner_outputs, last_output = first.all_encoder_layers
    assert_array_equal(inner_outputs, layer_outputs[:-1])
    assert_allclose(
        last_output,
        layer_outputs[-1][:, :1],
        atol=2e-6,
    )
    *inner_probabilities, last_probabilities = first.all_attention_probabilities
    assert_array_equal(inner_probabilities, probabilities[:-1])
    assert_allclose(
        last_probabilities,
        probabilities[-1][:, :, :1],
        atol=2e-6,
    )


def test_attention_probabilities_are_before_dropout():
    """The embeddings are the first layer's input, so that without their dropout its
    probabilities are the same.
    """
    changes = {"hidden_dropout_prob": 0.0, "num_hidden_layers": 1}
    config = BertConfig.from_dict(CONFIG.to_dict() | changes)
    model = BertModel(config)
    plain = model(IDS, training=False, output_attentions=True)
    with_dropout = model(IDS, training=True, output_attentions=True)
    (probabilities,) = plain.all_attention_probabilities
    (probabilities_in_training,) = with_dropout.all_attention_probabilities
    assert_array_equal(probabilities, probabilities_in_training)
    change = largest_difference(plain.sequence_output, with_dropout.sequence_output)
    assert change > 1e-4


@pytest.mark.parametrize(
    ("fields", "activation"),
    [
        pytest.param({}, np.tanh, id="the original's"),
        pytest.param({"pooler_act": "relu"}, lambda x: np.maximum(x, 0), id="relu"),
        pytest.param({"pooler_act": "linear"}, lambda x: x, id="none"),
    ],
)
def test_the_activation_of_the_pooler_is_that_of_the_configuration(fields, activation):
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig.from_dict(sizes | heads | fields)
    bert = BertModel(config)
    bert.pooler.dense.kernel.assign_add(np.eye(8))
    out = bert(np.arange(12).reshape(2, 6))
    first_vectors = out.sequence_output.numpy()[:, 0]
    products = first_vectors @ bert.pooler.dense.kernel.numpy() + bert.pooler.dense.bias.numpy()
    assert (products < 0).any()
    assert_allclose(out.pooled_output, activation(products), atol=1e-6)


def test_one_hot_lookup_gives_the_same(model):
    one_hot = BertModel(CONFIG, use_one_hot_embeddings=True)
    for target, source in zip(one_hot.weights, model.weights, strict=True):
        target.assign(source)
    out = one_hot(IDS)
    expected = model(IDS)
    assert_allclose(out.pooled_output, expected.pooled_output, atol=1e-6)


def test_batch_and_length_may_be_unknown_while_tracing(model):
    def encode(ids):
        return model(ids).sequence_output

    spec = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(encode, input_signature=[spec])
    for ids in (IDS, IDS[:1, :3]):
        assert_allclose(traced(ids), encode(ids), atol=2e-6)


@pytest.mark.parametrize(
    "kind",
    [np.ndarray.tolist, np.uint8, lambda ids: tf.constant(ids, tf.int64)],
)
def test_ids_come_in_any_form(model, kind):
    mask = np.ones_like(IDS)
    mask[:, 5:] = 0
    segments = IDS % 2
    seed = np.array([1, 2])
    out = model(
        kind(IDS),
        kind(mask),
        kind(segments),
        training=True,
        dropout_seed=kind(seed),
    )
    expected = model(
        IDS,
        mask,
        segments,
        training=True,
        dropout_seed=tf.constant([1, 2]),
    )
    assert_array_equal(out.pooled_output, expected.pooled_output)


def test_dropout_follows_from_its_seed(model):
    def pool_in_training(seed=None):
        seed = None if seed is None else tf.constant(seed)
        return model(IDS, training=True, dropout_seed=seed).pooled_output

    once = pool_in_training(seed=[1, 2])
    again = pool_in_training(seed=[1, 2])
    other = pool_in_training(seed=[1, 3])
    without_dropout = model(IDS).pooled_output
    assert_array_equal(once, again)
    assert largest_difference(once, other) > 1e-3
    assert largest_difference(once, without_dropout) > 1e-3
    # Without a seed, each call draws another one.
    assert largest_difference(pool_in_training(), pool_in_training()) > 1e-3


@pytest.mark.parametrize(
    ("input_ids", "message"),
    [
        pytest.param(
            np.full((1, 4), 99, np.int32),
            "input_ids holds 99, outside 0 to 98",
            id="id above the vocabulary",
        ),
        pytest.param(
            np.zeros((1, 513), np.int32),
            "513 positions.*max_position_embeddings 512",
            id="too long",
        ),
        pytest.param(
            np.zeros((4,), np.int32),
            r"must be \[batch, length\]",
            id="no batch",
        ),
        pytest.param(
            [[1, 2], [3]],
            "input_ids has rows of different lengths",
            id="ragged rows",
        ),
        pytest.param(
            np.zeros((2, 4)),
            "input_ids must be whole numbers, got float64",
            id="floats",
        ),
        pytest.param(
            np.full((1, 4), 2**32),
            "input_ids holds 4294967296",
            id="id above 32 bits",
        ),
    ],
)
def test_unfit_ids_are_refused_in_one_sentence(model, input_ids, message):
    with pytest.raises(InputError, match=message) as refusal:
        model(input_ids=input_ids)
    assert "\n" not in str(refusal.value)


def test_a_mask_of_another_shape_is_refused_in_one_sentence(model):
    message = r"input_mask has shape \(13, 5\)"
    with pytest.raises(InputError, match=message) as refusal:
        model(input_ids=IDS, input_mask=IDS[:, :5])
    assert "\n" not in str(refusal.value)


def test_public_helpers():
    input_mask = np.int32([[1, 0], [1, 1]])
    mask = create_attention_mask_from_input_mask(
        np.zeros((2, 3), np.int32),
        input_mask,
    )
    expected_mask = [
        [[1, 0]] * 3,
        [[1, 1]] * 3,
    ]
    assert_array_equal(mask, expected_mask)

    numbers = np.arange(12, dtype=np.float32)
    vectors = numbers.reshape(2, 3, 2)
    positions = np.int32([[2, 0], [1, 1]])
    gathered = gather_indexes(vectors, positions)
    expected_vectors = [
        vectors[0, 2],
        vectors[0, 0],
        vectors[1, 1],
        vectors[1, 1],
    ]
    assert_array_equal(gathered, expected_vectors)

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
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    ids = [[5, 7]]
    assert_array_equal(again(ids).pooled_output, model(ids).pooled_output)


def test_settings_are_kept():
    model = BertPretrainer(CONFIG, recompute_layers=True)
    encoder = BertPretrainer.from_config(model.get_config()).bert
    assert BertModel.from_config(encoder.get_config()).encoder.recompute_layers
