"""Hugging Face folders with the layout and names of transformers; the tests write them by hand
with safetensors.
"""

import json
import os

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from official_bert.checkpoints import huggingface
from official_bert.io.errors import InputError
from tests.checkpoints.sample import CONFIG, encoder_shapes, pretraining_shapes, random_weights


def refusal(message: str):
    """Expects an error of the user whose text matches."""
    return pytest.raises(InputError, match=message)


def test_names_and_layout_of_what_is_written(tmp_path):
    weights = random_weights(pretraining_shapes(CONFIG))
    huggingface.write(str(tmp_path), weights, CONFIG)
    path = tmp_path / "model.safetensors"
    written = safetensors.numpy.load_file(str(path))
    assert len(written) == 46
    with safetensors.safe_open(path, framework="numpy") as opened:
        assert opened.metadata() == {"format": "pt"}  # without which transformers refuses the file
    np.testing.assert_array_equal(
        written["bert.encoder.layer.1.intermediate.dense.weight"],
        weights["bert/encoder/layer_1/intermediate/dense/kernel"].T,
    )
    np.testing.assert_array_equal(
        written["cls.seq_relationship.weight"],
        weights["cls/seq_relationship/output_weights"],
    )
    np.testing.assert_array_equal(
        written["bert.embeddings.LayerNorm.weight"],
        weights["bert/embeddings/LayerNorm/gamma"],
    )
    np.testing.assert_array_equal(
        written["cls.predictions.bias"],
        weights["cls/predictions/output_bias"],
    )
    # The kernel is square: neither a shape nor the way there and back would tell that it does not
    # turn.
    np.testing.assert_array_equal(
        written["bert.encoder.layer.1.attention.self.key.weight"],
        weights["bert/encoder/layer_1/attention/self/key/kernel"].T,
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["model_type"] == "bert"
    assert config["hidden_act"] == "gelu_new"
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]


WORDS = "bert.embeddings.word_embeddings.weight"
BIAS = "cls.predictions.bias"


@pytest.mark.parametrize(
    ("name", "other", "sentence"),
    [
        pytest.param(
            WORDS,
            "embeddings.word_embeddings.weight",
            "name the same weight and differ; remove the one",
            id="words without prefix",
        ),
        pytest.param(
            "bert.embeddings.LayerNorm.weight",
            "bert.embeddings.LayerNorm.gamma",
            "name the same weight and differ",
            id="old name",
        ),
        pytest.param(
            WORDS,
            "cls.predictions.decoder.weight",
            "only models that share the word embeddings with the output layer",
            id="words of the decoder",
        ),
        pytest.param(
            BIAS,
            "cls.predictions.decoder.bias",
            "only models that share this bias with the output layer",
            id="bias of the decoder",
        ),
    ],
)
def test_a_weight_under_two_names_has_one_value(tmp_path, name, other, sentence):
    weights = random_weights(pretraining_shapes(CONFIG))
    huggingface.write(str(tmp_path), weights, CONFIG)
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(tensors | {other: tensors[name]}, path)
    assert sorted(huggingface.HuggingFaceCheckpoint(str(tmp_path)).shapes) == sorted(weights)
    safetensors.numpy.save_file(tensors | {other: tensors[name] + 1}, path)
    with refusal(sentence):
        huggingface.HuggingFaceCheckpoint(str(tmp_path))


def test_heads_name_the_class_and_a_bare_encoder_has_no_prefix(tmp_path):
    """tests/test_model_io.py has the other classes."""

    def config_with(heads):
        weights = random_weights(encoder_shapes(CONFIG) | heads)
        huggingface.write(str(tmp_path), weights, CONFIG)
        return json.loads((tmp_path / "config.json").read_text())

    config = config_with({"cls/predictions/output_bias": (20,)})
    assert config["architectures"] == ["BertForMaskedLM"]
    classifier_head = {
        "output_weights": (3, 8),
        "output_bias": (3,),
    }
    config = config_with(classifier_head)
    assert config["id2label"] == {
        "0": "LABEL_0",
        "1": "LABEL_1",
        "2": "LABEL_2",
    }
    config_with({})
    written = safetensors.numpy.load_file(str(tmp_path / "model.safetensors"))
    assert "embeddings.word_embeddings.weight" in written
    assert not any(name.startswith("bert.") for name in written)


