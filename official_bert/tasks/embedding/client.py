"""The client of a sentence encoder: it answers a text with its vector."""

from __future__ import annotations

from official_bert.tasks.clients import Row, ServedModel, TextClient, Texts, numbers

EMBEDDING = "embedding"


class EmbeddingClient(TextClient):
    """A client that asks for the vector of a text."""

    method = "embed"

    def __init__(self, model: ServedModel):
        super().__init__(model, ("text_a",))

    def answer(self, row: Row) -> dict:
        """Returns `embedding`."""
        return {EMBEDDING: numbers(row[EMBEDDING])}

    def in_brief(self, texts: Texts, answer: dict) -> list[float]:
        """Returns the vector of a text."""
        return answer[EMBEDDING]
