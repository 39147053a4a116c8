"""Scores the answers to SQuAD's questions as evaluate-v1.1.py and evaluate-v2.0.py do.

In: questions with their true answers, and predictions as {id: answer}. Out: {name: value}, as
percentages, with the keys of these scripts.
"""

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import logging

_PUNCTUATION_TABLE = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Question(NamedTuple):
    """A question and its true answers.

    Attributes:
        qas_id: the id of the question.
        answers: the true answers, each of which is correct. They are empty if the document does not
            answer the question.
    """

    qas_id: str
    answers: Sequence[str]


class _Score(NamedTuple):
    """The scores of one answer, from 0 to 1, or their means, as percentages."""

    exact: float
    f1: float


def evaluate_v1(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
) -> dict[str, float]:
    """Returns `exact_match` and `f1` of SQuAD 1.1.

    A question without a prediction counts as wrong. For a question without true answers, on which
    the script fails, "" is the true answer.

    Args:
        questions: the questions with their true answers.
        predictions: id of a question -> the predicted answer.

    Raises:
        ValueError: there are no questions.
    """
    qas_ids = {question.qas_id for question in questions}
    _warn_about_missing(qas_ids - predictions.keys(), "count as wrong")
    scores = []
    for qas_id, answers in questions:
        score = _Score(0.0, 0.0)
        if qas_id in predictions:
            score = _best_score(predictions[qas_id], answers or [""])
        scores.append(score)
    if not scores:
        raise ValueError("there are no questions to evaluate")
    exact, f1 = _mean_percentages(scores)
    return {"exact_match": exact, "f1": f1}


