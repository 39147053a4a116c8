"""The original's names and those of transformers' BertForPreTraining, both written by hand."""

import pytest

from official_bert import catalog
from official_bert.checkpoints import names
from official_bert.core import CORE
from official_bert.io.errors import InputError
from official_bert.tasks import registry

PAIRS = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/LayerNorm/beta": "bert.embeddings.LayerNorm.bias",
    "bert/embeddings/LayerNorm/gamma": "bert.embeddings.LayerNorm.weight",
    "bert/encoder/layer_0/attention/self/query/kernel": "bert.encoder.layer.0.attention.self.query.weight",
    "bert/encoder/layer_0/attention/self/key/kernel": "bert.encoder.layer.0.attention.self.key.weight",
    "bert/encoder/layer_0/attention/self/value/kernel": "bert.encoder.layer.0.attention.self.value.weight",
    "bert/encoder/layer_11/attention/self/value/bias": "bert.encoder.layer.11.attention.self.value.bias",
    "bert/encoder/layer_3/attention/output/dense/kernel": "bert.encoder.layer.3.attention.output.dense.weight",
    "bert/encoder/layer_3/attention/output/LayerNorm/gamma": (
        "bert.encoder.layer.3.attention.output.LayerNorm.weight"
    ),
    "bert/encoder/layer_7/intermediate/dense/kernel": "bert.encoder.layer.7.intermediate.dense.weight",
    "bert/encoder/layer_7/output/LayerNorm/beta": "bert.encoder.layer.7.output.LayerNorm.bias",
    "bert/pooler/dense/kernel": "bert.pooler.dense.weight",
    "cls/predictions/transform/dense/kernel": "cls.predictions.transform.dense.weight",
    "cls/predictions/transform/LayerNorm/gamma": "cls.predictions.transform.LayerNorm.weight",
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}


@pytest.mark.parametrize(("tf1", "huggingface"), PAIRS.items())
def test_both_ways(tf1, huggingface):
    # Only kernels turn: heads are [out, in] in both.
    expected = names.Entry(tf1, huggingface, transposed=tf1.endswith("kernel"))
    assert names.to_huggingface(tf1) == expected
    assert names.from_huggingface(huggingface) == expected


@pytest.mark.parametrize(
    ("huggingface", "tf1"),
    [
        ("embeddings.word_embeddings.weight", "bert/embeddings/word_embeddings"),
        ("encoder.layer.2.output.dense.weight", "bert/encoder/layer_2/output/dense/kernel"),
        ("bert.embeddings.LayerNorm.gamma", "bert/embeddings/LayerNorm/gamma"),
        ("cls.predictions.transform.LayerNorm.beta", "cls/predictions/transform/LayerNorm/beta"),
    ],
)
def test_other_spellings_of_hugging_face(huggingface, tf1):
    assert names.from_huggingface(huggingface).tf1 == tf1


@pytest.mark.parametrize(
    ("path", "tf1"),
    [
        ("bert/pooler/dense/bias", "bert/pooler/dense/bias"),
        ("pretrainer/cls/predictions/output_bias", "cls/predictions/output_bias"),
        ("classifier/output_weights", "output_weights"),
        ("mine/dense/kernel", "mine/dense/kernel"),
        ("outer/mine/bert/pooler/dense/bias", "bert/pooler/dense/bias"),
        ("outer/spans/cls/squad/output_bias", "cls/squad/output_bias"),
        ("outer/mine/output_weights", "outer/mine/output_weights"),
    ],
)
def test_a_path_is_looked_up_with_and_without_its_model(path, tf1):
    assert names.from_path(path) == tf1


def test_what_is_no_weight():
    assert names.from_huggingface("lm_head.weight") is None
    assert names.to_huggingface("global_step") is None
    assert names.to_huggingface("bert/encoder/layer_0/output/dense/kernel/adam_m") is None
    assert names.is_redundant("embeddings.position_ids")
    assert names.is_redundant("bert.embeddings.position_ids")
    assert names.is_redundant("cls.predictions.decoder.bias")
    assert not names.is_redundant("cls.predictions.bias")


def test_training_state_and_layers():
    assert names.is_training_state("global_step")
    assert names.is_training_state("output_bias/adam_v")
    assert not names.is_training_state("output_bias")
    assert names.num_layers(PAIRS) == 12
    assert names.num_layers(["output_bias"]) == 0


def test_every_head_of_the_table_of_names_is_of_known_families():
    heads = {entry.tf1: (2, 4) for entry in names._TABLE if not entry.tf1.startswith(names.ENCODER)}
    families = names.find_families(heads, "path")
    assert families >= CORE.families.keys()
    # Families of extensions may have a head of the core.
    assert families <= catalog.families().keys()
    assert {registry.task_class(family) for family in families}
    state = {"output_weights/adam_m": (2, 4), "global_step": (), "loss_scale": ()}
    assert (
        names.find_families({"bert/pooler/dense/bias": (4,), "bilstm/kernel": (4,)} | state, "path")
        == set()
    )
    with pytest.raises(
        InputError,
        match=r"^path: has relation/kernel, the head of no known task; name its task",
    ):
        names.find_families({"bert/pooler/dense/bias": (4,), "relation/kernel": (8, 2)}, "path")
    beside = {"cls/predictions/output_bias": (20,), "relation/kernel": (8, 2)}
    assert names.find_families(beside, "path") == {"pretraining"}
