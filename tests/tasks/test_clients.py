"""What the clients of all families share: plain values, checks, and the rows of a model's
outputs.
"""

import json

import numpy as np
import pytest

from official_bert.io.errors import InputError
from official_bert.tasks.clients import TextClient, plain
from official_bert.tokenization import FullTokenizer
from tests import toy


class Echo:
    """An export that answers with what it was asked."""

    max_seq_length = 6

    def __init__(self, folder=None):
        self.reads_text = folder is None
        self.tokenizer = folder and FullTokenizer(toy.write_vocabulary(folder))

    def run(self, encoded):
        features = encoded.features(np.arange(len(encoded)), 6)
        return {
            "ids": features["input_ids"],
            "second": features["segment_ids"].sum(axis=1),
        }

    def run_texts(self, texts):
        pairs = zip(texts["a"], texts["b"], strict=True)
        return [{"text": f"{a}|{b}".encode()} for a, b in pairs]


def test_outputs_become_plain_values():
    values = {
        "label": b"caf\xc3\xa9",
        "score": np.float32(0.1),
        "count": np.int32(3),
        "many": np.float32([[0.1, 2.0], [3.0, 1e-7]]),
        "strings": np.array([b"a", b""], object),
    }
    plain_values = {name: plain(value) for name, value in values.items()}
    assert json.loads(json.dumps(plain_values)) == {
        "label": "caf\u00e9",
        "score": 0.1,
        "count": 3,
        "many": [[0.1, 2.0], [3.0, 1e-07]],
        "strings": ["a", ""],
    }


def test_a_pair_is_joined_and_cut(tmp_path):
    client = TextClient(Echo(tmp_path), ["a", "b"], num_required=1)
    pair_pieces = ["[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]"]
    single_pieces = ["[CLS]", "noon", "[SEP]", "[PAD]", "[PAD]", "[PAD]"]
    pair, single = client.answers([("the cat on", "sat"), ("noon",)])
    assert pair == {
        "ids": [toy.VOCABULARY.index(piece) for piece in pair_pieces],
        "second": 2,
    }
    assert single == {
        "ids": [toy.VOCABULARY.index(piece) for piece in single_pieces],
        "second": 0,
    }


def test_a_text_that_is_not_given_is_empty():
    client = TextClient(Echo(), ["a", "b"], num_required=1)
    assert client.answers([("x", "y"), ("z",)]) == [{"text": "x|y"}, {"text": "z|"}]


@pytest.mark.parametrize(
    ("columns", "num_required", "texts", "message"),
    [
        pytest.param(
            ["a", "b"],
            1,
            [],
            r"the model takes 1 or 2 texts \(a, b\), 0 given",
            id="no text",
        ),
        pytest.param(
            ["a", "b"],
            None,
            ["x"],
            r"the model takes 2 texts \(a, b\), 1 given",
            id="half a pair",
        ),
        pytest.param(
            ["a"],
            None,
            ["x", "y"],
            r"the model takes 1 text \(a\), 2 given",
            id="a pair in place of a text",
        ),
    ],
)
def test_the_number_of_texts_is_checked(columns, num_required, texts, message):
    client = TextClient(Echo(), columns, num_required)
    with pytest.raises(InputError, match=message):
        client.check(texts)
