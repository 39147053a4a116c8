"""The client of a classification or regression model: it answers with a label, with labels or
with a score.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs
from official_bert.metrics import calibration
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers, rows_of

LIKELY = 0.5  # the model predicts those of several labels whose probability exceeds this


class ClassificationClient(TextClient):
    """A client that asks for the label, the labels or the score of a text or a pair."""

    method = "classify"

    def __init__(
        self,
        model: ServedModel,
        labels: Sequence[str] | None,
        num_texts: int | None,
        long_texts: LongTexts | None = None,
        abstain_below: float | None = None,
    ):
        """Connects the client; `num_texts` is 1 or 2, or None for a model of both; `labels` are
        None in regression.
        """
        super().__init__(model, ("text_a", "text_b")[:num_texts], num_texts or 1)
        self._labels, self._long_texts, self._abstain_below = labels, long_texts, abstain_below

    def is_cut(self, texts: Texts) -> bool:
        """Tells whether a text is truncated; in windows it is read as a whole."""
        return not self._long_texts and super().is_cut(texts)

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Answers requests; the logits of a text's windows are pooled here, or in the graph of
        an export of text.
        """
        model, long_texts = self.model, self._long_texts
        if model.reads_text or not long_texts:
            return super().answers(requests)
        windows = [
            long_texts.windows(model.tokenizer, text, model.max_seq_length) for (text,) in requests
        ]
        outputs = model.run(ModelInputs(itertools.chain.from_iterable(windows)))
        counts = np.array([len(found) for found in windows])
        return [
            self.answer(row)
            for row in rows_of(long_texts.outputs_of_texts(outputs, counts, self._of_logits))
        ]

    def _of_logits(self, logits: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs of the model's graph for logits, as far as an answer needs them;
        none of a score.
        """
        if self._labels is None:
            return {}
        is_multi_label = "labels" in self.model.outputs
        probabilities = calibration.probabilities(logits, is_multi_label)
        names = np.array([label.encode() for label in self._labels], object)
        if is_multi_label:
            chosen = {"labels": np.where(probabilities > LIKELY, names, b"")}
        else:
            chosen = {"label": names[probabilities.argmax(-1)]}
        return {"probabilities": probabilities} | chosen

    def answer(self, row: Row) -> dict:
        """Returns `label`, None without one, and `probabilities`; or `labels` and
        `probabilities`; or `score`.
        """
        if "score" in row:
            return {"score": numbers([row["score"]])[0]}
        by_label = {
            "probabilities": dict(zip(self._labels, numbers(row["probabilities"]), strict=True))
        }
        if "label" in row:
            label, best = row["label"].decode() or None, row["probabilities"].argmax()
            if self._abstain_below is not None:  # may be another threshold than that of the graph
                label = (
                    self._labels[best]
                    if row["probabilities"][best] >= self._abstain_below
                    else None
                )
            return {"label": label} | by_label
        return {"labels": [label.decode() for label in row["labels"] if label]} | by_label

    def postprocess(self, texts: Texts, answer: dict) -> dict | list[dict]:
        """Returns `label` and `score`, its probability; a list of them with several labels;
        `score` in regression.
        """
        if "labels" in answer:
            return [
                {"label": label, "score": answer["probabilities"][label]}
                for label in answer["labels"]
            ]
        if "label" not in answer:
            return answer
        return {"label": answer["label"], "score": max(answer["probabilities"].values())}
