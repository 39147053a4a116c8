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
    questions = [Question("q", answers)]
    scores = evaluate_v1(questions, {"q": prediction})
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
    questions = [Question("q", answers)]
    scores = evaluate_v2(questions, {"q": prediction})
    prefix = "HasAns_" if answers else "NoAns_"
    overall = {
        "exact": 100.0 * exact,
        "f1": pytest.approx(100.0 * f1),
        "total": 1,
    }
    prefixed = {prefix + name: score for name, score in overall.items()}
    assert scores == overall | prefixed


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
    assert scores["exact"] == 100.0
    assert scores["total"] == 2
    assert scores["HasAns_total"] == 1
    assert scores["NoAns_total"] == 1
    assert scores["best_exact"] == 100.0
    assert scores["best_exact_thresh"] == -1.0
    assert "2 questions without a prediction are left out: b" in caplog.text


def test_version_2_takes_the_last_of_repeated_ids():
    questions = [
        Question("a", ["dog"]),
        Question("b", []),
        Question("a", []),
    ]
    scores = evaluate_v2(questions, {"a": "", "b": ""})
    assert scores["exact"] == 100.0
    assert scores["total"] == 2
    assert scores["NoAns_total"] == 2
    assert "HasAns_total" not in scores


def test_the_scripts_threshold_is_0_if_no_question_should_be_answered():
    """`best_null_odds_threshold` does not have this oddity, and not the two below."""
    questions = [Question("a", [])]
    predictions = {"a": "cat"}
    null_odds = {"a": -5.0}
    scores = evaluate_v2(questions, predictions, null_odds)
    assert scores["best_f1_thresh"] == 0.0
    threshold = best_null_odds_threshold(questions, predictions, null_odds)
    assert threshold == -math.inf


ONE_OF_EACH_KIND = [
    Question("a", ["cat"]),
    Question("b", []),
]


def test_an_article_is_wrong_in_the_scripts_search():
    """ "the" is correct for a question without an answer, but not in the script's search: both
    kept give 0 + 1 - 1.
    """
    predictions = {"a": "cat", "b": "the"}
    null_odds = {"a": 2.0, "b": 1.0}
    scores = evaluate_v2(ONE_OF_EACH_KIND, predictions, null_odds, 2.0)
    assert scores["exact"] == 100.0
    scores = evaluate_v2(ONE_OF_EACH_KIND, predictions, null_odds)
    assert scores["best_exact"] == 50.0
    assert scores["best_exact_thresh"] == 0.0
    threshold = best_null_odds_threshold(ONE_OF_EACH_KIND, predictions, null_odds)
    assert threshold == 2.0


def test_the_scripts_threshold_passes_between_equal_odds():
    """Its search counts one of two equal odds as below the threshold, which no threshold can do."""
    predictions = {"a": "cat", "b": "dog"}
    null_odds = {"a": 1.0, "b": 1.0}
    scores = evaluate_v2(ONE_OF_EACH_KIND, predictions, null_odds)
    assert scores["best_f1"] == 100.0
    threshold = best_null_odds_threshold(ONE_OF_EACH_KIND, predictions, null_odds)
    assert threshold == -math.inf


TEXT = st.sampled_from(["", "the", "cat", "black cat", "the black dog", "dog"])
ANSWERS = st.lists(TEXT.filter(bool), max_size=2)
NULL_ODDS = st.integers(-3, 3)
ROWS = st.lists(
    st.tuples(ANSWERS, TEXT, NULL_ODDS),
    min_size=1,
    max_size=10,
)


@settings(deadline=None)
@given(ROWS)
def test_no_threshold_is_better_than_the_best(rows):
    questions = []
    predictions = {}
    null_odds = {}
    for number, (answers, text, odds) in enumerate(rows):
        question_id = str(number)
        questions.append(Question(question_id, answers))
        predictions[question_id] = text
        null_odds[question_id] = float(odds)
    f1_scores = {}
    for threshold in (-math.inf, *null_odds.values()):
        scores = evaluate_v2(questions, predictions, null_odds, threshold)
        f1_scores[threshold] = scores["f1"]
    best = best_null_odds_threshold(questions, predictions, null_odds)
    best_f1 = max(f1_scores.values())
    assert f1_scores[best] == pytest.approx(best_f1)


def recorded(name: str):
    return json.loads(recording("squad_eval", name).read_text(encoding="utf-8"))


def gold(version: int) -> list[Question]:
    return read_gold_answers(str(recording("squad_eval", f"dev_v{version}.json")))


def test_evaluate_v1_refuses_no_questions():
    with pytest.raises(ValueError, match="there are no questions to evaluate"):
        evaluate_v1([], {})


def test_equals_evaluate_v1():
    predictions = recorded("predictions_v1.json")
    scores = evaluate_v1(gold(1), predictions)
    expected = recorded("official_v1.json")
    assert list(scores) == list(expected)
    assert scores == pytest.approx(expected, rel=0, abs=1e-9)


@pytest.mark.parametrize(
    ("run", "threshold"),
    [
        ("without null odds", None),
        ("threshold -1.0", -1.0),
        ("threshold 0.0", 0.0),
    ],
)
def test_equals_evaluate_v2(run, threshold):
    questions = gold(2)
    predictions = recorded("predictions_v2.json")
    if threshold is None:
        scores = evaluate_v2(questions, predictions)
    else:
        null_odds = recorded("null_odds_v2.json")
        scores = evaluate_v2(questions, predictions, null_odds, threshold)
    expected = recorded("official_v2.json")[run]
    assert list(scores) == list(expected)
    assert scores == pytest.approx(expected, rel=0, abs=1e-9)


def test_the_best_threshold_of_real_questions():
    """On these data the script finds the same threshold, although it may report another score
    for it.
    """
    questions = gold(2)
    predictions = recorded("predictions_v2.json")
    null_odds = recorded("null_odds_v2.json")

    def compute_f1(threshold):
        scores = evaluate_v2(questions, predictions, null_odds, threshold)
        return scores["f1"]

    best = best_null_odds_threshold(questions, predictions, null_odds)
    script_scores = recorded("official_v2.json")["threshold 0.0"]
    assert best == script_scores["best_f1_thresh"]
    best_f1 = compute_f1(best)
    for distance in (-0.5, -0.1, 0.1, 0.5):
        assert best_f1 > compute_f1(best + distance)
