"""The client of a classification or regression model. It returns a label, labels or a score."""

import itertools
from collections.abc import Sequence

import numpy as np

from official_bert.data.model_inputs import ModelInputs
from official_bert.metrics import calibration
from official_bert.tasks.classification.windows import LongTexts
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers, split_rows

# A multi-label model predicts the labels whose probability exceeds this.
LIKELY = 0.5


class ClassificationClient(TextClient):
    """A client that requests the label, the labels or the score of a text or a pair."""

    method = "classify"

    def __init__(
        self,
        model: ServedModel,
        labels: Sequence[str] | None,
        num_texts: int | None,
        long_texts: LongTexts | None = None,
        abstain_below: float | None = None,
    ):
        """Connect the client to an export.

        Args:
            model: the export.
            labels: the labels in the order of the outputs; None in regression.
            num_texts: 1 or 2 texts for each request; None if a request may be a text or a pair.
            long_texts: how texts are cut into windows; None truncates them.
            abstain_below: the model abstains if the best label is less probable. None uses the
                threshold of the export.
        """
        super().__init__(model, ("text_a", "text_b")[:num_texts], num_texts or 1)
        self._labels = list(labels or ())
        self._long_texts = long_texts
        self._abstain_below = abstain_below

    def is_cut(self, texts: Texts) -> bool:
        """Return whether a text is truncated; windows cover the whole text.

        Args:
            texts: the text or the pair of a request.
        """
        return not self._long_texts and super().is_cut(texts)

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Answer requests.

        The logits of a text's windows are pooled in the graph of an export that reads text, and
        here for other models.

        Args:
            requests: the texts or pairs.

        Returns:
            The `answer` to each request.
        """
        model = self.model
        long_texts = self._long_texts
        if model.reads_text or not long_texts:
            return super().answers(requests)
        window_lists = [
            long_texts.encode_windows(model.tokenizer, text, model.max_seq_length)
            for (text,) in requests
        ]
        outputs = model.run(ModelInputs(itertools.chain.from_iterable(window_lists)))
        counts = np.array([len(windows) for windows in window_lists])
        pooled = long_texts.pool_outputs(outputs, counts, self._compute_outputs)
        return [self.answer(row) for row in split_rows(pooled)]

    def _compute_outputs(self, logits: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the outputs that an answer needs, computed from pooled logits as in the graph.

        The answer of a regression model needs none of them.
        """
        if not self._labels:
            return {}
        is_multi_label = "labels" in self.model.outputs
        probabilities = calibration.probabilities(logits, is_multi_label)
        names = np.array([label.encode() for label in self._labels], object)
        if is_multi_label:
            labels = np.where(probabilities > LIKELY, names, b"")
            return {"probabilities": probabilities, "labels": labels}
        return {"probabilities": probabilities, "label": names[probabilities.argmax(-1)]}

    def answer(self, row: Row) -> dict:
        """Return the answer for the outputs of one request.

        Args:
            row: the outputs.

        Returns:
            `label`, which is None if the model abstains, and `probabilities`. A multi-label model
            gives `labels` and `probabilities`, and a regression model gives `score`.
        """
        if "score" in row:
            return {"score": numbers([row["score"]])[0]}
        values = numbers(row["probabilities"])
        probabilities = dict(zip(self._labels, values, strict=True))
        if "label" in row:
            return {"label": self._choose_label(row), "probabilities": probabilities}
        labels = [label.decode() for label in row["labels"] if label]
        return {"labels": labels, "probabilities": probabilities}

    def _choose_label(self, row: Row) -> str | None:
        """Returns the label of a request, or None if the model abstains."""
        if self._abstain_below is None:
            return row["label"].decode() or None
        # The threshold may differ from that of the graph, so the label is chosen again.
        best = row["probabilities"].argmax()
        is_likely = row["probabilities"][best] >= self._abstain_below
        return self._labels[best] if is_likely else None

    def postprocess(self, texts: Texts, answer: dict) -> dict | list[dict]:
        """Return an answer in the form of the pipelines of transformers.

        Args:
            texts: the text or the pair of the request.
            answer: the `answer` to it.

        Returns:
            `label` and `score`, its probability. If the model abstains, `label` is None and `score`
            is the highest probability. A multi-label model gives a list of labels with their
            scores, and a regression model gives only `score`.
        """
        if "labels" in answer:
            return [
                {"label": label, "score": answer["probabilities"][label]}
                for label in answer["labels"]
            ]
        if "label" not in answer:
            return answer
        return {"label": answer["label"], "score": max(answer["probabilities"].values())}
