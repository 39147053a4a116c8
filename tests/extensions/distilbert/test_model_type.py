"""The names and the configuration of a DistilBERT become those of a BERT."""

import json

import pytest

from official_bert.config import BertConfig
from official_bert.extensions.distilbert.model_type import rename_weight
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("distilbert.embeddings.LayerNorm.bias", "bert.embeddings.LayerNorm.bias"),
        ("embeddings.position_embeddings.weight", "embeddings.position_embeddings.weight"),
        (
            "distilbert.transformer.layer.10.attention.q_lin.weight",
            "bert.encoder.layer.10.attention.self.query.weight",
        ),
        ("transformer.layer.0.attention.k_lin.bias", "encoder.layer.0.attention.self.key.bias"),
        ("transformer.layer.0.attention.v_lin.bias", "encoder.layer.0.attention.self.value.bias"),
        (
            "transformer.layer.0.attention.out_lin.bias",
            "encoder.layer.0.attention.output.dense.bias",
        ),
        (
            "transformer.layer.0.sa_layer_norm.weight",
            "encoder.layer.0.attention.output.LayerNorm.weight",
        ),
        ("transformer.layer.0.ffn.lin1.weight", "encoder.layer.0.intermediate.dense.weight"),
        ("transformer.layer.0.ffn.lin2.weight", "encoder.layer.0.output.dense.weight"),
        (
            "transformer.layer.0.output_layer_norm.bias",
            "encoder.layer.0.output.LayerNorm.bias",
        ),
        ("vocab_transform.weight", "cls.predictions.transform.dense.weight"),
        ("vocab_layer_norm.bias", "cls.predictions.transform.LayerNorm.bias"),
        ("vocab_projector.weight", "cls.predictions.decoder.weight"),
        ("vocab_projector.bias", "cls.predictions.bias"),
        ("pre_classifier.weight", "bert.pooler.dense.weight"),
        ("classifier.bias", "classifier.bias"),
        ("qa_outputs.weight", "qa_outputs.weight"),
        ("my_transformer.q_linear.weight", "my_transformer.q_linear.weight"),
    ],
)
def test_tensors_have_the_names_of_a_bert(theirs, ours):
    assert rename_weight(theirs) == ours


def write_config(folder, **fields) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "distilbert"} | fields))
    return str(path)


def test_the_defaults_are_those_of_distilbert(tmp_path):
    config = BertConfig.from_json_file(write_config(tmp_path))
    config.validate()
    assert config.to_dict() == {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu_erf",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "initializer_range": 0.02,
        "pooler_act": "relu",
    }


def test_every_field_is_read(tmp_path):
    path = write_config(
        tmp_path,
        vocab_size=70,
        dim=24,
        n_layers=4,
        n_heads=3,
        hidden_dim=40,
        activation="relu",
        dropout=0.3,
        attention_dropout=0.4,
        max_position_embeddings=65,
        initializer_range=0.5,
        sinusoidal_pos_embds=True,
    )
    config = BertConfig.from_json_file(path)
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (70, 24, 40)
    assert (config.num_hidden_layers, config.num_attention_heads) == (4, 3)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.4)
    assert (config.max_position_embeddings, config.initializer_range) == (65, 0.5)
    assert config.hidden_act == "relu"


@pytest.mark.parametrize(
    ("name", "fields", "rate"),
    [
        ("DistilBertForSequenceClassification", {"seq_classif_dropout": 0.4}, 0.4),
        ("DistilBertForSequenceClassification", {}, 0.2),
        ("DistilBertForMultipleChoice", {"seq_classif_dropout": 0.25}, 0.25),
        ("DistilBertForTokenClassification", {"dropout": 0.3}, 0.3),
        ("DistilBertForMaskedLM", {"seq_classif_dropout": 0.4}, None),
    ],
)
def test_the_class_decides_the_dropout_before_the_head(tmp_path, name, fields, rate):
    path = write_config(tmp_path, architectures=[name], **fields)
    config = BertConfig.from_json_file(path)
    assert getattr(config, "classifier_dropout", None) == rate


def test_the_class_and_the_labels_are_read(tmp_path):
    write_config(
        tmp_path,
        architectures=["DistilBertForSequenceClassification"],
        id2label={"0": "sadness", "1": "joy"},
        problem_type="multi_label_classification",
    )
    folder = ModelFolder(str(tmp_path))
    assert folder.huggingface_class() == "BertForSequenceClassification"
    assert folder.labels() == ["sadness", "joy"]
    assert folder.task().settings == {"label_type": "multi"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activation": "silu"}, "config.json: hidden_act 'silu' is not supported"),
        ({"pruned_heads": {"0": [1]}}, "config.json: pruned_heads is"),
        ({"model_type": "roberta"}, "'roberta', and only models with 'bert' or 'distilbert' can"),
        ({"model_type": ["distilbert"]}, r"model_type is \['distilbert'\], and only models"),
    ],
)
def test_what_a_bert_cannot_compute_is_refused(tmp_path, fields, message):
    with pytest.raises(InputError, match=message):
        BertConfig.from_json_file(write_config(tmp_path, **fields))


@pytest.mark.parametrize("dim", ["wide", None, 0, -3])
def test_a_wrong_size_is_refused(tmp_path, dim):
    config = BertConfig.from_json_file(write_config(tmp_path, dim=dim))
    with pytest.raises(InputError, match="hidden_size"):
        config.validate("config.json")
