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
        return {"ids": features["input_ids"], "second": features["segment_ids"].sum(axis=1)}

    def run_texts(self, texts):
        return [{"text": f"{a}|{b}".encode()} for a, b in zip(texts["a"], texts["b"], strict=True)]


def test_outputs_become_plain_values():
    values = {
        "label": b"caf\xc3\xa9",
        "score": np.float32(0.1),
        "count": np.int32(3),
        "many": np.float32([[0.1, 2.0], [3.0, 1e-7]]),
        "strings": np.array([b"a", b""], object),
    }
    found = {name: plain(value) for name, value in values.items()}
    assert json.loads(json.dumps(found)) == {
        "label": "caf\u00e9",
        "score": 0.1,
        "count": 3,
        "many": [[0.1, 2.0], [3.0, 1e-07]],
        "strings": ["a", ""],
    }


def test_a_pair_is_joined_and_cut(tmp_path):
    client = TextClient(Echo(tmp_path), ["a", "b"], num_required=1)
    pieces = [
        toy.VOCABULARY.index(piece) for piece in ("[CLS]", "the", "cat", "[SEP]", "sat", "[SEP]")
    ]
    single = [
        toy.VOCABULARY.index(piece)
        for piece in ("[CLS]", "noon", "[SEP]", "[PAD]", "[PAD]", "[PAD]")
    ]
    assert client.answers([("the cat on", "sat"), ("noon",)]) == [
        {"ids": pieces, "second": 2},
        {"ids": single, "second": 0},
    ]


def test_a_text_that_is_not_given_is_empty():
    client = TextClient(Echo(), ["a", "b"], num_required=1)
    assert client.answers([("x", "y"), ("z",)]) == [{"text": "x|y"}, {"text": "z|"}]


@pytest.mark.parametrize(
    ("columns", "num_required", "texts", "wanted"),
    [
        (["a", "b"], 1, [], r"1 or 2 texts \(a, b\), 0"),
        (["a", "b"], None, ["x"], r"2 texts \(a, b\), 1"),
        (["a"], None, ["x", "y"], r"1 text \(a\), 2"),
    ],
)
def test_the_number_of_texts_is_checked(columns, num_required, texts, wanted):
    with pytest.raises(InputError, match=f"the model takes {wanted} given"):
        TextClient(Echo(), columns, num_required).check(texts)
