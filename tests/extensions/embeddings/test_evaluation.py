"""Tests of the data that an evaluation of embeddings refuses or warns about."""

import numpy as np
import pytest

from official_bert.data.text_examples import all_texts
from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings import evaluation
from official_bert.io.errors import InputError

UNIT = np.eye(4, dtype=np.float32)


def make_examples(*texts: str, labels: str = "") -> list[Example]:
    """Make examples of texts of one character each.

    Args:
        texts: The texts of an example: "ab" for a -> b, "abc" for a triplet.
        labels: The labels of the examples, one character each; empty for none.
    """
    examples = []
    for index, (anchor, *others) in enumerate(texts):
        line = index + 2
        label = labels[index] if labels else ""
        example = Example(
            f"dev.tsv: line {line}",
            anchor,
            tuple(others[:1]),
            tuple(others[1:]),
            label,
        )
        examples.append(example)
    return examples


def evaluate(examples: list[Example], vectors: dict, kind: str) -> dict[str, float]:
    rows = all_texts(examples)
    compute_metrics = evaluation.prepare(examples, rows, kind)
    text_vectors = [vectors[text] for text in rows.texts]
    return compute_metrics(np.float32(text_vectors))


TWO_CLUSTERS = {
    "a": [1, 0, 0, 0],
    "b": [0.99, 0.1, 0, 0],
    "c": [0, 0, 1, 0],
    "d": [0, 0, 1, 0.1],
}
ONE_FAN = {
    "a": [1, 0, 0, 0],
    "b": [0.99, 0.1, 0, 0],
    "c": [0.97, 0.2, 0, 0],
    "d": [0.95, 0.29, 0, 0],
}


@pytest.mark.parametrize(
    ("texts", "vectors"),
    [
        pytest.param(("ab", "ba", "cd"), TWO_CLUSTERS, id="one pair in both directions"),
        pytest.param(("ab", "bc", "cd"), ONE_FAN, id="chain"),
        pytest.param(("ab", "ba", "cd", "dc"), TWO_CLUSTERS, id="all pairs in both directions"),
    ],
)
def test_a_query_that_is_an_answer_does_not_rank_first(texts, vectors):
    """Perfect vectors give 1.0, as those of pairs that share no text."""
    metrics = evaluate(make_examples(*texts), vectors, "retrieval")
    assert metrics["eval_accuracy_at_1"] == 1.0
    assert metrics["eval_ndcg_at_10"] == 1.0


def test_labelled_pairs_do_not_rank_the_query(caplog):
    """q is its first candidate, with label 0, and r with label 1."""
    examples = make_examples("qq", "qp", "qn", "rr", "ro", "rn", labels="010110")
    vectors = {
        "q": UNIT[0],
        "p": UNIT[0] + 0.1 * UNIT[1],
        "n": UNIT[3],
        "r": UNIT[2],
        "o": UNIT[2],
    }
    metrics = evaluate(examples, vectors, "retrieval")
    assert metrics["eval_accuracy_at_1"] == 1.0
    assert metrics["eval_map"] == 1.0
    assert "1 examples have the query itself as its answer" in caplog.text


NO_TEXT_TO_FIND = "no query has a text to find among others"


@pytest.mark.parametrize(
    ("texts", "labels", "kind", "sentence"),
    [
        (["ab", "cd"], "11", "pairs", "all pairs have label 1"),
        (["ab", "cd"], "00", "pairs", "all pairs have label 0"),
        (["ab", "cd"], "33", "sts", "all pairs have the score 3"),
        (["ab"], "3", "sts", "all pairs have the score 3"),
        (["ab"], "", "retrieval", NO_TEXT_TO_FIND),
        (["ab", "cb"], "", "retrieval", NO_TEXT_TO_FIND),
        (["aa", "bb"], "", "retrieval", NO_TEXT_TO_FIND),
        (["ab", "ba"], "", "retrieval", NO_TEXT_TO_FIND),
    ],
    ids=str,
)
def test_a_metric_that_is_equal_for_all_models_is_refused(texts, labels, kind, sentence):
    examples = make_examples(*texts, labels=labels)
    rows = all_texts(examples)
    with pytest.raises(InputError, match=rf"dev\.tsv: line 2: {sentence}"):
        evaluation.prepare(examples, rows, kind)


def test_negatives_that_are_positives_are_counted(caplog):
    examples = make_examples("abc", "abb", "aba")
    evaluation.prepare(examples, all_texts(examples), "triplets")
    warning = "2 triplets count as wrong: their negative is also their anchor or positive"
    assert warning in caplog.text


def test_equal_vectors_are_warned_of(caplog):
    examples = make_examples("ab", "cd", labels="12")
    vectors = dict.fromkeys("abcd", UNIT[0])
    metrics = evaluate(examples, vectors, "sts")
    assert np.isnan(metrics["eval_spearman"])
    assert "All pairs have the same cosine" in caplog.text
