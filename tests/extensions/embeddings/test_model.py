"""The layers of a model of embeddings, and its .keras file."""

import keras
import numpy as np

from official_bert import BertConfig
from official_bert.extensions.embeddings.model import BertEmbedder, normalized
from tests import toy
from tests.scripts import run_interpreter


def test_normalized_vectors_have_norm_one():
    vectors = np.float32(
        [
            [3, 4],
            [0, 0],
            [1e-3, 0],
        ]
    )
    expected = [
        [0.6, 0.8],
        [0, 0],
        [1, 0],
    ]
    np.testing.assert_allclose(normalized(vectors), expected, rtol=1e-6)


def test_a_keras_file_is_loaded_by_a_program_that_imports_the_package_alone(tmp_path):
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": 1})
    model = BertEmbedder(config, "max", projection=6)
    path = tmp_path / "model.keras"
    model.save(path)
    ids = [[5, 7, 9]]
    program = (
        "import official_bert; "
        f"print(official_bert.load_model({str(path)!r})({{'input_ids': {ids}}}).numpy().tolist())"
    )
    output = run_interpreter("-c", program).stdout
    vectors = keras.ops.array(eval(output))
    expected = model({"input_ids": ids})
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
