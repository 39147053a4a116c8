"""Scores entities in sequences of tags by the rules of conlleval, the script of the CoNLL shared
tasks.

Tags are IOB1, IOB2 (BIO) or IOBES. A predicted entity is correct if its type, first and last token
are correct.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from official_bert.metrics.classification import precision_recall_f1


class Entity(NamedTuple):
    """An entity: its type ("_" if the tags have none) and the positions of its first and last
    token.
    """

    type: str
    first: int
    last: int


def find_entities(tags: Sequence[str]) -> Iterator[Entity]:
    """Yields the entities of a sequence, in order.

    One rule reads all schemes, and every sequence is valid: A tag I or E continues the entity
    before it if the last tag of that entity is B or I and the types are equal. Any other tag except
    O begins a new entity.
    """
    first, type_before, before = 0, "", "O"
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
        first, type_before, before = position, type_, mark


def entity_scores(
    targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]
) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1` of all entities, `accuracy` of the tags, then the
    scores of each type.

    The scores of a type are named `precision_<type>` and so on. As in conlleval, a score whose
    denominator is zero is
    0. The accuracy compares the written tags, so targets and predictions must have the same scheme.
    """
    num_tokens = num_correct = 0
    true_positives, predicted, expected = (collections.Counter() for _ in range(3))
    for target_tags, predicted_tags in zip(targets, predictions, strict=True):
        num_correct += sum(a == b for a, b in zip(target_tags, predicted_tags, strict=True))
        num_tokens += len(target_tags)
        target_entities, predicted_entities = (
            set(find_entities(target_tags)),
            set(find_entities(predicted_tags)),
        )
        for counter, entities in (
            (true_positives, target_entities & predicted_entities),
            (predicted, predicted_entities),
            (expected, target_entities),
        ):
            counter.update(entity.type for entity in entities)
    scores = precision_recall_f1(true_positives.total(), predicted.total(), expected.total())
    scores["accuracy"] = num_correct / num_tokens
    for type_ in sorted(predicted.keys() | expected.keys()):
        of_type = precision_recall_f1(true_positives[type_], predicted[type_], expected[type_])
        scores |= {f"{name}_{type_}": value for name, value in of_type.items()}
    return scores