def evaluate_v2(
    questions: Iterable[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_odds_threshold: float = 1.0,
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0.

    A question without a prediction is left out of all scores. If an id is repeated, the last
    question counts.

    Args:
        questions: the questions with their true answers.
        predictions: the answers by the ids of the questions.
        null_odds: how much more likely "no answer" is than the prediction, by the ids of the
            questions.
        null_odds_threshold: the null odds above which a question gets no answer.

    Returns:
        `exact`, `f1` and `total` of all questions, of those with an answer (`HasAns_...`) and of
        those without one (`NoAns_...`). With null odds there are also `best_exact`,
        `best_exact_thresh`, `best_f1` and `best_f1_thresh`: the best scores over all thresholds, by
        the rule of the script.

    This rule has three faults, which `best_null_odds_threshold` avoids:

    - It counts a prediction such as "the" as wrong for a question without an answer, although the
      scores count it as correct.
    - It considers thresholds between equal odds.
    - It returns the threshold 0.0 if the best choice is to answer no question.
    """
    answers = _predicted(questions, predictions)
    raw = {}
    for qas_id, texts in answers.items():
        raw[qas_id] = _score_v2(predictions[qas_id], texts)
    scores = dict(raw)
    if null_odds is not None:
        for qas_id, texts in answers.items():
            if null_odds[qas_id] > null_odds_threshold:
                scores[qas_id] = _null_score(texts)
    answerable = []
    unanswerable = []
    for qas_id, score in scores.items():
        group = answerable if answers[qas_id] else unanswerable
        group.append(score)
    results = _means("", list(scores.values()))
    results |= _means("HasAns_", answerable)
    results |= _means("NoAns_", unanswerable)
    if null_odds is not None:
        for name in _Score._fields:
            gains = {}
            for qas_id, score in raw.items():
                if answers[qas_id]:
                    gains[qas_id] = getattr(score, name)
                else:
                    has_text = predictions[qas_id] != ""
                    gains[qas_id] = -float(has_text)
            totals, thresholds = _totals_by_threshold(
                answers,
                gains,
                null_odds,
                null_threshold=0.0,
            )
            best = np.argmax(totals)
            results[f"best_{name}"] = float(100.0 * totals[best] / len(raw))
            results[f"best_{name}_thresh"] = float(thresholds[best])
    return results


def best_null_odds_threshold(
    questions: Iterable[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """Returns the lowest threshold for which `evaluate_v2` returns the highest F1.

    Args:
        questions: the questions with their true answers.
        predictions: the answers that the threshold inf selects: "" only if there is no other
            answer.
        null_odds: how much more likely "no answer" is than the prediction, by the ids of the
            questions.

    Returns:
        One of the odds, or -inf if the best choice is to answer no question.
    """
    answers = _predicted(questions, predictions)
    gains = {}
    for qas_id, texts in answers.items():
        score = _score_v2(predictions[qas_id], texts)
        null_score = _null_score(texts)
        gains[qas_id] = score.f1 - null_score.f1
    totals, thresholds = _totals_by_threshold(
        answers,
        gains,
        null_odds,
        null_threshold=-np.inf,
    )
    differs_from_next = thresholds[1:] != thresholds[:-1]
    is_last_equal = np.append(differs_from_next, True)
    best = np.argmax(totals[is_last_equal])
    return float(thresholds[is_last_equal][best])


def normalized_words(text: str) -> list[str]:
    """Returns the words of a text in lower case, without ASCII punctuation and without articles.

    Args:
        text: the text, such as an answer.
    """
    without_punctuation = text.lower().translate(_PUNCTUATION_TABLE)
    return _ARTICLES.sub(" ", without_punctuation).split()


def _best_score(prediction: str, answers: Iterable[str]) -> _Score:
    """Returns the highest exact match and the highest F1 over the true answers.

    The two scores may come from different answers.
    """
    predicted = normalized_words(prediction)
    scores = [_score(predicted, normalized_words(answer)) for answer in answers]
    return _Score(
        exact=max(score.exact for score in scores),
        f1=max(score.f1 for score in scores),
    )


def _score(predicted: list[str], expected: list[str]) -> _Score:
    exact = float(predicted == expected)
    predicted_counts = collections.Counter(predicted)
    common_words = predicted_counts & collections.Counter(expected)
    num_common = common_words.total()
    if not num_common:
        return _Score(exact, 0.0)
    precision = num_common / len(predicted)
    recall = num_common / len(expected)
    f1 = 2 * precision * recall / (precision + recall)
    return _Score(exact, f1)


def _score_v2(prediction: str, answers: Iterable[str]) -> _Score:
    """Scores a prediction against the true answers that have words, or against "" if none has."""
    answers_with_words = [answer for answer in answers if normalized_words(answer)]
    if answers_with_words:
        return _best_score(prediction, answers_with_words)
    is_correct = float(not normalized_words(prediction))
    return _Score(is_correct, is_correct)


def _null_score(answers: Sequence[str]) -> _Score:
    is_correct = float(not answers)
    return _Score(is_correct, is_correct)


def _predicted(
    questions: Iterable[Question],
    predictions: Mapping[str, str],
) -> dict[str, Sequence[str]]:
    """Returns the true answers of the questions with a prediction, by the questions' ids."""
    answers = dict(questions)
    _warn_about_missing(answers.keys() - predictions.keys(), "are left out")
    return {qas_id: texts for qas_id, texts in answers.items() if qas_id in predictions}


def _warn_about_missing(qas_ids: set[str], consequence: str):
    if qas_ids:
        logging.warning(
            "%d questions without a prediction %s: %s",
            len(qas_ids),
            consequence,
            min(qas_ids),
        )


def _mean_percentages(scores: Sequence[_Score]) -> _Score:
    """Returns the mean scores, from 0 to 100."""
    exact = sum(score.exact for score in scores)
    f1 = sum(score.f1 for score in scores)
    return _Score(
        exact=100.0 * exact / len(scores),
        f1=100.0 * f1 / len(scores),
    )


def _means(prefix: str, scores: Sequence[_Score]) -> dict[str, float]:
    """Returns the mean scores as percentages and the number of scores, or {} without scores."""
    if not scores:
        return {}
    exact, f1 = _mean_percentages(scores)
    return {
        f"{prefix}exact": exact,
        f"{prefix}f1": f1,
        f"{prefix}total": len(scores),
    }


def _totals_by_threshold(
    answers: Mapping[str, Sequence[str]],
    gains: Mapping[str, float],
    null_odds: Mapping[str, float],
    null_threshold: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the total score of each number of answered questions, and its threshold.

    Args:
        answers: the true answers by the ids of the questions.
        gains: what answering a question adds to the total, by the ids.
        null_odds: the null odds by the ids. Questions with the lowest odds are answered first.
        null_threshold: the threshold at which no question is answered.

    Returns:
        The totals of 0 to n answered questions and their thresholds, float64[n + 1] each.
    """
    num_unanswerable = sum(not texts for texts in answers.values())
    scored_ids = [qas_id for qas_id in null_odds if qas_id in gains]
    scored_ids.sort(key=null_odds.__getitem__)
    sorted_gains = [gains[qas_id] for qas_id in scored_ids]
    sorted_odds = [null_odds[qas_id] for qas_id in scored_ids]
    totals = np.cumsum([num_unanswerable, *sorted_gains], dtype=np.float64)
    thresholds = np.array([null_threshold, *sorted_odds])
    return totals, thresholds
