"""The expected values are the original's defaults and the rules for reading a Hugging Face
config.json.
"""

import json
import re

import pytest

from official_bert.config import SIZES, BertConfig
from official_bert.io.errors import InputError

HUGGING_FACE = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": False,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 384,
    "initializer_range": 0.02,
    "intermediate_size": 1536,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 6,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": 30522,
}


def write(folder, content) -> str:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_the_originals_defaults():
    assert BertConfig(100).to_dict() == {
        "vocab_size": 100,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 512,
        "type_vocab_size": 16,
        "initializer_range": 0.02,
    }


def test_json_is_indented_and_sorted_and_comes_back_with_unknown_keys(tmp_path):
    config = BertConfig.from_dict({"vocab_size": 9, "pooler_type": "first_token_transform"})
    assert (config.pooler_type, config.hidden_size) == ("first_token_transform", 768)
    text = config.to_json_string()
    assert text.startswith('{\n  "attention_probs_dropout_prob": 0.1,\n  "hidden_act": "gelu",\n')
    assert text.endswith('  "vocab_size": 9\n}\n')
    assert BertConfig.from_json_file(write(tmp_path, text)).to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("size", "layers", "hidden", "heads", "intermediate"),
    [
        ("tiny", 2, 128, 2, 512),
        ("mini", 4, 256, 4, 1024),
        ("small", 4, 512, 8, 2048),
        ("medium", 8, 512, 8, 2048),
        ("base", 12, 768, 12, 3072),
        ("large", 24, 1024, 16, 4096),
        ("L2_H128", 2, 128, 2, 512),
        ("L4_H256", 4, 256, 4, 1024),
        ("L12_H768", 12, 768, 12, 3072),
    ],
)
def test_named_sizes(size, layers, hidden, heads, intermediate):
    config = BertConfig.from_size(size)
    config.validate()
    assert (config.num_hidden_layers, config.hidden_size) == (layers, hidden)
    assert (config.num_attention_heads, config.intermediate_size) == (heads, intermediate)
    assert (config.vocab_size, config.type_vocab_size) == (30522, 2)


def test_named_sizes_take_overrides():
    config = BertConfig.from_size("tiny", vocab_size=50, hidden_size=64, max_position_embeddings=32)
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (50, 64, 256)
    assert config.max_position_embeddings == 32
    with pytest.raises(InputError, match=r"'huge'.*tiny, mini"):
        BertConfig.from_size("huge")
    assert len([name for name in SIZES if name.startswith("L")]) == 24


def test_hugging_face_config_keeps_only_our_fields(tmp_path):
    config = BertConfig.from_json_file(write(tmp_path, HUGGING_FACE))
    assert set(config.to_dict()) == set(BertConfig(1).to_dict())
    assert config.hidden_act == "gelu_erf"
    assert (config.hidden_size, config.num_hidden_layers, config.type_vocab_size) == (384, 6, 2)
    again = BertConfig.from_json_file(write(tmp_path, config.to_json_string()))
    assert again.to_dict() == config.to_dict()
    own = BertConfig.from_json_file(write(tmp_path, HUGGING_FACE | {"classifier_dropout": 0.3}))
    assert own.to_dict() == config.to_dict() | {"classifier_dropout": 0.3}
    assert own.to_huggingface_dict()["classifier_dropout"] == 0.3


def test_hugging_face_activations(tmp_path):
    def read(fields):
        return BertConfig.from_json_file(write(tmp_path, fields)).hidden_act

    theirs = {
        "gelu": "gelu_erf",
        "gelu_new": "gelu",
        "gelu_pytorch_tanh": "gelu",
        "gelu_fast": "gelu",
        "relu": "relu",
    }
    assert {name: read(HUGGING_FACE | {"hidden_act": name}) for name in theirs} == theirs
    without = {name: value for name, value in HUGGING_FACE.items() if name != "hidden_act"}
    assert read(without) == "gelu_erf", "Hugging Face's default is its own gelu"


