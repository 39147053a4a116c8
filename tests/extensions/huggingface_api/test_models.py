"""The models understand the arguments of transformers' models, and have their output names."""

import collections

import keras
import numpy as np
import pytest
from tensorflow.python.distribute import distribute_utils

from official_bert import BertClassifier, BertConfig, BertModel, InputError
from official_bert.extensions.huggingface_api import EXTENSION
from tests import toy
from tests.checkpoints.sample import CONFIG as SMALL
from tests.checkpoints.sample import encoder_shapes, random_weights
from tests.modeling.test_configured_model import IDS, LABELS, MASK, MODELS, assert_same, features
from tests.test_model_io import write_folder

OTHER_NAMES = {"input_mask": "attention_mask", "segment_ids": "token_type_ids"}


@pytest.fixture(scope="module")
def model():
    return BertModel(BertConfig.from_dict(toy.BERT_CONFIG))


@pytest.mark.parametrize("kind", ["encoder", "choice", "pretrainer"])
def test_inputs_have_the_names_of_transformers(kind):
    """Their tokenizers return a Mapping that is no dict."""
    model = MODELS[kind]()
    batch = features(model)
    predictions = {}
    if kind == "pretrainer":
        positions = [[1, 2]] * len(IDS)
        predictions["masked_lm_positions"] = np.int32(positions)
    batch |= predictions
    expected = model(batch)

    renamed = {}
    symbolic = {}
    for name, value in batch.items():
        other_name = OTHER_NAMES.get(name, name)
        renamed[other_name] = value
        symbolic[other_name] = keras.Input(value.shape[1:], dtype="int32", name=other_name)

    outputs = model(collections.UserDict(renamed))
    assert_same(outputs, expected)
    mask = renamed["attention_mask"]
    outputs = model(renamed["input_ids"], attention_mask=mask, **predictions)
    assert_same(outputs, expected)
    functional = keras.Model(symbolic, model(symbolic))
    assert_same(functional(renamed), expected)


def test_wrong_names_are_refused_with_the_right_one(model):
    with pytest.raises(InputError, match="attention_mask: given beside input_mask, which is the"):
        model(IDS, input_mask=MASK, attention_mask=MASK)
    batch = {"input_ids": IDS, "attention_mask": MASK}
    model.predict(batch | {"my_labels": LABELS}, verbose=0)
    message = r"attention_masks: no input .*; did you mean attention_mask"
    with pytest.raises(InputError, match=message):
        model.predict(batch | {"attention_masks": MASK}, verbose=0)


def test_arguments_that_change_nothing_are_accepted(model):
    layers = model.config.num_hidden_layers
    out = model(IDS, output_hidden_states=True, return_dict=True)
    assert len(out.hidden_states) == 1 + layers
    with pytest.raises(InputError, match="return_dict: no input of the model"):
        model(IDS, return_dict=False)
    pretrainer = MODELS["pretrainer"]()
    num_words = pretrainer.config.vocab_size
    ids = IDS[:2]
    out = pretrainer(ids, return_dict=True, output_attentions=False)
    assert out.logits.shape == (*ids.shape, num_words)
    with pytest.raises(InputError, match="output_hidden_states: no input of the model"):
        pretrainer(ids, output_hidden_states=True)


@pytest.mark.parametrize("output_attentions", [False, True])
def test_outputs_have_the_names_of_transformers(model, output_attentions):
    out = model(IDS, output_attentions=output_attentions)
    assert out["last_hidden_state"] is out.last_hidden_state is out.sequence_output
    assert out["pooler_output"] is out.pooler_output is out.pooled_output
    assert out.hidden_states[0] is out.embedding_output
    assert out.hidden_states[-1] is out.sequence_output
    if output_attentions:
        assert out.attentions[0] is out.all_attention_probabilities[0]
    else:
        assert out.attentions is None
    with pytest.raises(AttributeError, match="has no attribute 'logits'"):
        _ = out.logits


def test_outputs_of_pretraining_have_the_names_of_transformers():
    out = MODELS["pretrainer"]()(IDS)
    assert out.prediction_logits is out.logits is out.masked_lm_logits
    assert out.seq_relationship_logits is out.next_sentence_logits


def test_outputs_of_replicas_have_the_names_of_transformers(model):
    first = model(IDS[:2])
    second = model(IDS[:3])
    together = distribute_utils.regroup([first, second])
    first_states, second_states = together.last_hidden_state.values
    assert first_states is first.last_hidden_state
    assert second_states is second.last_hidden_state


def test_arguments_of_from_pretrained(tmp_path):
    weights = random_weights(encoder_shapes(SMALL))
    weights |= {
        "output_weights": np.ones((3, SMALL.hidden_size), np.float32),
        "output_bias": np.ones(3, np.float32),
    }
    folder = write_folder(tmp_path, weights)
    (tmp_path / "labels.txt").write_text("yes\nno\nperhaps\n")
    rates = {
        "hidden_dropout_prob": 0.25,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.5,
    }
    model = BertClassifier.from_pretrained(folder, num_labels=3, return_dict=True, **rates)
    for config in (model.config, model.bert.config):
        config_rates = {name: getattr(config, name) for name in rates}
        assert config_rates == rates
    assert model.num_outputs == 3
    assert model.labels == ("yes", "no", "perhaps")

    message = r"hidden_dropout_prob must be a number from 0 to below 1, got 1.5"
    with pytest.raises(InputError, match=message):
        BertModel.from_pretrained(folder, hidden_dropout_prob=1.5)
    message = "num_labels=3: is another name of num_outputs, which is 2; give one"
    with pytest.raises(InputError, match=message):
        BertClassifier.from_pretrained(folder, num_labels=3, num_outputs=2)
    with pytest.raises(TypeError, match="return_dict"):
        BertModel.from_pretrained(folder, return_dict=False)

    head = BertClassifier.from_pretrained(folder, num_labels=4, ignore_mismatched_sizes=True)
    assert head.num_outputs == 4


def test_without_the_extension_these_names_are_unknown(model, monkeypatch, tokenizer):
    from official_bert import catalog

    hooks = catalog.hooks
    monkeypatch.setattr(
        catalog, "hooks", lambda name: () if name in EXTENSION.hooks else hooks(name)
    )
    catalog.members.cache_clear()
    try:
        with pytest.raises(InputError, match="attention_mask: no input of the model"):
            model(IDS, attention_mask=MASK)
        with pytest.raises(AttributeError, match="no attribute 'last_hidden_state'"):
            _ = model(IDS).last_hidden_state
        with pytest.raises(TypeError, match="padding: the tokenizer has no such argument"):
            tokenizer("the cat", padding=True)
        with pytest.raises(TypeError, match="text_pair: the tokenizer has no such argument"):
            tokenizer.encode("the cat", "rain")
        with pytest.raises(AttributeError, match="no attribute 'pad'"):
            _ = tokenizer.pad
    finally:
        catalog.members.cache_clear()
