"""Splits a training set into a part to train on and a part to evaluate on.

In: the examples of a task: a list of examples with labels, or the sentences of a CoNLL file. Out:
two such sets, in the order of the file, whose labels have the same shares.
"""

import collections
import itertools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from official_bert.data.tables import ConllFile, parse_number
from official_bert.io import errors
from official_bert.io.errors import InputError

# The split must not change with --random_seed, which differs between the runs of a search.
SEED = 0
_NUM_BINS = 10  # of scores, which hardly ever are equal


class Split(NamedTuple):
    """The two parts of a training set.

    Attributes:
        train: what the model is trained on.
        dev: what it is evaluated on.
        num_train: the number of examples, or of sentences, of `train`.
        num_dev: the same of `dev`.
    """

    train: Any
    dev: Any
    num_train: int
    num_dev: int


def split_examples(examples: Any, fraction: float) -> Split:
    """Splits a set.

    Args:
        examples: a list of examples, whose attribute `label` has a label, labels or a score; or a
            ConllFile. Documents of a ConllFile stay whole if there are enough.
        fraction: the share of the second part.

    Raises:
        InputError: a part would be empty.
    """
    if isinstance(examples, ConllFile):
        items: Sequence[Any] = examples.sentences
        groups = _group_sentences(examples, fraction)
    else:
        items = examples
        groups = _group_by_label(examples)
    is_dev = _draw(groups, fraction, len(items))
    _keep_all_labels(items, is_dev)
    train = []
    dev = []
    for item, is_chosen in zip(items, is_dev, strict=True):
        part = dev if is_chosen else train
        part.append(item)
    if not train or not dev:
        raise InputError(
            f"--dev_fraction={fraction:g}: {len(items)} training examples are too few to split; "
            "give more, or a development set"
        )
    logging.info(
        "--dev_fraction=%g: %d examples to train on, %d to evaluate on",
        fraction,
        len(train),
        len(dev),
    )
    if isinstance(examples, ConllFile):
        train_file = examples._replace(sentences=train)
        dev_file = examples._replace(sentences=dev)
        return Split(train_file, dev_file, len(train), len(dev))
    _warn_of_equal_texts(train, dev)
    return Split(train, dev, len(train), len(dev))


def _group_by_label(examples: Sequence[Any]) -> list[list[list[int]]]:
    """Returns the numbers of the examples of each label; each example is a unit.

    An example of several labels belongs to the rarest of them, because a set of labels may occur
    once.
    """
    labels: list[Hashable] = [getattr(example, "label", None) for example in examples]
    if any(isinstance(label, tuple) for label in labels):
        labels = _choose_rarest(examples)
    scores = []
    for label in labels:
        score = parse_number(label) if isinstance(label, str) else np.nan
        scores.append(score)
    num_labels = len(set(labels))
    if num_labels > len(labels) / 2 and np.isfinite(scores).all():
        # Scores, in bins of like size.
        order = np.argsort(scores, kind="stable")
        ranks = np.argsort(order, kind="stable")
        bins = ranks * _NUM_BINS // len(labels)
        labels = bins.tolist()
    groups = collections.defaultdict(list)
    for number, label in enumerate(labels):
        groups[label].append([number])
    return list(groups.values())


def _list_labels(example: Any) -> tuple[str, ...]:
    """Returns the labels of an example of several labels; none for other examples."""
    labels = getattr(example, "label", None)
    return labels if isinstance(labels, tuple) else ()


def _choose_rarest(examples: Sequence[Any]) -> list[Hashable]:
    """Returns the rarest label of each example; None for an example without labels."""
    counts = collections.Counter(
        itertools.chain.from_iterable(_list_labels(example) for example in examples)
    )
    return [
        min(_list_labels(example), key=lambda label: (counts[label], label), default=None)
        for example in examples
    ]


def _keep_all_labels(examples: Sequence[Any], is_dev: np.ndarray):
    """Moves examples of labels that only the second part has into the first part."""
    train_labels: set[str] = set()
    for example, is_chosen in zip(examples, is_dev, strict=True):
        if not is_chosen:
            train_labels.update(_list_labels(example))
    for number in np.flatnonzero(is_dev).tolist():
        labels = _list_labels(examples[number])
        if not train_labels.issuperset(labels):
            is_dev[number] = False
            train_labels.update(labels)


def _group_sentences(source: ConllFile, fraction: float) -> list[list[list[int]]]:
    """Returns one group of the sentences, or of the documents if there are enough of them."""
    documents = collections.defaultdict(list)
    for number, sentence in enumerate(source.sentences):
        documents[sentence.document].append(number)
    if fraction * len(documents) >= 1 and len(documents) > 1:
        return [list(documents.values())]
    num_sentences = len(source.sentences)
    return [[[number] for number in range(num_sentences)]]


def _draw(groups: Sequence[Sequence[Sequence[int]]], fraction: float, size: int) -> np.ndarray:
    """Returns which items are in the second part: bool[size].

    Of each group, at least one unit stays in the first part. The remainders of the groups are
    shared out, so that the part has the right size.
    """
    random = np.random.default_rng(SEED)
    is_chosen = np.zeros(size, bool)
    carry = 0.5
    for units in groups:
        share = fraction * len(units) + carry
        count = min(int(share), len(units) - 1)
        carry = share - count
        for unit in random.permutation(len(units))[:count]:
            is_chosen[units[unit]] = True
    return is_chosen


def _warn_of_equal_texts(train: Sequence[Any], dev: Sequence[Any]):
    """Warns of texts that are in both parts, so that the metrics are too good."""
    texts = {_read_texts(example) for example in train}
    num_equal = sum(_read_texts(example) in texts for example in dev)
    if num_equal:
        errors.warn(
            "--dev_fraction: %d of %d examples to evaluate on have a text of the training, so that "
            "the metrics are better than those of new texts; remove rows with equal texts from the "
            "file",
            num_equal,
            len(dev),
        )


def _read_texts(example: Any) -> tuple:
    texts = (getattr(example, "text_a", None), getattr(example, "text_b", None))
    return texts if any(texts) else (id(example),)