def test_to_hugging_face(tmp_path):
    for ours, theirs in {
        "gelu": "gelu_new",
        "gelu_erf": "gelu",
        "relu": "relu",
        "": "linear",
    }.items():
        config = BertConfig.from_size("tiny", hidden_act=ours)
        config.directionality = "bidi"
        fields = config.to_huggingface_dict()
        assert fields["hidden_act"] == theirs
        assert (fields["model_type"], fields["layer_norm_eps"]) == ("bert", 1e-12)
        assert "directionality" not in fields
        assert BertConfig.from_json_file(write(tmp_path, fields)).hidden_size == 128


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "roberta"),
        ("position_embedding_type", "relative_key"),
        ("layer_norm_eps", 1e-5),
        ("is_decoder", True),
        ("pruned_heads", {"0": [1]}),
        ("hidden_act", "swish"),
    ],
)
def test_other_hugging_face_models_are_refused(tmp_path, key, value):
    path = write(tmp_path, HUGGING_FACE | {key: value})
    with pytest.raises(InputError, match=rf"config\.json: {key} .*{re.escape(str(value))}"):
        BertConfig.from_json_file(path)


def test_null_is_the_default_of_a_hugging_face_field(tmp_path):
    fields = dict.fromkeys(
        ("position_embedding_type", "layer_norm_eps", "is_decoder", "classifier_dropout")
    )
    assert (
        vars(BertConfig.from_json_file(write(tmp_path, HUGGING_FACE | fields))).keys()
        == vars(BertConfig(1)).keys()
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"vocab_size": 5,\n "hidden_size" 4}', "line 2, column 16: no JSON"),
        (b"[1, 2]", "is not an object"),
        (b"\xff\xfe\x00", r"byte \d+ is no utf-"),
    ],
)
def test_malformed_files_are_named(tmp_path, content, sentence):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=rf"config\.json: {sentence}"):
        BertConfig.from_json_file(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("vocab_size", None, "vocab_size is missing"),
        ("vocab_size", 0, "vocab_size must be a positive whole number, got 0"),
        ("hidden_size", 768.0, "hidden_size must be a positive whole number"),
        ("num_hidden_layers", "12", "num_hidden_layers must be a positive whole number, got '12'"),
        ("type_vocab_size", True, "type_vocab_size"),
        ("hidden_dropout_prob", 1.0, "hidden_dropout_prob must be a number from 0 to below 1"),
        ("attention_probs_dropout_prob", "none", "attention_probs_dropout_prob"),
        ("initializer_range", float("nan"), "initializer_range must be 0 or positive, got nan"),
        (
            "num_attention_heads",
            7,
            r"hidden_size \(768\) must be a multiple of num_attention_heads \(7\)",
        ),
        ("classifier_dropout", 1, "classifier_dropout must be a number from 0 to below 1"),
        (
            "hidden_act",
            "swish",
            "hidden_act must be one of gelu, gelu_erf, relu, tanh, linear, got 'swish'",
        ),
        ("pooler_act", "swish", "pooler_act must be one of gelu, gelu_erf, relu, tanh, linear"),
        ("pooler_act", None, "pooler_act must be one of gelu, gelu_erf, relu, tanh, linear"),
    ],
)
def test_values_no_model_can_be_built_from(field, value, sentence):
    config = BertConfig.from_dict({"vocab_size": 30522, field: value})
    with pytest.raises(InputError, match=f"^file.json: .*{sentence}"):
        config.validate("file.json")


@pytest.mark.parametrize("activation", ["GELU", "relu", None, "", "linear", "gelu_erf", abs])
def test_activations_of_the_original_pass(activation):
    BertConfig(
        30522, hidden_act=activation, hidden_dropout_prob=None, attention_probs_dropout_prob=0
    ).validate()


def test_repr_makes_it_again():
    config = BertConfig(99, hidden_size=8, hidden_act="relu", hidden_dropout_prob=0.25)
    assert repr(config).startswith(
        "BertConfig(vocab_size=99, hidden_size=8, num_hidden_layers=12, "
    )
    assert "hidden_act='relu'" in repr(config)
    assert eval(repr(config)).to_dict() == config.to_dict()
    other = BertConfig.from_dict({"vocab_size": 9, "pooler_type": "first"})
    assert eval(repr(other)).to_dict() == other.to_dict()
