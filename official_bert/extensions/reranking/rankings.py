"""Queries with their documents: made of rows, merged by query, and split into examples.

In: the `Example`s of tables. Out: `Ranking`s.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from official_bert.data.text_tables import Example
from official_bert.io.errors import InputError


class Document(NamedTuple):
    """A document of a query; a higher label is better."""

    text: str
    label: float


class Ranking(NamedTuple):
    """A query and its documents.

    Attributes:
        where: the place of the row, for messages.
        query: the query.
        documents: the documents; in a row with negatives, the positives come first.
    """

    where: str
    query: str
    documents: tuple[Document, ...]

    @property
    def labels(self) -> list[float]:
        """The labels of the documents."""
        return [document.label for document in self.documents]


def list_documents(example: Example) -> tuple[str, ...]:
    """Return the documents of a row, the positives first.

    Args:
        example: the row.

    Raises:
        InputError: it has none.
    """
    texts = (*example.positives, *example.negatives)
    if not texts:
        raise InputError(
            f"{example.where}: has a query and no document; name the column of the documents, "
            "--positive_column=... or --negative_columns=..."
        )
    return texts


def read_ranking(example: Example) -> Ranking:
    """Return the documents of a row and their labels.

    Without a label, the positives have the label 1 and the negatives 0. Otherwise the labels are
    `Example.scores`.

    Args:
        example: the row.

    Raises:
        InputError: there is no document, or the label has another number of numbers.
    """
    texts = list_documents(example)
    if example.label:
        labels = example.scores()
    else:
        labels = [1.0] * len(example.positives) + [0.0] * len(example.negatives)
    documents = map(Document, texts, labels)
    return Ranking(example.where, example.anchor, tuple(documents))


def merge_queries(rankings: Iterable[Ranking]) -> list[Ranking]:
    """Return one ranking for each query, in the order of appearance.

    A document that a query has several times keeps its highest label.

    Args:
        rankings: the rankings of the rows.
    """
    places: dict[str, str] = {}
    labels_by_query: dict[str, dict[str, float]] = {}
    for ranking in rankings:
        places.setdefault(ranking.query, ranking.where)
        labels = labels_by_query.setdefault(ranking.query, {})
        for text, label in ranking.documents:
            labels[text] = max(label, labels.get(text, label))
    merged = []
    for query, labels in labels_by_query.items():
        documents = map(Document, labels, labels.values())
        merged.append(Ranking(places[query], query, tuple(documents)))
    return merged


def sort_documents(ranking: Ranking) -> Ranking:
    """Return a ranking with the best label first; equal labels keep their order.

    Args:
        ranking: the ranking.
    """
    documents = sorted(ranking.documents, key=lambda document: -document.label)
    return ranking._replace(documents=tuple(documents))


def split(ranking: Ranking, list_size: int) -> Iterator[Ranking]:
    """Yield parts of a ranking with at most `list_size` documents.

    Each part has documents above the lowest label, which may be in several parts, and different
    ones of the others.

    Args:
        ranking: the ranking.
        list_size: the largest number of documents of a part, at least 2.
    """
    if len(ranking.documents) <= list_size:
        yield ranking
        return
    lowest = min(ranking.labels)
    best = [document for document in ranking.documents if document.label > lowest]
    others = [document for document in ranking.documents if document.label == lowest]
    most_best = max(list_size // 2, list_size - len(others))
    num_best = min(len(best), most_best)
    num_others = list_size - num_best
    num_parts = _divide_up(len(others), num_others)
    if num_best:
        num_parts = max(num_parts, _divide_up(len(best), num_best))
    next_best = itertools.cycle(best)
    for part in range(num_parts):
        start = part * num_others % len(others)
        documents = (
            *itertools.islice(next_best, num_best),
            *others[start : start + num_others],
        )
        yield ranking._replace(documents=documents)


def _divide_up(count: int, size: int) -> int:
    """Returns the number of parts of `size` that `count` needs."""
    return -(-count // size)
