"""The training set of each loss, and rows that a loss cannot learn from."""

import numpy as np
import pytest

from official_bert import FullTokenizer
from official_bert.data.text_tables import Example
from official_bert.extensions.reranking import training_sets
from official_bert.extensions.reranking.inputs import NO_DOCUMENT
from official_bert.extensions.reranking.settings import RerankingSettings
from official_bert.io.errors import InputError

PAIRS = [
    Example("line 2", "the cat", ("sat",), label="1"),
    Example("line 3", "the cat", ("rain",), label="0"),
    Example("line 4", "a train", ("noon",), label="0"),
    Example("line 5", "the cat", ("mat",), label="2"),
    Example("line 6", "a train", ("park",), label="1"),
]
TRIPLES = [
    Example("line 2", "the cat", ("sat", "mat"), ("rain",)),
    Example("line 3", "a train", ("park",), ("noon", "day")),
]


@pytest.fixture(scope="module")
def tokenizer(base):
    return FullTokenizer.from_pretrained(str(base))


def encode(tokenizer, rows, loss, **flags):
    """The documents of each example as texts, and their labels."""
    encoded = training_sets.encode(rows, tokenizer, 16, RerankingSettings(loss=loss, **flags))
    vocabulary = {number: piece for piece, number in tokenizer.vocab.items()}
    texts = []
    for documents in encoded.documents:
        ids = [encoded.pairs._ids[row].tolist() for row in documents if row != NO_DOCUMENT]
        texts.append(" ".join(vocabulary[number] for (number,) in ids))
    return texts, encoded.labels.tolist()


def test_each_document_is_an_example_of_losses_of_pairs(tokenizer):
    texts, labels = encode(tokenizer, TRIPLES, "binary_cross_entropy")
    assert texts == ["sat", "mat", "rain", "park", "noon", "day"]
    assert np.ravel(labels).tolist() == [1, 1, 0, 1, 0, 0]
    assert encode(tokenizer, PAIRS, "mse")[1] == [[1], [0], [0], [2], [1]]


def test_the_documents_of_a_query_are_an_example_of_losses_of_lists(tokenizer):
    texts, labels = encode(tokenizer, PAIRS, "list_net")
    assert texts == ["sat rain mat", "noon park"]
    assert labels == [[1, 0, 2], [0, 1, 0]]
    # Equal labels have no order.
    same = [*PAIRS, Example("line 7", "a day", ("sat", "mat"), label="1")]
    assert encode(tokenizer, same, "rank_net")[0] == texts
    parts, _ = encode(tokenizer, PAIRS, "lambda_loss", list_size=2)
    assert parts == ["sat rain", "mat rain", "noon park"]


def test_margins_are_those_of_the_positive_or_of_the_best_document(tokenizer):
    scored = [Example("line 2", "the cat", ("sat",), ("rain", "mat", "day"), label="3 4 1 2")]
    texts, labels = encode(tokenizer, scored, "margin_mse", list_size=3)
    assert texts == ["sat rain mat", "sat day"]
    assert labels == [[3, 4, 1], [3, 2, 0]]
    texts, labels = encode(tokenizer, PAIRS, "margin_mse")
    assert texts == ["mat sat rain", "park noon"]
    assert labels == [[2, 1, 0], [1, 0, 0]]


def test_positives_come_before_the_negatives_of_their_query(tokenizer):
    texts, _ = encode(tokenizer, TRIPLES, "multiple_negatives_ranking")
    assert texts == ["sat rain", "mat rain", "park noon day"]
    texts, _ = encode(tokenizer, TRIPLES, "multiple_negatives_ranking", list_size=2)
    assert texts == ["sat rain", "mat rain", "park noon"]
    texts, _ = encode(tokenizer, PAIRS, "multiple_negatives_ranking")
    assert texts == ["sat rain", "mat rain", "park noon"]


def relabelled(*labels) -> list[Example]:
    return [row._replace(label=label) for row, label in zip(PAIRS, labels, strict=False)]


@pytest.mark.parametrize(
    ("rows", "loss", "sentence"),
    [
        (PAIRS, "binary_cross_entropy", "line 5: has the label 2, but .* labels from 0 to 1"),
        (relabelled("1", "1"), "binary_cross_entropy", "line 2: all documents have the label 1"),
        (relabelled("5", "5"), "mse", "line 2: all documents have the label 5, .* mine_hard_neg"),
        (relabelled("1", "1"), "rank_net", "no query of the training set has documents with diff"),
        (PAIRS[2:3], "margin_mse", "no query of the training set has two documents"),
        (relabelled("0", "0"), "multiple_negatives_ranking", "no document .* a label above 0"),
        (PAIRS[:2], "multiple_negatives_ranking", "line 2: all queries have the same document"),
    ],
)
def test_rows_without_anything_to_learn_are_refused(tokenizer, rows, loss, sentence):
    with pytest.raises(InputError, match=sentence):
        encode(tokenizer, rows, loss)


def test_a_teacher_must_be_a_model_of_pairs(tokenizer, tmp_path):
    with pytest.raises(InputError, match=f"--teacher={tmp_path}: .* holds no model"):
        encode(tokenizer, PAIRS, "mse", teacher=str(tmp_path))
