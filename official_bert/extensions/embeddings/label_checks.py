"""Rejects labels and texts that a loss does not read, and sets without content.

An evaluation only warns of what it does not read.
"""

from collections.abc import Callable, Collection, Sequence

from absl import logging

from official_bert.data.text_tables import COLUMN_FLAGS, LABEL, NEGATIVE, POSITIVE, Example
from official_bert.io import errors
from official_bert.io.errors import InputError

_LEAVE_OUT = "leave the column out with --{}="


def check_training(examples: Sequence[Example], loss: str) -> None:
    """Reject a training set with texts or labels that its loss does not read, or with no content.

    Args:
        examples: the examples of the set.
        loss: the name of the loss.

    Raises:
        InputError: the loss cannot learn from these examples.
    """
    _TRAINING_CHECKS[loss](examples, loss)


def _check_ranking(examples: Sequence[Example], loss: str):
    """Rejects pairs that do not belong together, because this loss takes all for such."""
    for example in examples:
        if example.positives and example.label and not _is_positive(example):
            raise InputError(
                f"{example.where}: has the label {example.label}, but --loss={loss} takes each "
                "pair for one that belongs together; keep the pairs with label 1, choose "
                "--loss=cosent, which learns scores, or "
                f"{_LEAVE_OUT.format(COLUMN_FLAGS[LABEL])}"
            )
    if len(examples) < 2 or any(example.negatives for example in examples):
        return
    anchors = {example.anchor for example in examples}
    positives = {text for example in examples for text in example.positives}
    for texts, name in ((anchors, "first"), (positives, "second")):
        if len(texts) == 1:
            raise InputError(
                f"{examples[0].where}: all {len(examples)} examples have the same {name} text, so "
                f"--loss={loss} has no other text to tell it from; check --anchor_column and "
                "--positive_column"
            )


def _is_positive(example: Example) -> bool:
    try:
        return example.score() == 1.0
    except InputError:
        return False


def _check_triplets(examples: Sequence[Example], loss: str):
    labelled = next((example for example in examples if example.label), None)
    if labelled:
        raise InputError(
            f"{labelled.where}: has the label {labelled.label}, which --loss={loss} does not read; "
            f"{_LEAVE_OUT.format(COLUMN_FLAGS[LABEL])}"
        )


def _check_ordered_scores(examples: Sequence[Example], loss: str):
    _reject_negatives(examples, loss)
    if _is_constant([example.score() for example in examples]):
        raise InputError(
            f"{examples[0].where}: all pairs have the label {examples[0].label}, and --loss={loss} "
            "orders them; check --label_column"
        )


def _check_cosines(examples: Sequence[Example], loss: str):
    _reject_negatives(examples, loss)
    for example in examples:
        if abs(example.score()) > 1:
            raise InputError(
                f"{example.where}: has the label {example.label}, but --loss={loss} learns "
                "cosines, from -1 to 1; divide the scores by their largest, or choose "
                "--loss=cosent, which reads any"
            )
    if _is_constant([example.score() for example in examples]):
        errors.warn("%s: all pairs have the label %s", examples[0].where, examples[0].label)


def _check_binary_labels(examples: Sequence[Example], loss: str):
    _reject_negatives(examples, loss)
    for example in examples:
        if example.score() not in (0.0, 1.0):
            raise InputError(
                f"{example.where}: has the label {example.label}, but --loss={loss} reads labels 0 "
                "and 1; correct them, or choose --loss=cosent, which learns any scores"
            )
    if _is_constant([example.score() for example in examples]):
        errors.warn("%s: all pairs have the label %s", examples[0].where, examples[0].label)


def _reject_negatives(examples: Sequence[Example], loss: str):
    with_negatives = next((example for example in examples if example.negatives), None)
    if with_negatives:
        raise InputError(
            f"{with_negatives.where}: has a negative text, which --loss={loss} does not read; "
            "choose --loss=multiple_negatives_ranking, or "
            f"{_LEAVE_OUT.format(COLUMN_FLAGS[NEGATIVE])}"
        )


def _log_unread_labels(examples: Sequence[Example], loss: str):
    if any(example.label for example in examples):
        logging.info("--loss=%s learns from texts alone; their labels are not read", loss)


_TRAINING_CHECKS: dict[str, Callable[[Sequence[Example], str], None]] = {
    "multiple_negatives_ranking": _check_ranking,
    "gist": _check_ranking,
    "simcse": _log_unread_labels,
    "cosent": _check_ordered_scores,
    "angle": _check_ordered_scores,
    "cosine_similarity": _check_cosines,
    "contrastive": _check_binary_labels,
    "online_contrastive": _check_binary_labels,
    "triplet": _check_triplets,
    "mse": _log_unread_labels,
    "margin_mse": lambda examples, loss: None,  # The margins have been read.
}


def warn_about_unread_parts(
    examples: Sequence[Example], kind: str, parts_read: Collection[str]
) -> None:
    """Warn of parts of the examples that an evaluation does not read.

    Args:
        examples: the examples of a set.
        kind: the name of the evaluation.
        parts_read: the parts that it reads beside the first text.
    """
    has_part = {
        POSITIVE: any(example.positives for example in examples),
        NEGATIVE: any(example.negatives for example in examples),
        LABEL: any(example.label for example in examples),
    }
    unread = [part for part in has_part if has_part[part] and part not in parts_read]
    if unread:
        errors.warn(
            "--eval_task=%s does not read the %s of the examples", kind, " and the ".join(unread)
        )


def _is_constant(values: Sequence[float]) -> bool:
    """Returns whether there are several values, all equal."""
    return len(values) > 1 and len(set(values)) == 1
