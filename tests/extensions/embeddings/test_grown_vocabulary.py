"""A model of embeddings that gets new words keeps the way from a text to its embedding."""

import numpy as np
import pytest

from official_bert.extensions.embeddings import sentence_folder
from official_bert.extensions.embeddings.sentence_encoder import SentenceEncoder
from official_bert.extensions.embeddings.sentence_folder import Dense, SentenceModules
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights
from tests.commands import test_grow_vocab as growth

folder = growth.folder


@pytest.mark.parametrize("form", ["tf1", "huggingface"])
def test_the_way_to_a_sentence_vector_stays(folder, form):
    """Pooling, layers, length, prompts and truncation: each changes the vectors."""
    (folder / "tokenizer.json").unlink()
    (growth.write_tf1 if form == "tf1" else growth.write_huggingface)(
        folder, random_weights(pretraining_shapes(CONFIG))
    )
    draws = np.random.default_rng(3)
    dense = Dense(np.float32(draws.normal(size=(6, 8))), np.float32(draws.normal(size=6)), "tanh")
    modules = SentenceModules(
        str(folder), (dense,), "cls", 5, True, 4, {"q": "the cat "}, "q", "dot"
    )
    sentence_folder.write(str(folder), modules, CONFIG.hidden_size)
    new = growth.grown(folder)
    assert SentenceModules.read(new).similarity == "dot"
    texts = ["cat play foot x the", "x"]
    before, after = (SentenceEncoder(path).encode(texts) for path in (str(folder), new))
    assert before.shape == (2, 4)
    np.testing.assert_array_equal(before, after)
