"""Describes the predictions of a classifier for each text, for eval_predictions.jsonl."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from official_bert.metrics import calibration
from official_bert.tasks.classification.examples import EncodedExamples
from official_bert.tasks.clients import numbers

_LONGEST_TEXT = 400
_MOST_LABELS = 50  # of a task with several labels an example, of which all probabilities are kept

Arrays = dict[str, np.ndarray]
Record = dict[str, Any]


def describe_texts(
    encoded: EncodedExamples,
    describe: Callable[[int], Record],
    to_tokens: Callable[[list[int]], list[str]],
) -> Iterator[Record]:
    """Yield the records of all texts, with their lengths and the texts as the model reads them.

    A text of a table also has its line, and the value of the column that names the rows.

    Args:
        encoded: the set.
        describe: returns the labels of a text by its index in the set.
        to_tokens: returns the tokens of ids.
    """
    _, first_rows = np.unique(encoded.text_indices, return_index=True)
    for index, row in enumerate(first_rows):
        ids = encoded.inputs.ids[row].tolist()
        text = " ".join(to_tokens(ids)[1:-1]).replace(" ##", "").replace("[SEP]", "|")
        source = encoded.sources[index] if encoded.sources else None
        place = source._asdict() if source else {}
        yield {**place, **describe(index), "tokens": len(ids), "text": text[:_LONGEST_TEXT]}


def describe_label(
    encoded: EncodedExamples,
    outputs: Arrays,
    labels: Sequence[str],
    index: int,
) -> Record:
    """Return the label, the prediction and its probability for a text with one label.

    Args:
        encoded: the set.
        outputs: the outputs for its texts, each [n, ...].
        labels: the labels in the order of the outputs.
        index: the index of the text.
    """
    probabilities = outputs["probabilities"][index]
    raw_probabilities = probabilities
    if "logits" in outputs:
        raw_probabilities = calibration.probabilities(outputs["logits"][index])
    probability, raw_probability = numbers([probabilities.max(), raw_probabilities.max()])
    is_out = encoded.is_out_of_scope is not None and encoded.is_out_of_scope[index]
    return {
        "label": None if is_out else str(labels[encoded.label_ids[index]]),
        "prediction": str(labels[probabilities.argmax()]),
        "probability": probability,
        "raw_probability": raw_probability,
    }


def describe_labels(
    targets: np.ndarray,
    predictions: np.ndarray,
    probabilities: np.ndarray,
    labels: Sequence[str],
) -> Record:
    """Return the labels and the predictions for a text with several labels.

    Args:
        targets: 1 for the labels of the text, int[labels].
        predictions: 1 for the predicted labels, int[labels].
        probabilities: the probabilities of the labels, float[labels].
        labels: the labels in the order of the outputs.
    """
    names = [str(label) for label in labels]
    record: Record = {
        "label": [names[index] for index in np.flatnonzero(targets)],
        "prediction": [names[index] for index in np.flatnonzero(predictions)],
    }
    if len(names) <= _MOST_LABELS:
        record["probabilities"] = dict(zip(names, numbers(probabilities), strict=True))
    return record
