"""Texts as users have them, answered by an exported model that reads raw text itself.

In: texts, and a function that runs the model. Out: the answers of text_requests.py; those to questions have no
`probability`, which takes the whole list of candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from official_bert.tasks.clients import MasksAndVectors, Row, TaggingRequests, TextCount, Texts
from official_bert.tasks.squad.client import SquadRequests

# The outputs of a signature, by its name, for each request.
RunTexts = Callable[[str, Sequence[Texts]], list[Row]]

SIGNATURE, MASK_SIGNATURE = "serving_text", "serving_fill_mask"


class TextModelQuestions(TextCount):
    """A question and a context: the answer, its place and its score."""

    columns, num_required = SquadRequests.columns, SquadRequests.num_required

    def __init__(self, run: RunTexts):
        """Args: run: runs the model."""
        self._run = run

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`answer`, `start`, `end`, `score` and, with version 2, `null_odds`, as of SquadRequests."""
        return [self._answer(row) for row in self._run(SIGNATURE, requests)]

    def _answer(self, row: Row) -> dict:
        is_cut = row["start"] >= 0
        answer = {
            "answer": row["answer"].decode(),
            "start": int(row["start"]) if is_cut else None,
            "end": int(row["end"]) if is_cut else None,
            "score": float(row["score"]),
        }
        return answer | {name: float(row[name]) for name in ("null_odds",) if name in row}


class TextModelTags(TextCount):
    """A text whose words are separated by white space: a tag for each."""

    columns, num_required = TaggingRequests.columns, TaggingRequests.num_required

    def __init__(self, run: RunTexts):
        """Args: run: runs the model."""
        self._run = run

    def answers(self, requests: Sequence[Texts]) -> list[dict]:
        """`tags`, as of TaggingRequests."""
        return [{"tags": self._tags(row)} for row in self._run(SIGNATURE, requests)]

    def _tags(self, row: Row) -> list[dict]:
        words = zip(row["words"], row["starts"], row["ends"], row["tags"], strict=True)
        return [
            {"word": word.decode(), "start": int(start), "end": int(end), "tag": tag.decode()}
            for _, (word, start, end, tag) in zip(range(row["num_words"]), words, strict=False)
        ]


class TextModelVectors(MasksAndVectors):
    """A text or a pair: words for each [MASK] that stands in it, vectors where none does."""

    def __init__(self, run: RunTexts, *heads):
        """Args:
        run: runs the model.
        *heads: as of MasksAndVectors.
        """
        super().__init__(*heads)
        self._run = run

    def _words(self, requests: Sequence[Texts]) -> list[dict]:
        return [
            {"masks": [self._mask(row["positions"][k], row, k) for k in range(row["num_masks"])]}
            for row in self._run(MASK_SIGNATURE, requests)
        ]

    def _texts(self, requests: Sequence[Texts]) -> list[dict]:
        rows = self._run(SIGNATURE, requests)
        return [self._text(row, [token.decode() for token in row["tokens"] if token]) for row in rows]
