"""The client of a multiple-choice model: it answers a context and its continuations with the most probable one."""

from __future__ import annotations

from collections.abc import Sequence

from official_bert.tasks.choice.examples import NUM_CHOICES, ChoiceExample, EncodedChoices, encoded_choices
from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers


class ChoiceClient(TextClient):
    """A client that asks for the most probable continuation of a context."""

    def __init__(self, model: ServedModel):
        super().__init__(model, ("context", *(f"ending{k}" for k in range(NUM_CHOICES))))

    def encode(self, requests: Sequence[Texts]) -> EncodedChoices:
        """Encodes requests; each choice and its context are cut together to the model's length."""
        examples = [ChoiceExample("", context, tuple(endings)) for context, *endings in requests]
        return encoded_choices(examples, self.model.max_seq_length, self.model.tokenizer)

    def texts_by_input(self, requests: Sequence[Texts]) -> dict[str, Sequence]:
        """Returns `context`, and a list of `endings` for each context."""
        return {"context": [texts[0] for texts in requests], "endings": [texts[1:] for texts in requests]}

    def answer(self, row: Row) -> dict:
        """Returns `choice`, counted from 0, and `probabilities`."""
        return {"choice": int(row["choice"]), "probabilities": numbers(row["probabilities"])}
