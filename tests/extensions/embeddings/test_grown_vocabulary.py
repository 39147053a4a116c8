"""A model of embeddings that gets new words keeps the way from a text to its embedding."""

import json

import numpy as np
import pytest

from official_bert import InputError
from official_bert.checkpoints.dense_module import Dense
from official_bert.data.prompts import Prompts
from official_bert.extensions.embeddings import sentence_folder
from official_bert.extensions.embeddings.sentence_encoder import SentenceEncoder
from official_bert.extensions.embeddings.sentence_folder import SentenceModules
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights
from tests.commands import test_grow_vocab as growth

folder = growth.folder


@pytest.mark.parametrize("form", ["tf1", "huggingface"])
def test_the_way_to_a_sentence_vector_stays(folder, form):
    """Pooling, layers, length, prompts and truncation: each changes the vectors."""
    (folder / "tokenizer.json").unlink()
    write_model = growth.write_tf1 if form == "tf1" else growth.write_huggingface
    write_model(folder, random_weights(pretraining_shapes(CONFIG)))
    generator = np.random.default_rng(3)
    kernel = np.float32(generator.normal(size=(6, 8)))
    bias = np.float32(generator.normal(size=6))
    modules = SentenceModules(
        str(folder),
        (Dense(kernel, bias, "tanh"),),
        "cls",
        5,
        True,
        4,
        Prompts({"q": "the cat "}, "q"),
        "dot",
    )
    sentence_folder.write(str(folder), modules, CONFIG.hidden_size)
    new = growth.grown(folder)
    assert SentenceModules.read(new).similarity == "dot"
    texts = ["cat play foot x the", "x"]
    before = SentenceEncoder(str(folder)).encode(texts)
    after = SentenceEncoder(new).encode(texts)
    assert before.shape == (2, 4)
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        pytest.param(3, "modules.json: is not an object", id="a number"),
        pytest.param({"path": 5}, '"path" is not a text', id="a path that is a number"),
    ],
)
def test_a_damaged_entry_of_the_modules_is_refused(folder, entry, message):
    (folder / "tokenizer.json").unlink()
    growth.write_tf1(folder, random_weights(pretraining_shapes(CONFIG)))
    encoder = {"path": "", "type": "sentence_transformers.models.Transformer"}
    (folder / "modules.json").write_text(json.dumps([encoder, entry]))
    with pytest.raises(InputError, match=message):
        growth.grown(folder)
    assert not (folder.parent / "new").exists()
