"""What an evaluation of sentence vectors refuses or counts, because it would give a value that
says nothing.
"""

import numpy as np
import pytest

from official_bert.data.text_tables import Example
from official_bert.extensions.embeddings import evaluation
from official_bert.extensions.embeddings.examples import all_texts
from official_bert.io.errors import InputError

UNIT = np.eye(4, dtype=np.float32)


def pairs(*texts: str, labels: str = "") -> list[Example]:
    """Examples of pairs, "ab" for a -> b, with a label of one character each."""
    return [
        Example(
            f"dev.tsv: line {number}",
            one[0],
            tuple(one[1:2]),
            tuple(one[2:]),
            labels[number - 2 : number - 1],
        )
        for number, one in enumerate(texts, start=2)
    ]


def metrics_of(examples: list[Example], vectors: dict, kind: str) -> dict[str, float]:
    rows = all_texts(examples)
    metrics = evaluation.prepare(examples, rows, kind)
    return metrics(np.float32([vectors[text] for text in rows.texts]))


@pytest.mark.parametrize(
    "texts", [("ab", "ba", "cd"), ("ab", "bc", "cd"), ("ab", "ba", "cd", "dc")]
)
def test_a_query_that_is_an_answer_does_not_rank_first(texts):
    """Perfect vectors give 1.0, as those of pairs that share no text."""
    vectors = {
        "a": [1, 0, 0, 0],
        "b": [0.99, 0.1, 0, 0],
        "c": [0.9, 0.3, 0, 0],
        "d": [0.8, 0.45, 0, 0],
    }
    if texts[1] == "ba":
        vectors |= {"c": UNIT[2], "d": UNIT[2] + 0.1 * UNIT[3]}
    else:
        vectors |= {"c": [0.97, 0.2, 0, 0], "d": [0.95, 0.29, 0, 0]}
    found = metrics_of(pairs(*texts), vectors, "retrieval")
    assert {
        name: value
        for name, value in found.items()
        if name in ("eval_accuracy_at_1", "eval_ndcg_at_10")
    } == {
        "eval_accuracy_at_1": 1.0,
        "eval_ndcg_at_10": 1.0,
    }


def test_labelled_pairs_do_not_rank_the_query(caplog):
    """q is its first candidate, with label 0 and with label 1."""
    examples = pairs("qq", "qp", "qn", "rr", "ro", "rn", labels="010110")
    vectors = {"q": UNIT[0], "p": UNIT[0] + 0.1 * UNIT[1], "n": UNIT[3], "r": UNIT[2], "o": UNIT[2]}
    found = metrics_of(examples, vectors, "retrieval")
    assert (found["eval_accuracy_at_1"], found["eval_map"]) == (1.0, 1.0)
    assert "1 examples have the query itself as its answer" in caplog.text


NOTHING_TO_MEASURE = [
    (pairs("ab", "cd", labels="11"), "pairs", "all pairs have label 1"),
    (pairs("ab", "cd", labels="00"), "pairs", "all pairs have label 0"),
    (pairs("ab", "cd", labels="33"), "sts", "all pairs have the score 3"),
    (pairs("ab", labels="3"), "sts", "all pairs have the score 3"),
    (pairs("a", "b", "c", labels="xxx"), "clustering", "3 different texts have 1 labels"),
    (pairs("a", "b", "c", labels="xyz"), "clustering", "3 different texts have 3 labels"),
    (pairs("ab"), "retrieval", "no query has a text to find among others"),
    (pairs("ab", "cb"), "retrieval", "no query has a text to find among others"),
    (pairs("aa", "bb"), "retrieval", "no query has a text to find among others"),
    (pairs("ab", "ba"), "retrieval", "no query has a text to find among others"),
]


@pytest.mark.parametrize(("examples", "kind", "sentence"), NOTHING_TO_MEASURE)
def test_a_metric_that_every_model_gets_is_refused(examples, kind, sentence):
    with pytest.raises(InputError, match=rf"dev\.tsv: line 2: {sentence}"):
        evaluation.prepare(examples, all_texts(examples), kind)


def test_negatives_that_are_positives_are_counted(caplog):
    examples = pairs("abc", "abb", "aba")
    evaluation.prepare(examples, all_texts(examples), "triplets")
    assert "2 triplets have a negative that is their anchor or positive" in caplog.text


def test_equal_vectors_are_warned_of(caplog):
    found = metrics_of(pairs("ab", "cd", labels="12"), dict.fromkeys("abcd", UNIT[0]), "sts")
    assert np.isnan(found["eval_spearman"])
    assert "All pairs have the same cosine" in caplog.text
