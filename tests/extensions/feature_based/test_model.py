"""The feature-based tagger: its layers, its weights and its logits, against numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, InputError
from official_bert.checkpoints import named_variables
from official_bert.extensions.feature_based.model import BertFeatureTagger, choose_layers
from official_bert.extensions.feature_based.options import FEATURE_LAYERS
from official_bert.training.precision import computing_in
from official_bert.training.starting_point import seed_initial_weights
from tests import toy

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": 6, "initializer_range": 0.3})
MASK = np.array([[1] * 9, [1] * 4 + [0] * 5])
FEATURES = {"input_ids": np.random.default_rng(1).integers(5, 40, MASK.shape), "input_mask": MASK}
# Of the embeddings, 0, and of six layers.
NUMBERS = {
    "embeddings": [0],
    "second_to_last": [5],
    "last": [6],
    "sum_last_four": [3, 4, 5, 6],
    "concat_last_four": [3, 4, 5, 6],
    "sum_all": [1, 2, 3, 4, 5, 6],
}


@pytest.mark.parametrize("name", FEATURE_LAYERS)
def test_the_logits_are_those_of_the_chosen_layers(name):
    seed_initial_weights(2)
    model = BertFeatureTagger(CONFIG, 3, name, bilstm_size=8)
    encoded = model.bert(FEATURES)
    outputs = [np.array(each) for each in (encoded.embedding_output, *encoded.all_encoder_layers)]
    layers = [outputs[number] for number in NUMBERS[name]]
    assert model.layer_numbers == NUMBERS[name]

    head = model.features.head
    inputs = np.concatenate(layers, axis=-1)
    if "sum" in name:
        weights = np.linspace(-1.0, 2.0, len(layers))
        head.sum_weights.assign(weights)
        shares = np.exp(weights) / np.exp(weights).sum()
        inputs = sum(share * layer for share, layer in zip(shares, layers, strict=True))
    vectors = head.bilstm(inputs, MASK).numpy()
    assert vectors.shape == (2, 9, 8)
    expected = vectors @ head.output_weights.numpy().T + head.output_bias.numpy()
    np.testing.assert_allclose(model(FEATURES), expected, atol=1e-5)

    stored = FEATURES | {"layer_vectors": np.stack(layers, axis=2)}
    np.testing.assert_allclose(model(stored), expected, atol=1e-5)
    np.testing.assert_allclose(model(stored | {"input_ids": MASK}), expected, atol=1e-5)


def test_short_encoders_have_all_their_layers_as_the_last_four():
    assert choose_layers("concat_last_four", 2) == [1, 2]
    assert choose_layers("sum_all", 12) == list(range(1, 13))
    assert choose_layers("sum_last_four", 12) == [9, 10, 11, 12]


def test_the_bilstm_has_two_layers_or_those_of_the_configuration():
    for fields, count in (({}, 2), ({"num_bilstm_layers": 1}, 1)):
        config = BertConfig.from_dict(CONFIG.to_dict() | fields)
        names = named_variables(BertFeatureTagger(config, 3, "last", 8))
        scopes = {name.split("/")[3] for name in names if "/bilstm/" in name}
        assert scopes == {f"layer_{number}" for number in range(count)}
        assert all(name.startswith(("bert/", "features/last/")) for name in names)


def test_only_the_head_is_trained_and_the_sum_begins_with_equal_weights():
    model = BertFeatureTagger(CONFIG, 3, "sum_all", bilstm_size=8)
    variables = named_variables(model)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(FEATURES) ** 2)
    gradients = tape.gradient(loss, [variable.value for variable in variables.values()])
    for (name, variable), gradient in zip(variables.items(), gradients, strict=True):
        is_encoder = name.startswith("bert/")
        assert (gradient is None) == is_encoder, name
        assert variable.trainable != is_encoder, name
    np.testing.assert_array_equal(variables["features/sum_all/sum_weights"].numpy(), np.zeros(6))


def test_dropout_follows_the_seed_and_spares_the_encoder():
    model = BertFeatureTagger(CONFIG, 3, "last", bilstm_size=8)
    plain = model(FEATURES).numpy()
    dropped = [model(FEATURES, training=True, dropout_seed=[1, seed]).numpy() for seed in (1, 1, 2)]
    np.testing.assert_array_equal(dropped[0], dropped[1])
    assert np.abs(dropped[0] - dropped[2]).max() > 1e-4
    encoder = model.compute_layers(FEATURES, [6])[0]
    stored = FEATURES | {"layer_vectors": encoder[:, :, None]}
    same = model(stored, training=True, dropout_seed=[1, 1])
    np.testing.assert_allclose(same, dropped[0], atol=1e-6)
    assert np.abs(plain - dropped[0]).max() > 1e-4


def test_stored_vectors_are_not_rounded_in_16_bits():
    with computing_in("bfloat16"):
        model = BertFeatureTagger(CONFIG, 3, "last", bilstm_size=8)
    head = model.features.head
    vectors = np.random.default_rng(3).normal(size=(2, 9, 1, 16)).astype(np.float32)
    expected = head(vectors, MASK, None)
    np.testing.assert_array_equal(model(FEATURES | {"layer_vectors": vectors}), expected)
    assert model.compute_layers(FEATURES, [0, 6])[1].dtype == "float32"


def test_a_keras_file_has_the_layers_and_what_is_frozen(tmp_path):
    model = BertFeatureTagger(CONFIG, 3, "second_to_last", bilstm_size=8)
    model.save(tmp_path / "tagger.keras")
    loaded = keras.saving.load_model(tmp_path / "tagger.keras")
    np.testing.assert_allclose(loaded(FEATURES), model(FEATURES), atol=1e-6)
    assert not loaded.bert.trainable_weights
    assert loaded.feature_layers == "second_to_last"


def test_layers_and_sizes_that_cannot_be_are_refused():
    one_layer = BertConfig.from_dict(toy.BERT_CONFIG)
    with pytest.raises(InputError, match=r"an encoder of one layer has no second_to_last; choose"):
        BertFeatureTagger(one_layer, 3, "second_to_last", 8)
    with pytest.raises(InputError, match=r"must be one of embeddings, .*, got 'first'"):
        BertFeatureTagger(CONFIG, 3, "first")
    with pytest.raises(
        InputError, match=r"bilstm_size: must be an even number from 2 to 65536, .*, got 7"
    ):
        BertFeatureTagger(CONFIG, 3, "last", bilstm_size=7)
