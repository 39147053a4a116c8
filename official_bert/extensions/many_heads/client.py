"""The client of an export of many heads: it answers a text with the answers of all heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from official_bert.extensions.many_heads.head_model import HeadModel
from official_bert.extensions.many_heads.head_records import (
    FIRST_TEXT,
    SECOND_TEXT,
    read_head_records,
)
from official_bert.extensions.many_heads.shared_outputs import SharedOutputs, share_outputs
from official_bert.io import errors
from official_bert.io.errors import InputError
from official_bert.serving.predictor import CUT, Predictor
from official_bert.tasks.clients import TextClient, Texts


class HeadsClient(TextClient):
    """A client that gets the answers of all heads to a text.

    A head of single texts reads the first text of a pair.

    Attributes:
        heads: name of a head -> a Predictor of its answers.
    """

    def __init__(self, model: Any):
        """Connects the client.

        Args:
            model: the opened export.

        Raises:
            InputError: the record of a head has a wrong field.
        """
        self.heads: Mapping[str, Predictor] = {
            name: Predictor.from_model(HeadModel(model, name, head))
            for name, head in read_head_records(model).items()
        }
        self._has_warned_of_cut = False
        predictors = self.heads.values()
        num_texts = max(len(predictor.columns) for predictor in predictors)
        num_required = max(predictor.num_required for predictor in predictors)
        super().__init__(model, (FIRST_TEXT, SECOND_TEXT)[:num_texts], num_required)

    def check(self, texts: Texts) -> None:
        """Checks a request by all heads.

        Args:
            texts: the texts of the request.

        Raises:
            InputError: a head cannot answer it.
        """
        super().check(texts)
        for name, predictor in self.heads.items():
            try:
                predictor.client.check(_select_texts(texts, predictor))
            except InputError as error:
                raise InputError(f"{name}: {error}") from error

    def is_cut(self, texts: Texts) -> bool:
        """Returns False, because the answers of single heads have `truncated`.

        Args:
            texts: the texts of the request.
        """
        return False

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """Returns the answers of all heads to each request: name of a head -> its answer.

        Args:
            requests: the texts of each request; all have passed `check`.
        """
        shared = SharedOutputs(self.model)
        if self.model.reads_text and requests:
            shared.compute_texts(requests)
        joined: list[dict] = [{} for _ in requests]
        with share_outputs(shared):
            for name, predictor in self.heads.items():
                head_requests = [_select_texts(texts, predictor) for texts in requests]
                head_answers = predictor.answers_to_checked(head_requests)
                for texts, answer, joined_answer in zip(
                    head_requests, head_answers, joined, strict=True
                ):
                    if predictor.is_cut(texts):
                        self._warn_of_cut()
                        answer = {**answer, CUT: True}
                    joined_answer[name] = answer
        return joined

    def _warn_of_cut(self):
        """Warns once of a text that a head truncates."""
        if not self._has_warned_of_cut:
            self._has_warned_of_cut = True
            errors.warn(
                "%s: a head reads %d tokens, and texts are longer; its answers to them have "
                "truncated=True",
                self.model.path,
                self.model.max_seq_length,
            )


def _select_texts(texts: Texts, predictor: Predictor) -> Texts:
    """Returns the texts that a head reads."""
    return texts[: len(predictor.columns)]