def test_old_names_and_copies_of_other_weights(tmp_path):
    words = np.arange(6, dtype=np.float32).reshape(3, 2)
    tensors = {
        "bert.embeddings.word_embeddings.weight": words,
        "bert.embeddings.LayerNorm.gamma": np.float32([1, 2]),
        "bert.embeddings.LayerNorm.beta": np.float32([3, 4]),
        "bert.embeddings.position_ids": np.arange(4)[None],
        "cls.predictions.decoder.weight": words,
        "cls.predictions.decoder.bias": np.zeros(3, np.float32),
        "cls.predictions.bias": np.zeros(3, np.float32),
        "dropout_scale": np.zeros(1, np.float32),
    }
    path = str(tmp_path / "model.safetensors")
    safetensors.numpy.save_file(tensors, path)
    for checkpoint in map(huggingface.HuggingFaceCheckpoint, (path, str(tmp_path))):
        assert checkpoint.shapes == {
            "bert/embeddings/LayerNorm/beta": (2,),
            "bert/embeddings/LayerNorm/gamma": (2,),
            "bert/embeddings/word_embeddings": (3, 2),
            "cls/predictions/output_bias": (3,),
            "dropout_scale": (1,),
        }
        assert checkpoint.read("bert/embeddings/LayerNorm/gamma").tolist() == [1, 2]

    safetensors.numpy.save_file(tensors | {"cls.predictions.decoder.weight": words + 1}, path)
    with refusal(r"decoder\.weight differs"):
        huggingface.HuggingFaceCheckpoint(path)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_floats_are_widened(tmp_path, dtype):
    kernel = np.array([[1.5, -2.0], [0.25, 3.0], [8.0, 0.5]], dtype)
    safetensors.numpy.save_file(
        {"pooler.dense.weight": kernel},
        str(tmp_path / "model.safetensors"),
    )
    checkpoint = huggingface.HuggingFaceCheckpoint(str(tmp_path))
    weight = checkpoint.read("bert/pooler/dense/kernel")
    assert weight.dtype == np.float32
    expected = [
        [1.5, 0.25, 8.0],
        [-2.0, 3.0, 0.5],
    ]
    np.testing.assert_array_equal(weight, expected)


def test_shards(tmp_path):
    first = tmp_path / "model-00001-of-00002.safetensors"
    second = tmp_path / "model-00002-of-00002.safetensors"
    index = tmp_path / "model.safetensors.index.json"
    bias = {"bert.pooler.dense.bias": np.float32([1, 2])}
    weight = {"bert.pooler.dense.weight": np.float32([[1, 2], [3, 4]])}
    safetensors.numpy.save_file(bias, first)
    safetensors.numpy.save_file(weight, second)
    weight_map = {
        "bert.pooler.dense.bias": first.name,
        "bert.pooler.dense.weight": second.name,
    }
    index.write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = huggingface.HuggingFaceCheckpoint(str(tmp_path))
    assert checkpoint.read("bert/pooler/dense/bias").tolist() == [1, 2]
    assert checkpoint.read("bert/pooler/dense/kernel").tolist() == [[1, 3], [2, 4]]
    # The index says which copy counts, and what is not in it is left over from another conversion.
    leftovers = {
        "bert.pooler.dense.bias": np.float32([9]),
        "old": np.float32([9]),
    }
    safetensors.numpy.save_file(weight | leftovers, second)
    checkpoint = huggingface.HuggingFaceCheckpoint(str(tmp_path))
    assert checkpoint.read("bert/pooler/dense/bias").tolist() == [1, 2]
    assert sorted(checkpoint.shapes) == ["bert/pooler/dense/bias", "bert/pooler/dense/kernel"]
    safetensors.numpy.save_file({"old": np.float32([9])}, second)
    message = r"00002-of-00002\.safetensors: lacks bert.pooler.dense.weight, which model"
    with refusal(message):
        huggingface.HuggingFaceCheckpoint(str(tmp_path))

    second.unlink()
    with refusal(r"00002-of-00002\.safetensors: cannot be read"):
        huggingface.HuggingFaceCheckpoint(str(tmp_path))
    index.write_text("{}")
    with refusal("weight_map"):
        huggingface.HuggingFaceCheckpoint(str(tmp_path))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="its folder"),
        pytest.param("pytorch_model.bin", id="the file"),
    ],
)
def test_a_pickle_gets_the_remedy(tmp_path, name):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    path = str(tmp_path / name)
    assert huggingface.is_huggingface(path)
    with refusal(r"pytorch_model\.bin.*safe_serialization=True"):
        huggingface.HuggingFaceCheckpoint(path)


def test_a_corrupt_file_is_named(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 20)
    with refusal(r"model\.safetensors: cannot be read as safetensors"):
        huggingface.HuggingFaceCheckpoint(str(tmp_path))
