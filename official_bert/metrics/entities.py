"""Entities in sequences of tags, scored by the rules of conlleval, the script of the CoNLL shared tasks.

In: tags in IOB1, IOB2 (BIO) or IOBES. Out: {name: value}, fractions. An entity is right if its type, its first and
its last token are.
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from official_bert.metrics.classification import precision_recall_f1


class Entity(NamedTuple):
    """Consecutive tokens of a sequence.

    Attributes:
        type: what stands behind the hyphen of its tags, "_" if nothing does.
        first: number of its first token, from 0.
        last: number of its last token.
    """

    type: str
    first: int
    last: int


def entities_of(tags: Sequence[str]) -> Iterator[Entity]:
    """The entities of a sequence, in order.

    No sequence is invalid: a tag goes on with the entity before it if it is I or E, that one ended in B or I, and the
    types are equal; otherwise it begins one. So one rule reads all the schemes.

    Args:
        tags: "O", or B, I, E or S with a type, such as "B-PER".

    Raises:
        ValueError: another tag.
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


def entity_scores(targets: Iterable[Sequence[str]], predictions: Iterable[Sequence[str]]) -> dict[str, float]:
    """`precision`, `recall` and `f1` of all entities, `accuracy` of the tags, then `precision_<type>` and so on.

    What would be divided by zero is 0, as in conlleval: the precision if no entity is predicted, the recall if there
    is none. The accuracy compares tags as they are written, so both sides must be in the same scheme.

    Args:
        targets: tags of each sequence; there is a token.
        predictions: as many tags for each.

    Raises:
        ValueError: sequences or tags that are not equally many, or a tag that `entities_of` does not know.
    """
    num_tokens = num_right = 0
    hits, predicted, expected = (collections.Counter() for _ in range(3))
    for target_tags, predicted_tags in zip(targets, predictions, strict=True):
        num_right += sum(a == b for a, b in zip(target_tags, predicted_tags, strict=True))
        num_tokens += len(target_tags)
        target_entities, predicted_entities = set(entities_of(target_tags)), set(entities_of(predicted_tags))
        for counter, entities in (
            (hits, target_entities & predicted_entities),
            (predicted, predicted_entities),
            (expected, target_entities),
        ):
            counter.update(entity.type for entity in entities)
    scores = precision_recall_f1(hits.total(), predicted.total(), expected.total())
    scores["accuracy"] = num_right / num_tokens
    for type_ in sorted(predicted.keys() | expected.keys()):
        of_type = precision_recall_f1(hits[type_], predicted[type_], expected[type_])
        scores |= {f"{name}_{type_}": value for name, value in of_type.items()}
    return scores
