"""Scores entities in sequences of tags by the rules of the CoNLL shared tasks' script, conlleval.

Tags are IOB1, IOB2 (BIO) or IOBES. A predicted entity is correct if its type, first token and last
token are correct.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from official_bert.metrics.classification import precision_recall_f1


class Entity(NamedTuple):
    """An entity of a sequence.

    Attributes:
        type: its type, "_" if the tags have none.
        first: the position of its first token.
        last: the position of its last token.
    """

    type: str
    first: int
    last: int


def find_entities(tags: Sequence[str]) -> Iterator[Entity]:
    """Yields the entities of a sequence, in order.

    One rule reads all schemes, and every sequence is valid: A tag I or E continues the entity
    before it if the last tag of that entity is B or I and the types are equal. Any other tag except
    O begins a new entity.

    Args:
        tags: the tags of the sequence's tokens, such as B-PER, I-PER or O.

    Raises:
        ValueError: a tag is neither O nor one of B, I, E and S with or without a type.
    """
    first = 0
    type_before = ""
    before = "O"
    for position, tag in enumerate([*tags, "O"]):
        mark, _, type_ = tag.partition("-")
        if mark not in ("O", "B", "I", "E", "S"):
            raise ValueError(f"the tag {tag!r} is neither O nor one of B, I, E, S with a type")
        type_ = type_ or "_"
        if mark in "IE" and before in "BI" and type_ == type_before:
            before = mark
            continue
        if before != "O":
            yield Entity(type_before, first, position - 1)
        first = position
        type_before = type_
        before = mark


def entity_scores(
    targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]
) -> dict[str, float]:
    """Returns the scores of the entities and of the tags.

    As in conlleval, a score with a zero denominator is 0. The accuracy compares the written tags,
    so targets and predictions must have the same scheme.

    Args:
        targets: the correct tags of each sequence.
        predictions: the predicted tags of each sequence.

    Returns:
        `precision`, `recall` and `f1` of all entities, `accuracy` of the tags, then the scores of
        each type: `precision_<type>` and so on.
    """
    num_tokens = 0
    num_correct = 0
    true_positives: collections.Counter[str] = collections.Counter()
    predicted: collections.Counter[str] = collections.Counter()
    expected: collections.Counter[str] = collections.Counter()
    for target_tags, predicted_tags in zip(targets, predictions, strict=True):
        num_tokens += len(target_tags)
        for target, prediction in zip(target_tags, predicted_tags, strict=True):
            num_correct += target == prediction
        target_entities = set(find_entities(target_tags))
        predicted_entities = set(find_entities(predicted_tags))
        true_positives.update(entity.type for entity in target_entities & predicted_entities)
        predicted.update(entity.type for entity in predicted_entities)
        expected.update(entity.type for entity in target_entities)
    scores = precision_recall_f1(
        num_true_positives=true_positives.total(),
        num_predicted=predicted.total(),
        num_targets=expected.total(),
    )
    scores["accuracy"] = num_correct / num_tokens
    for type_ in sorted(predicted.keys() | expected.keys()):
        type_scores = precision_recall_f1(
            num_true_positives=true_positives[type_],
            num_predicted=predicted[type_],
            num_targets=expected[type_],
        )
        for name, value in type_scores.items():
            scores[f"{name}_{type_}"] = value
    return scores
