"""Sections about predicted labels: confusion, scores of each label, calibration, abstaining."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.extensions.report.charts import (
    Chart,
    Series,
    draw_curves,
    draw_dots,
    draw_heat_map,
)
from official_bert.extensions.report.drawing import shorten
from official_bert.extensions.report.page import Section
from official_bert.io.markup import Cell, Markup, make_table
from official_bert.metrics.calibration import NUM_BINS
from official_bert.metrics.classification import confusion_matrix, precision_recall_f1

Record = Mapping[str, Any]

_THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_ACCURACIES = (0.9, 0.95, 0.99)
_MOST_DRAWN_LABELS = 24
_MOST_CONFUSIONS = 20
_MOST_MISTAKES = 30
_NUM_POINTS = 200  # of the curve of the coverage
_FEW_ANSWERS = 10
_FEW_EXAMPLES = 200  # below which shares are uncertain
_LONGEST_TEXT = 240


def list_label_sections(
    set_name: str, records: Sequence[Record], labels: Sequence[str]
) -> list[Section]:
    """Returns the sections about the predictions of one label for each example.

    Args:
        set_name: the name of the evaluated set.
        records: the predictions, as predictions.py describes them.
        labels: the labels of the model, in the order of its outputs.
    """
    scoped = [record for record in records if record.get("label") is not None]
    sections = []
    if scoped:
        sections += _list_confusion_sections(
            set_name,
            scoped,
            labels,
        )
    if all("probability" in record for record in records):
        sections.append(_make_reliability(set_name, scoped or records))
        sections.append(_make_coverage(set_name, records))
    sections += list_mistakes(records)
    return sections


def _list_confusion_sections(
    set_name: str, records: Sequence[Record], labels: Sequence[str]
) -> list[Section]:
    names = [*labels]
    for record in records:
        names += [record["label"], record["prediction"]]
    names = list(dict.fromkeys(map(str, names)))
    numbers = {name: number for number, name in enumerate(names)}
    targets = np.array([numbers[str(record["label"])] for record in records])
    predictions = np.array([numbers[str(record["prediction"])] for record in records])
    matrix = confusion_matrix(
        targets,
        predictions,
        len(names),
    )
    return [
        _make_confusion(
            set_name,
            names,
            matrix,
        ),
        Section("Results of each label", [_tabulate_labels(names, matrix)]),
    ]


def tabulate_scores(heads: tuple[str, str], counts: Iterable[tuple[str, Sequence[int]]]) -> Markup:
    """Returns the table with precision, recall and F1 of each label or type.

    Args:
        heads: the names of the first column, and of that with the number of true examples.
        counts: the name of each label with the numbers of its right, predicted and true examples.
    """
    rows = []
    for name, (num_right, num_predicted, num_true) in counts:
        scores = precision_recall_f1(num_right, num_predicted, num_true)
        cells = [percent(score) for score in scores.values()]
        rows.append([name, *cells, num_true, num_predicted])
    first_head, count_head = heads
    return make_table((first_head, "precision", "recall", "F1", count_head, "predicted"), rows)


def _make_confusion(set_name: str, names: Sequence[str], matrix: np.ndarray) -> Section:
    mistakes = matrix.copy()
    np.fill_diagonal(mistakes, 0)
    note = (
        "A row is a true label, a column a predicted one. Colours are shares of the row: blue is "
        "right, orange is wrong."
    )
    chosen = np.arange(len(names))
    if len(names) > _MOST_DRAWN_LABELS:
        num_mistakes = mistakes.sum(axis=0) + mistakes.sum(axis=1)
        chosen = np.sort(np.argsort(-num_mistakes, kind="stable")[:_MOST_DRAWN_LABELS])
        note += (
            f" Of {len(names)} labels it shows the {_MOST_DRAWN_LABELS} with the most mistakes; "
            "confusion_matrix.tsv has all."
        )
    picture = draw_heat_map(
        f"confusion_{set_name}",
        f"Confusion matrix of {set_name}",
        [names[int(number)] for number in chosen],
        matrix[np.ix_(chosen, chosen)],
    )
    order = np.argsort(
        -mistakes,
        axis=None,
        kind="stable",
    )[:_MOST_CONFUSIONS]
    rows = []
    for place in order:
        true_label, predicted_label = divmod(int(place), len(names))
        count = int(mistakes[true_label, predicted_label])
        if count:
            share = count / int(matrix[true_label].sum())
            cells = (names[true_label], names[predicted_label], count, percent(share))
            rows.append(cells)
    parts: list = [note, picture]
    if rows:
        heads = ("true label", "predicted label", "examples", "of the true label")
        parts += ["The most frequent confusions:", make_table(heads, rows)]
    return Section("Confusion matrix", parts)


def _tabulate_labels(names: Sequence[str], matrix: np.ndarray) -> Markup:
    counts = zip(np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1), strict=True)
    numbers = [(int(right), int(predicted), int(true)) for right, predicted, true in counts]
    return tabulate_scores(("label", "examples"), zip(names, numbers, strict=True))


def _make_reliability(set_name: str, records: Sequence[Record]) -> Section:
    is_right = np.array([record["label"] == record["prediction"] for record in records])
    confidences = {"as predicted": np.array([record["probability"] for record in records])}
    raw = np.array([record.get("raw_probability", record["probability"]) for record in records])
    if not np.allclose(
        raw,
        confidences["as predicted"],
        atol=1e-5,
    ):
        confidences = {"before the calibration": raw, "calibrated": confidences["as predicted"]}
    return make_reliability(
        set_name,
        confidences,
        is_right,
    )


def make_reliability(
    set_name: str, confidences: Mapping[str, np.ndarray], is_right: np.ndarray
) -> Section:
    """Returns the section with the reliability diagram.

    Args:
        set_name: the name of the evaluated set.
        confidences: the probabilities of the predictions, float[n], by the name of the curve.
        is_right: whether the predictions are right, bool[n].
    """
    curves = []
    errors = {}
    for name, values in confidences.items():
        bins = np.clip(np.ceil(values * NUM_BINS).astype(int) - 1, 0, NUM_BINS - 1)
        counts = np.bincount(bins, minlength=NUM_BINS)
        filled = counts > 0
        means = np.bincount(bins, values, NUM_BINS)[filled] / counts[filled]
        shares = np.bincount(bins, is_right, NUM_BINS)[filled] / counts[filled]
        weights = counts[filled] / counts.sum()
        curve = Series(
            name,
            means.tolist(),
            shares.tolist(),
            weights=weights.tolist(),
        )
        curves.append(curve)
        errors[name] = float(np.sum(weights * np.abs(means - shares)))
    chart = Chart(
        f"reliability_{set_name}",
        f"Reliability diagram of {set_name}",
        "probability",
        "share that is right",
        has_diagonal=True,
    )
    sentences = [f"{name}: {error:.1%}" for name, error in errors.items()]
    note = (
        "On the dashed line, a probability of 0.9 means that nine of ten predictions are right; "
        "below it the model is too sure. A larger dot has more predictions. The mean distance "
        f"from the line is the expected calibration error in {NUM_BINS} bins: "
        f"{', '.join(sentences)}."
    )
    if errors.get("calibrated", 0.0) > min(errors.values()):
        note += " Here the calibration makes it larger: leave --calibrate out, or add examples."
    if len(is_right) < _FEW_EXAMPLES:
        note += f" These are only {len(is_right)} predictions, so dots may be off by chance."
    return Section(
        "Calibration",
        [
            note,
            draw_curves(chart, curves),
        ],
    )


def _make_coverage(set_name: str, records: Sequence[Record]) -> Section:
    """Returns the section that helps to choose --abstain_below."""
    probabilities = np.array([record["probability"] for record in records])
    is_right = np.array([record["label"] == record["prediction"] for record in records])
    order = np.argsort(-probabilities, kind="stable")
    answered = np.arange(1, len(records) + 1)
    accuracies = np.cumsum(is_right[order]) / answered
    coverages = answered / len(records)
    rows = []
    for threshold in _THRESHOLDS:
        is_answered = probabilities >= threshold
        num_answered = int(is_answered.sum())
        num_right = int(is_right[is_answered].sum())
        accuracy = percent(num_right / num_answered) if num_answered else ""
        coverage = percent(num_answered / len(records))
        rows.append((f"{threshold:g}", coverage, accuracy, num_answered - num_right))
    chart = Chart(
        f"coverage_{set_name}",
        f"Accuracy by coverage of {set_name}",
        "coverage: share of the examples with an answer",
        "accuracy of the answers",
    )
    # Of equal probabilities, a threshold keeps all or none.
    is_last = np.append(np.diff(probabilities[order]) != 0, True)
    # The accuracy of few answers is chance.
    first = min(_FEW_ANSWERS, len(records)) - 1
    places = np.unique(np.linspace(first, len(records) - 1, _NUM_POINTS).astype(int))
    curve = Series(
        "",
        coverages[places].tolist(),
        accuracies[places].tolist(),
    )
    note = (
        "With --abstain_below, the model gives no answer below that probability. Choose the row "
        "whose accuracy you need, and check that enough examples keep an answer. "
    )
    heads = ("--abstain_below", "coverage", "accuracy of the answers", "wrong answers")
    sentences = []
    for target in _ACCURACIES:
        reached = first + np.flatnonzero((is_last & (accuracies >= target))[first:])
        if len(reached) and accuracies[-1] < target:
            last = int(reached[-1])
            threshold = math.floor(1000 * probabilities[order][last]) / 1000
            sentences.append(
                f"{target:.0%} of the answers are right from about {threshold:g} on, with an "
                f"answer for {coverages[last]:.0%} of the examples."
            )
    note += " ".join(sentences)
    return Section(
        "When to abstain",
        [
            note,
            draw_curves(chart, [curve]),
            make_table(heads, rows),
        ],
    )


def list_mistakes(records: Sequence[Record]) -> list[Section]:
    """Returns the section of the mistakes of which the model is surest; none without texts.

    Args:
        records: the predictions.
    """
    mistakes = [
        record
        for record in records
        if record.get("label") != record.get("prediction") and "text" in record
    ]
    if not mistakes:
        return []
    mistakes.sort(key=lambda record: -record.get("probability", 0.0))
    rows = []
    fields = _choose_place_fields(records)
    for record in mistakes[:_MOST_MISTAKES]:
        label = "out of scope" if record["label"] is None else _name(record["label"])
        text = shorten(record["text"], _LONGEST_TEXT)
        probability = percent(record["probability"]) if "probability" in record else ""
        prediction = _name(record["prediction"])
        place = [record.get(field) for field in fields]
        rows.append([*place, text, label, prediction, probability])
    note = (
        f"{len(mistakes)} of {len(records)} predictions are wrong. These are the ones of which "
        "the model is surest: wrong labels of the data are often among them. Texts are shown as "
        "the model reads them. The first columns say where they are in the file or in the set."
    )
    heads = (*fields.values(), "text", "true label", "predicted label", "probability")
    return [Section("Mistakes", [note, make_table(heads, rows)])]


def _choose_place_fields(records: Sequence[Record]) -> dict[str, str]:
    """Returns the fields that say where a text is, with the names of their columns."""
    fields = {"id": "example"}
    if any(record.get("line") for record in records):
        fields = {"line": "line"}
    if any(record.get("row_id") for record in records):
        fields["row_id"] = "id"
    return fields


def list_multi_label_sections(
    set_name: str,
    records: Sequence[Record],
    labels: Sequence[str],
    temperature: float | None,
) -> list[Section]:
    """Returns the sections about predictions of several labels for each example.

    Args:
        set_name: the name of the evaluated set.
        records: the predictions.
        labels: the labels of the model.
        temperature: the temperature of a calibrated model; None for others.
    """
    counts = []
    for name in labels:
        targets = np.array([name in record["label"] for record in records])
        predictions = np.array([name in record["prediction"] for record in records])
        num_right = int(np.sum(targets & predictions))
        counts.append((name, (num_right, int(predictions.sum()), int(targets.sum()))))
    table = tabulate_scores(("label", "examples"), counts)
    sections = [Section("Results of each label", [table])]
    if all("probabilities" in record for record in records):
        pairs = [
            (probability, name in record["label"])
            for record in records
            for name, probability in record["probabilities"].items()
        ]
        values = np.array([probability for probability, _ in pairs])
        is_right = np.array([is_one for _, is_one in pairs])
        confidences = {"as predicted": values}
        if temperature:
            clipped = np.clip(
                values,
                1e-6,
                1 - 1e-6,
            )
            raw_logits = temperature * (np.log(clipped) - np.log1p(-clipped))
            confidences = {
                "before the calibration": 1 / (1 + np.exp(-raw_logits)),
                "calibrated": values,
            }
        sections.append(
            make_reliability(
                set_name,
                confidences,
                is_right,
            )
        )
    return sections + list_mistakes(records)


def list_score_sections(set_name: str, records: Sequence[Record]) -> list[Section]:
    """Returns the sections about predicted scores.

    Args:
        set_name: the name of the evaluated set.
        records: the predictions.
    """
    points = np.array([(record["label"], record["prediction"]) for record in records], float)
    fields = _choose_place_fields(records)
    tips = []
    for record in records:
        place = ", ".join(f"{head} {record.get(field)}" for field, head in fields.items())
        tips.append(f"{place}: {shorten(record['text'], 80)}")
    chart = Chart(
        f"scores_{set_name}",
        f"Predicted scores of {set_name}",
        "true score",
        "predicted score",
    )
    order = np.argsort(-np.abs(points[:, 0] - points[:, 1]), kind="stable")[:_MOST_MISTAKES]
    rows = []
    for place in order:
        record = records[place]
        text = shorten(record["text"], _LONGEST_TEXT)
        difference = record["prediction"] - record["label"]
        scores = (record["label"], record["prediction"], difference)
        place = [record.get(field) for field in fields]
        rows.append((*place, text, *scores))
    heads = (*fields.values(), "text", "true score", "predicted score", "difference")
    picture = draw_dots(
        chart,
        points,
        [""] * len(points),
        tips,
    )
    return [
        Section("Predicted scores", [picture]),
        Section("Largest differences", [make_table(heads, rows)]),
    ]


def _name(labels: str | Sequence[str]) -> str:
    return labels if isinstance(labels, str) else ", ".join(labels) or "none"


def percent(share: float) -> Cell:
    """Returns the cell of a share, which sorts as a number.

    Args:
        share: the share, from 0 to 1.
    """
    return Cell(f"{share:.1%}", share)
