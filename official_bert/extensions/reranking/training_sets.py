"""The training set of each loss, made of the rows of a table; rows that a loss cannot learn from
are refused.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from official_bert.data.text_tables import Example
from official_bert.extensions.reranking.inputs import TrainingLists, build_training_lists
from official_bert.extensions.reranking.losses import BATCH_NEGATIVES, LISTS, LOSSES, MARGINS, PAIRS
from official_bert.extensions.reranking.rankings import (
    Document,
    Ranking,
    merge_queries,
    read_ranking,
    sort_documents,
    split,
)
from official_bert.extensions.reranking.settings import RerankingSettings
from official_bert.io.errors import InputError
from official_bert.serving.predictor import compute_teacher_scores
from official_bert.tokenization import FullTokenizer


def encode(
    examples: Sequence[Example],
    tokenizer: FullTokenizer,
    max_seq_length: int,
    settings: RerankingSettings,
) -> TrainingLists:
    """Return the training set of a loss.

    Args:
        examples: the rows of the table.
        tokenizer: the tokenizer of the model.
        max_seq_length: the maximum number of tokens of a pair.
        settings: the flags of run_reranker.

    Raises:
        InputError: the loss cannot learn from the rows, or the teacher cannot be used.
    """
    kind = LOSSES[settings.loss].examples
    rankings = list(map(read_ranking, examples))
    if settings.teacher:
        rankings = _label_by_teacher(rankings, settings.teacher)
    has_negatives = any(example.negatives for example in examples)
    if kind == PAIRS:
        rankings = list(_split_pairs(rankings))
    elif kind == LISTS:
        rankings = list(_split_lists(rankings, settings.list_size))
    elif kind == MARGINS:
        rankings = list(_split_margins(rankings, has_negatives, settings.list_size))
    else:
        rankings = list(_split_positives(rankings, settings.list_size))
    _CHECKS[settings.loss](rankings, settings)
    num_negatives = settings.num_negatives if kind == BATCH_NEGATIVES else 0
    encoded = build_training_lists(rankings, tokenizer, max_seq_length, num_negatives)
    computed_features = ("labels",) if settings.teacher else ()
    return dataclasses.replace(encoded, computed_features=computed_features)


def _label_by_teacher(rankings: Sequence[Ranking], teacher: str) -> list[Ranking]:
    """Returns the rankings with the logits of a reranker as labels."""
    pairs = []
    for ranking in rankings:
        pairs += [(ranking.query, document.text) for document in ranking.documents]
    scores = iter(compute_teacher_scores(teacher, pairs).tolist())
    labelled = []
    for ranking in rankings:
        texts = [document.text for document in ranking.documents]
        documents = map(Document, texts, itertools.islice(scores, len(texts)))
        labelled.append(ranking._replace(documents=tuple(documents)))
    return labelled


def _split_pairs(rankings: Iterable[Ranking]) -> Iterator[Ranking]:
    """Yields a ranking for each document."""
    for ranking in rankings:
        for document in ranking.documents:
            yield ranking._replace(documents=(document,))


def _split_lists(rankings: Iterable[Ranking], list_size: int) -> Iterator[Ranking]:
    """Yields the documents of each query, in parts of --list_size.

    An order of documents with equal labels is no order.
    """
    for ranking in merge_queries(rankings):
        for part in split(ranking, list_size):
            if len(set(part.labels)) > 1:
                yield part


def _split_margins(
    rankings: Sequence[Ranking], has_negatives: bool, list_size: int
) -> Iterator[Ranking]:
    """Yields documents with the one first that the others are compared with.

    It is the positive of a row with negatives, or else the best document of the query.
    """
    if not has_negatives:
        rankings = [sort_documents(ranking) for ranking in merge_queries(rankings)]
    num_others = list_size - 1
    for ranking in rankings:
        first, *others = ranking.documents
        for start in range(0, len(others), num_others):
            end = start + num_others
            yield ranking._replace(documents=(first, *others[start:end]))


def _split_positives(rankings: Iterable[Ranking], list_size: int) -> Iterator[Ranking]:
    """Yields each document with a label above 0, and behind it the others of the query."""
    for ranking in merge_queries(rankings):
        negatives = [document for document in ranking.documents if document.label <= 0]
        for document in ranking.documents:
            if document.label > 0:
                documents = (document, *negatives[: list_size - 1])
                yield ranking._replace(documents=documents)


def _check_probabilities(rankings: Sequence[Ranking], settings: RerankingSettings):
    for ranking in rankings:
        label = ranking.documents[0].label
        if not 0 <= label <= 1:
            raise InputError(
                f"{ranking.where}: has the label {label:g}, but --loss={settings.loss} "
                "learns labels from 0 to 1; divide the labels by the largest, or choose --loss=mse"
            )
    _check_scores(rankings, settings)


def _check_scores(rankings: Sequence[Ranking], settings: RerankingSettings):
    labels = {ranking.documents[0].label for ranking in rankings}
    if len(labels) == 1 and len(rankings) > 1:
        raise InputError(
            f"{rankings[0].where}: all documents have the label {labels.pop():g}, so there is "
            "nothing to tell apart; check --label_column, give negatives, such as those of "
            "official-bert mine_hard_negatives, or choose --loss=multiple_negatives_ranking"
        )


def _check_lists(rankings: Sequence[Ranking], settings: RerankingSettings):
    if not rankings:
        raise InputError(
            f"--loss={settings.loss}: no query of the training set has documents with different "
            "labels; check --anchor_column and --label_column, or give negatives, such as those of "
            "official-bert mine_hard_negatives"
        )


def _check_margins(rankings: Sequence[Ranking], settings: RerankingSettings):
    if not rankings:
        raise InputError(
            f"--loss={settings.loss}: no query of the training set has two documents; check "
            "--anchor_column and --negative_columns"
        )


def _check_positives(rankings: Sequence[Ranking], settings: RerankingSettings):
    if not rankings:
        raise InputError(
            f"--loss={settings.loss}: no document of the training set has a label above 0; check "
            "--label_column"
        )
    if len({ranking.documents[0].text for ranking in rankings}) == 1:
        raise InputError(
            f"{rankings[0].where}: all queries have the same document, so --loss={settings.loss} "
            "has no other one to tell it from; check --positive_column"
        )


_CHECKS = {
    "binary_cross_entropy": _check_probabilities,
    "multiple_negatives_ranking": _check_positives,
    "margin_mse": _check_margins,
    "mse": _check_scores,
    "rank_net": _check_lists,
    "list_net": _check_lists,
    "lambda_loss": _check_lists,
}
