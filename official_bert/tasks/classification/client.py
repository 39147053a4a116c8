"""The client of a classifier: it answers a text or a pair with labels and their probabilities, or with a score."""

from __future__ import annotations

from collections.abc import Sequence

from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers


class ClassificationClient(TextClient):
    """A client that asks for the label, the labels or the score of a text or a pair."""

    method = "classify"

    def __init__(self, model: ServedModel, labels: Sequence[str] | None, num_texts: int | None):
        """Connects the client to an export.

        Args:
            labels: the labels in the order of the outputs; None in regression.
            num_texts: number of texts that the model was trained on, 1 or 2; None if it accepts both.
        """
        super().__init__(model, ("text_a", "text_b")[:num_texts], num_texts or 1)
        self._labels = labels

    def answer(self, row: Row) -> dict:
        """Returns `label` and `probabilities`, or `labels` and `probabilities`, or `score`."""
        if "score" in row:
            return {"score": numbers([row["score"]])[0]}
        by_label = {"probabilities": dict(zip(self._labels, numbers(row["probabilities"]), strict=True))}
        if "label" in row:
            return {"label": row["label"].decode()} | by_label
        return {"labels": [label.decode() for label in row["labels"] if label]} | by_label

    def in_brief(self, texts: Texts, answer: dict) -> dict | list[dict]:
        """Returns `label` and `score`, its probability; a list of them with several labels; `score` in regression."""
        if "labels" in answer:
            return [{"label": label, "score": answer["probabilities"][label]} for label in answer["labels"]]
        if "label" not in answer:
            return answer
        return {"label": answer["label"], "score": answer["probabilities"][answer["label"]]}
