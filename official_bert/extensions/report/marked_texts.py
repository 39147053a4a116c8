"""Sections of examples in which entities or answers are marked."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official_bert.extensions.report.label_tables import make_reliability, tabulate_scores
from official_bert.extensions.report.page import Section
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.io.markup import (
    MarkedPart,
    Markup,
    element,
    join,
    make_table,
    mark_text,
)
from official_bert.metrics.entities import Entity, find_entities
from official_bert.metrics.squad import normalized_words
from official_bert.training.run_record import RunRecord

Record = Mapping[str, Any]

_MOST_EXAMPLES = 25
_FEW_RIGHT = 5  # examples without a mistake that are shown
_RIGHT, _WRONG = {"class_": "right"}, {"class_": "missed"}  # the attributes of marks
_CONTEXT = 260  # characters of a document on each side of an answer


class _Answer(NamedTuple):
    """A question with its true answers, and the predicted one."""

    question: str
    context: str
    true_answers: list[tuple[str, int]]
    prediction: str

    @property
    def is_right(self) -> bool:
        words = normalized_words(self.prediction)
        if not self.true_answers:
            return not words
        return any(normalized_words(text) == words for text, _ in self.true_answers)


def list_entity_sections(set_name: str, records: Sequence[Record]) -> list[Section]:
    """Returns the sections about tagged sentences.

    Args:
        set_name: the name of the evaluated set.
        records: the predictions, as predictions.py describes them.
    """
    wrong, right = [], []
    counts: dict[str, list[int]] = {}
    place_head = "line" if any(record.get("line") for record in records) else "sentence"
    for record in records:
        true_entities = set(find_entities(record["label"]))
        predicted = set(find_entities(record["prediction"]))
        _count_entities(counts, true_entities, predicted)
        if not true_entities | predicted:
            continue
        rows = wrong if true_entities != predicted else right
        marked_true = _mark_words(record["words"], true_entities, predicted)
        marked_prediction = _mark_words(record["words"], predicted, true_entities)
        place = record.get("line") if place_head == "line" else record["id"]
        rows.append((place, marked_true, marked_prediction))
    table = tabulate_scores(("type", "entities"), sorted(counts.items()))
    note = (
        f"{len(wrong)} of {len(records)} sentences have a mistake. Green entities are right, "
        "orange ones are missing on the other side."
    )
    examples = [*wrong[:_MOST_EXAMPLES], *right[:_FEW_RIGHT]]
    sections = [
        Section("Results of each type", [table]),
        Section(
            "Marked sentences",
            [note, make_table((place_head, "true entities", "predicted entities"), examples)],
        ),
    ]
    if all("probability" in record for record in records):
        sections.append(_make_tag_reliability(set_name, records))
    return sections


def _count_entities(
    counts: dict[str, list[int]], true_entities: set[Entity], predicted: set[Entity]
):
    """Adds the entities of a sentence to the counts of each type: right, predicted, true."""
    parts = (true_entities & predicted, predicted, true_entities)
    for place, entities in enumerate(parts):
        for entity in entities:
            counts.setdefault(entity.type, [0, 0, 0])[place] += 1


def _make_tag_reliability(set_name: str, records: Sequence[Record]) -> Section:
    is_right = np.array(
        [
            label == prediction
            for record in records
            for label, prediction in zip(record["label"], record["prediction"], strict=True)
        ]
    )
    curves = {"before the calibration": "raw_probability", "calibrated": "probability"}
    confidences = {
        name: np.array([value for record in records for value in record[field]])
        for name, field in curves.items()
    }
    return make_reliability(set_name, confidences, is_right)


def _mark_words(words: Sequence[str], entities: Iterable[Entity], others: set[Entity]) -> Markup:
    """Returns a sentence whose entities are marked: green where the others have them, too."""
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    marks = [
        MarkedPart(
            start=int(starts[entity.first]),
            end=int(starts[entity.last + 1]) - 1,
            name=entity.type,
            attributes=_RIGHT if entity in others else _WRONG,
        )
        for entity in entities
    ]
    return _show(" ".join(words), marks)


def _show(text: str, marks: Iterable[MarkedPart]) -> Markup:
    return element("span", mark_text(text, marks), class_="marked", dir="auto")


def list_answer_sections(run: RunRecord) -> list[Section]:
    """Returns the section of answered questions of a run of run_squad.

    Args:
        run: the run.
    """
    predictions_file = os.path.join(run.folder, "predictions.json")
    if not files.exists(predictions_file):
        return []
    path = str(run.flags.get("predict_file"))
    try:
        answers = _read_answers(path, reading.read_json(predictions_file))
    except (InputError, OSError, KeyError, TypeError, ValueError):
        note = f"The questions of {path} cannot be read any more, so no example is shown."
        return [Section("Marked answers", [note])]
    wrong = [answer for answer in answers if not answer.is_right]
    right = [answer for answer in answers if answer.is_right]
    note = (
        f"{len(wrong)} of {len(answers)} answers differ from all true ones. A green answer is "
        "right; a predicted answer that is wrong is orange, and the true one blue."
    )
    rows = []
    for answer in [*wrong[:_MOST_EXAMPLES], *right[:_FEW_RIGHT]]:
        true_text = answer.true_answers[0][0] if answer.true_answers else "no answer"
        prediction = answer.prediction or "no answer"
        rows.append((answer.question, _mark_answer(answer), true_text, prediction))
    heads = ("question", "document", "true answer", "predicted answer")
    return [Section("Marked answers", [note, make_table(heads, rows)])]


def _read_answers(path: str, predictions: Mapping[str, str]) -> list[_Answer]:
    """Returns the questions of a file in SQuAD's format that have a prediction."""
    answers = []
    for document in reading.read_json(path)["data"]:
        for paragraph in document["paragraphs"]:
            for question in paragraph["qas"]:
                if question["id"] not in predictions:
                    continue
                true_answers = [
                    (answer["text"], int(answer["answer_start"]))
                    for answer in question.get("answers", ())
                ]
                answers.append(
                    _Answer(
                        question=question["question"],
                        context=paragraph["context"],
                        true_answers=true_answers,
                        prediction=predictions[question["id"]],
                    )
                )
    return answers


def _mark_answer(answer: _Answer) -> Markup:
    """Returns the part of a document around its answers, which are marked."""
    marks = []
    for text, start in answer.true_answers[:1]:
        name = "true and predicted" if answer.is_right else "true"
        attributes = _RIGHT if answer.is_right else {}
        marks.append(MarkedPart(start, start + len(text), name, attributes))
    if answer.prediction and not answer.is_right:
        marks += _find_prediction(answer, marks)
    if not marks:
        return join([answer.context[: 2 * _CONTEXT]])
    first = max(0, min(mark.start for mark in marks) - _CONTEXT)
    last = max(mark.end for mark in marks) + _CONTEXT
    shifted = [mark._replace(start=mark.start - first, end=mark.end - first) for mark in marks]
    return _show(answer.context[first:last], shifted)


def _find_prediction(answer: _Answer, true_marks: Sequence[MarkedPart]) -> list[MarkedPart]:
    """Returns the mark of the predicted answer, at its place that is nearest to the true one.

    One that overlaps the true answer is left out.
    """
    matches = re.finditer(re.escape(answer.prediction), answer.context)
    true_start = true_marks[0].start if true_marks else 0
    places = sorted((match.start() for match in matches), key=lambda x: abs(x - true_start))
    for place in places[:1]:
        end = place + len(answer.prediction)
        if all(end <= mark.start or mark.end <= place for mark in true_marks):
            return [MarkedPart(place, end, "predicted", _WRONG)]
    return []
