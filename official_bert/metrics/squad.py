"""Scores of answers to SQuAD's questions, by the rules and with the keys of evaluate-v1.1.py and evaluate-v2.0.py.

In: questions with their true answers, and {id: answer}. Out: {name: value}, percentages in the scripts' order.
"""

import collections
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from absl import logging

_without_punctuation = str.maketrans("", "", string.punctuation)
_articles = re.compile(r"\b(a|an|the)\b")


class Question(NamedTuple):
    """A question and what answers it.

    Attributes:
        qas_id: its id.
        answers: the true answers, any of which is right; none if the document has no answer.
    """

    qas_id: str
    answers: Sequence[str]


class _Score(NamedTuple):
    """Of one answer, from 0 to 1."""

    exact: float
    f1: float


def evaluate_v1(questions: Sequence[Question], predictions: Mapping[str, str]) -> dict[str, float]:
    """`exact_match` and `f1` of SQuAD 1.1.

    A question without a prediction counts as wrong. One without true answers, on which the script fails, is answered
    by "".

    Args:
        questions: at least one; a repeated id counts each time.
        predictions: answers by question id.
    """
    _warn_of_missing({question.qas_id for question in questions} - predictions.keys(), "count as wrong")
    scores = [
        _best_score(predictions[qas_id], answers or [""]) if qas_id in predictions else _Score(0.0, 0.0)
        for qas_id, answers in questions
    ]
    exact, f1 = (100.0 * sum(column) / len(scores) for column in zip(*scores, strict=True))
    return {"exact_match": exact, "f1": f1}


def evaluate_v2(
    questions: Iterable[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float] | None = None,
    null_odds_threshold: float = 1.0,
) -> dict[str, float]:
    """`exact`, `f1` and `total` of SQuAD 2.0, also of the questions with (`HasAns_`) and without (`NoAns_`) an answer.

    With null odds, there are also `best_exact`, `best_exact_thresh`, `best_f1` and `best_f1_thresh`, which look for
    the threshold by the script's rule. That rule is not exact: it takes a prediction such as "the" for a wrong answer
    to a question that has none, though the scores count it as right; it passes between equal odds; and it says 0.0
    where every question is best left without an answer. `best_null_odds_threshold` has none of these faults.

    A question without a prediction is left out of every number. (The script leaves it out of the first three, and
    fails at the next.)

    Args:
        questions: at least one of them predicted; of a repeated id the last one counts.
        predictions: answers by question id, "" for no answer.
        null_odds: of every predicted question, how far "no answer" is ahead of the answer.
        null_odds_threshold: odds above it turn the prediction into "".
    """
    answers = _predicted(questions, predictions)
    raw = {qas_id: _score_v2(predictions[qas_id], texts) for qas_id, texts in answers.items()}
    scores = raw
    if null_odds is not None:
        scores = {
            qas_id: _left_unanswered(answers[qas_id]) if null_odds[qas_id] > null_odds_threshold else score
            for qas_id, score in raw.items()
        }
    results = _means("", scores.values())
    results |= _means("HasAns_", [score for qas_id, score in scores.items() if answers[qas_id]])
    results |= _means("NoAns_", [score for qas_id, score in scores.items() if not answers[qas_id]])
    if null_odds is not None:
        for name in _Score._fields:
            gains = {
                qas_id: getattr(score, name) if answers[qas_id] else -float(predictions[qas_id] != "")
                for qas_id, score in raw.items()
            }
            totals, thresholds = _totals_by_threshold(answers, gains, null_odds, none_kept=0.0)
            best = np.argmax(totals)
            results[f"best_{name}"] = float(100.0 * totals[best] / len(raw))
            results[f"best_{name}_thresh"] = float(thresholds[best])
    return results


