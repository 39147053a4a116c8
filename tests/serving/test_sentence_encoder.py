"""Sentence vectors are those of one text at a time, pooled by numpy, in the order of the texts."""

import json
import shutil

import numpy as np
import pytest

from official_bert import BertModel, FullTokenizer, InputError, SentenceEncoder
from tests import toy

TEXTS = ["The cat sat on the mat. It was a sunny day in the park.", "", "A train left.", "Nobody was on board.", "Rain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(toy.make_bert_base_dir(tmp_path_factory.mktemp("model"), num_hidden_layers=2))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_vectors_are_pooled_from_the_last_layer(folder, pooling):
    model, tokenizer = BertModel.from_pretrained(folder), FullTokenizer(f"{folder}/vocab.txt")
    pool = {"mean": np.mean, "cls": lambda vectors, axis: vectors[0], "max": np.max}[pooling]
    expected = [pool(model(**tokenizer(text)).sequence_output.numpy()[0], axis=0) for text in TEXTS]
    raw = SentenceEncoder(folder, pooling, normalize=False).encode(TEXTS)
    assert raw.dtype == np.float32
    np.testing.assert_allclose(raw, expected, atol=2e-6)
    unit = SentenceEncoder(folder, pooling).encode(TEXTS)
    np.testing.assert_allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=2e-6)


def test_the_batch_size_does_not_matter(folder):
    encoder = SentenceEncoder(folder)
    whole = encoder.encode(TEXTS)
    for batch_size in (1, 2):
        np.testing.assert_allclose(encoder.encode(TEXTS, batch_size), whole, atol=1e-6)
    np.testing.assert_allclose(encoder.encode(TEXTS[2]), whole[2:3], atol=1e-6)
    assert encoder.encode([]).shape == (0, whole.shape[1])


def test_long_texts_are_truncated(folder):
    short = SentenceEncoder(folder, max_seq_length=4)
    np.testing.assert_array_equal(short.encode("A train left"), short.encode("A train sat"))
    with pytest.raises(InputError, match="max_seq_length=513: the model was made for sequences up to 512"):
        SentenceEncoder(folder, max_seq_length=513)


def test_the_casing_is_that_of_the_folder(folder, tmp_path):
    cased = tmp_path / "cased"
    shutil.copytree(folder, cased)
    (cased / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert SentenceEncoder(cased).tokenizer.tokenize("The cat") == ["[UNK]", "cat"]
    assert SentenceEncoder(f"{folder}/bert_model.ckpt").tokenizer.tokenize("The cat") == ["the", "cat"]


@pytest.mark.parametrize(
    ("arguments", "texts", "batch_size", "message"),
    [
        ({"pooling": "sum"}, TEXTS, 32, "pooling='sum': must be one of mean, cls, max"),
        ({}, TEXTS, 0, "batch_size=0: must be a positive whole number"),
        ({}, ["a", 3], 32, "texts: number 1"),
    ],
)
def test_wrong_arguments_are_named(folder, arguments, texts, batch_size, message):
    with pytest.raises(InputError, match=message):
        SentenceEncoder(folder, **arguments).encode(texts, batch_size)
