"""Pairs of training texts: two texts of one label, and two texts of different labels.

Tunstall et al. (2022), Efficient Few-Shot Learning Without Prompts.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from official_bert.io.errors import InputError


class Pair(NamedTuple):
    """Two texts, and whether they have the same label."""

    first: str
    second: str
    has_same_label: bool


def check_labels(labels: Sequence[str], place: str) -> None:
    """Checks that pairs can be made of the examples with these labels.

    Args:
        labels: the label of each text.
        place: the file, for messages.

    Raises:
        InputError: there is one label only, or a label has one text only.
    """
    names, counts = np.unique(np.array(labels, object), return_counts=True)
    if len(names) < 2:
        raise InputError(f"{place}: has one label only; a classifier needs two")
    if counts.min() < 2:
        raise InputError(
            f"{place}: the label {names[counts.argmin()]!r} has one text only; give each label two "
            "or more"
        )


def draw_pairs(
    texts: Sequence[str], labels: Sequence[str], num_pairs: int, seed: int, has_negatives: bool
) -> Iterator[Pair]:
    """Yields pairs of texts; each text is the first of equally many.

    Args:
        texts: the texts.
        labels: the label of each text; `check_labels` accepts them.
        num_pairs: the number of pairs of one label that a text begins, and of those of two labels.
        seed: the seed of the draws.
        has_negatives: whether there are pairs of two labels.

    Yields:
        The pairs. A text and itself are no pair.

    Example:
        ```python
        [*draw_pairs(["a", "b"], ["x", "x"], num_pairs=1, seed=0, has_negatives=False)]
        # [Pair("a", "b", True), Pair("b", "a", True)]
        ```
    """
    generator = np.random.default_rng(seed)
    names = np.array(labels, object)
    rows = np.arange(len(texts))
    for _ in range(num_pairs):
        for row, text in enumerate(texts):
            has_label = names == names[row]
            positive = int(generator.choice(rows[has_label & (rows != row)]))
            yield Pair(text, texts[positive], True)
            if has_negatives:
                negative = int(generator.choice(rows[~has_label]))
                yield Pair(text, texts[negative], False)