def best_null_odds_threshold(
    questions: Iterable[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    metric: Literal["exact", "f1"] = "f1",
) -> float:
    """The threshold under which `evaluate_v2` gives the highest value, the lowest one of several.

    It is one of the odds, or -inf if every question is best left without an answer.

    Args:
        questions: at least one of them predicted; of a repeated id the last one counts.
        predictions: answers by question id, chosen under the threshold inf: "" only where there is no other.
        null_odds: of every predicted question.
        metric: whose value.
    """
    answers = _predicted(questions, predictions)
    gains = {}
    for qas_id, texts in answers.items():
        kept, unanswered = _score_v2(predictions[qas_id], texts), _left_unanswered(texts)
        gains[qas_id] = getattr(kept, metric) - getattr(unanswered, metric)
    totals, thresholds = _totals_by_threshold(answers, gains, null_odds, none_kept=-np.inf)
    is_last_of_equals = np.append(thresholds[1:] != thresholds[:-1], True)
    return float(thresholds[is_last_of_equals][np.argmax(totals[is_last_of_equals])])


def normalize_answer(text: str) -> str:
    """The text in lower case, without punctuation (ASCII), without a, an and the, with single spaces."""
    return " ".join(_words(text))


def _words(text: str) -> list[str]:
    return _articles.sub(" ", text.lower().translate(_without_punctuation)).split()


def _best_score(prediction: str, answers: Iterable[str]) -> _Score:
    """The highest exact match and the highest F1, each for itself."""
    predicted = _words(prediction)
    scores = [_score(predicted, _words(answer)) for answer in answers]
    return _Score(*(max(column) for column in zip(*scores, strict=True)))


def _score(predicted: list[str], expected: list[str]) -> _Score:
    exact = float(predicted == expected)
    num_common = (collections.Counter(predicted) & collections.Counter(expected)).total()
    if not num_common:
        return _Score(exact, 0.0)
    precision, recall = num_common / len(predicted), num_common / len(expected)
    return _Score(exact, 2 * precision * recall / (precision + recall))


def _score_v2(prediction: str, answers: Iterable[str]) -> _Score:
    """As in version 1.1, but "" (after normalization) agrees with itself, and true answers that are "" do not count."""
    worded = [answer for answer in answers if _words(answer)]
    if worded:
        return _best_score(prediction, worded)
    is_right = float(not _words(prediction))
    return _Score(is_right, is_right)


def _left_unanswered(answers: Sequence[str]) -> _Score:
    is_right = float(not answers)
    return _Score(is_right, is_right)


def _predicted(questions: Iterable[Question], predictions: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """True answers by id, of the questions that have a prediction."""
    answers = dict(questions)
    _warn_of_missing(answers.keys() - predictions.keys(), "are left out")
    return {qas_id: texts for qas_id, texts in answers.items() if qas_id in predictions}


def _warn_of_missing(qas_ids: set[str], consequence: str):
    if qas_ids:
        logging.warning("%d questions without a prediction %s: %s", len(qas_ids), consequence, min(qas_ids))


def _means(prefix: str, scores: Iterable[_Score]) -> dict[str, float]:
    """Percentages and their number; nothing of no scores."""
    columns = list(zip(*scores, strict=True))
    if not columns:
        return {}
    total = len(columns[0])
    exact, f1 = (100.0 * sum(column) / total for column in columns)
    return {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": total}


def _totals_by_threshold(
    answers: Mapping[str, Sequence[str]],
    gains: Mapping[str, float],
    null_odds: Mapping[str, float],
    none_kept: float,
) -> tuple[np.ndarray, np.ndarray]:
    """What a score adds up to while, by rising odds, one prediction after the other is kept.

    Args:
        answers: true answers by id.
        gains: what keeping a prediction adds.
        null_odds: by id; those of other questions are ignored. Equal ones keep their order.
        none_kept: the threshold that stands for keeping none.

    Returns:
        float64[n + 1], totals while 0 to n predictions are kept; float64[n + 1], the threshold of each.
    """
    num_unanswerable = sum(not texts for texts in answers.values())
    by_odds = sorted((qas_id for qas_id in null_odds if qas_id in gains), key=null_odds.get)
    totals = np.cumsum([num_unanswerable, *(gains[qas_id] for qas_id in by_odds)], dtype=np.float64)
    return totals, np.array([none_kept, *(null_odds[qas_id] for qas_id in by_odds)])
