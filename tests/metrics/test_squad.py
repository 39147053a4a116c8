import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from official_bert.metrics.squad import (
    Question,
    best_null_odds_threshold,
    evaluate_v1,
    evaluate_v2,
    normalized_words,
)
from official_bert.tasks.squad.examples import read_gold_answers
from tests.shared import recording


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat,\tsat.", "cat sat"),
        ("the-cat", "thecat"),  # punctuation goes before articles
        ("A.N. Other", "other"),  # what is left of A.N. is an article
        # ASCII punctuation only; the no-break space is white space.
        ("“the”\xa0Ünder", "“ ” ünder"),
    ],
)
def test_normalization(text, expected):
    assert normalized_words(text) == expected.split()


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("cat cat", ["cat dog"], 0, 0.5),  # a repeated word is common once
        # Each the best over the answers.
        ("cat", ["black cat", "dog", "cat"], 1, 1),
        ("black cat", ["cat", "big black cat"], 0, 4 / 5),
        # Nothing but an article: right, but no word in common.
        ("the", ["a"], 1, 0),
        # Without true answers the script fails.
        ("", [], 1, 0),
        ("cat", [], 0, 0),
    ],
)
def test_version_1_by_hand(prediction, answers, exact, f1):
    scores = evaluate_v1([Question("q", answers)], {"q": prediction})
    assert list(scores.items()) == [
        ("exact_match", 100.0 * exact),
        ("f1", pytest.approx(100.0 * f1)),
    ]


def test_version_1_counts_what_is_missing_as_wrong(caplog):
    questions = [
        Question("a", ["x"]),
        Question("b", ["x"]),
        Question("c", ["x"]),
        Question("a", ["y"]),
    ]
    scores = evaluate_v1(questions, {"a": "x", "of another file": "x"})
    assert scores == {"exact_match": 25.0, "f1": 25.0}
    assert "2 questions without a prediction count as wrong: b" in caplog.text
    assert evaluate_v1(questions, {}) == {"exact_match": 0.0, "f1": 0.0}


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("", [], 1, 1),
        ("the", [], 1, 1),  # normalized, it is ""
        ("the", ["the", "cat"], 0, 0),  # an answer of articles only does not count beside others
        ("the", ["the", "..."], 1, 1),  # and stands for "" if there are no others
    ],
)
def test_version_2_by_hand(prediction, answers, exact, f1):
    scores = evaluate_v2([Question("q", answers)], {"q": prediction})
    prefix = "HasAns_" if answers else "NoAns_"
    parts = {"exact": 100.0 * exact, "f1": pytest.approx(100.0 * f1), "total": 1}
    assert scores == parts | {prefix + name: value for name, value in parts.items()}


QUESTIONS = [
    Question("a", ["cat"]),
    Question("b", ["black cat"]),
    Question("c", []),
    Question("d", []),
]


def test_version_2_leaves_out_what_is_missing(caplog):
    scores = evaluate_v2(
        QUESTIONS,
        {"a": "cat", "c": ""},
        {"a": -1.0, "c": 1.0, "of another file": 0.0},
    )
    assert (scores["exact"], scores["total"], scores["HasAns_total"], scores["NoAns_total"]) == (
        100.0,
        2,
        1,
        1,
    )
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (100.0, -1.0)
    assert "2 questions without a prediction are left out: b" in caplog.text


def test_version_2_takes_the_last_of_repeated_ids():
    scores = evaluate_v2(
        [Question("a", ["dog"]), Question("b", []), Question("a", [])],
        {"a": "", "b": ""},
    )
    assert (scores["exact"], scores["total"], scores["NoAns_total"]) == (100.0, 2, 2)
    assert "HasAns_total" not in scores


def test_oddities_of_the_scripts_best_threshold():
    """`best_null_odds_threshold` does not have these oddities."""
    # If no question should be answered, the script's threshold is 0.0.
    unanswerable = [Question("a", [])], {"a": "cat"}, {"a": -5.0}
    assert evaluate_v2(*unanswerable)["best_f1_thresh"] == 0.0
    assert best_null_odds_threshold(*unanswerable) == -math.inf
    # "the" is correct for a question without an answer, but not in the script's search: both kept
    # give 0 + 1 - 1.
    article = (
        [Question("a", ["cat"]), Question("b", [])],
        {"a": "cat", "b": "the"},
        {"a": 2.0, "b": 1.0},
    )
    assert evaluate_v2(*article, 2.0)["exact"] == 100.0
    assert (evaluate_v2(*article)["best_exact"], evaluate_v2(*article)["best_exact_thresh"]) == (
        50.0,
        0.0,
    )
    assert best_null_odds_threshold(*article) == 2.0
    # No threshold passes between equal odds.
    equal = (
        [Question("a", ["cat"]), Question("b", [])],
        {"a": "cat", "b": "dog"},
        {"a": 1.0, "b": 1.0},
    )
    assert evaluate_v2(*equal)["best_f1"] == 100.0
    assert best_null_odds_threshold(*equal) == -math.inf


TEXT = st.sampled_from(["", "the", "cat", "black cat", "the black dog", "dog"])
ROWS = st.lists(
    st.tuples(st.lists(TEXT.filter(bool), max_size=2), TEXT, st.integers(-3, 3)),
    min_size=1,
    max_size=10,
)


@settings(deadline=None)
@given(ROWS)
def test_no_threshold_is_better_than_the_best(rows):
    questions = [Question(str(number), answers) for number, (answers, _, _) in enumerate(rows)]
    predictions = {str(number): text for number, (_, text, _) in enumerate(rows)}
    null_odds = {str(number): float(odds) for number, (_, _, odds) in enumerate(rows)}
    values = {
        threshold: evaluate_v2(questions, predictions, null_odds, threshold)["f1"]
        for threshold in (-math.inf, *sorted(null_odds.values()))
    }
    best = best_null_odds_threshold(questions, predictions, null_odds)
    assert values[best] == pytest.approx(max(values.values()))


def recorded(name: str):
    return json.loads(recording("squad_eval", name).read_text(encoding="utf-8"))


def gold(version: int) -> list[Question]:
    return read_gold_answers(str(recording("squad_eval", f"dev_v{version}.json")))


def test_evaluate_v1_refuses_no_questions():
    with pytest.raises(ValueError, match="there are no questions to evaluate"):
        evaluate_v1([], {})


def test_equals_evaluate_v1():
    found, expected = (
        evaluate_v1(gold(1), recorded("predictions_v1.json")),
        recorded("official_v1.json"),
    )
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=0, abs=1e-9)


@pytest.mark.parametrize(
    ("run", "threshold"),
    [("without null odds", None), ("threshold -1.0", -1.0), ("threshold 0.0", 0.0)],
)
def test_equals_evaluate_v2(run, threshold):
    odds = () if threshold is None else (recorded("null_odds_v2.json"), threshold)
    found = evaluate_v2(gold(2), recorded("predictions_v2.json"), *odds)
    expected = recorded("official_v2.json")[run]
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=0, abs=1e-9)


def test_the_best_threshold_of_real_questions():
    """On these data the script finds the same threshold, although it may report another score
    for it.
    """
    questions, predictions, odds = (
        gold(2),
        recorded("predictions_v2.json"),
        recorded("null_odds_v2.json"),
    )
    best = best_null_odds_threshold(questions, predictions, odds)
    assert best == recorded("official_v2.json")["threshold 0.0"]["best_f1_thresh"]
    nearby = (best - 0.5, best - 0.1, best + 0.1, best + 0.5)
    at_best, *others = (
        evaluate_v2(questions, predictions, odds, threshold)["f1"] for threshold in (best, *nearby)
    )
    assert at_best > max(others)
