"""The evaluations clustering and few_shot of run_embeddings, of texts with a label each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from official_bert.data.text_examples import QUERY, Metrics, TextRows, VectorEvaluation
from official_bert.data.text_tables import LABEL, Example
from official_bert.extensions.probing import metrics
from official_bert.io.errors import InputError

_SEED = 0  # of k-means in clustering, and of the examples of few_shot


def _read_classes(examples: Sequence[Example], rows: TextRows) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of the texts and their classes."""
    for example in examples:
        if not example.label:
            raise InputError(f"{example.where}: has no label; name its column, --label_column=...")
    return (
        np.array([rows(example.anchor, QUERY) for example in examples]),
        np.array([example.label for example in examples]),
    )


def _prepare_clustering(examples: Sequence[Example], rows: TextRows) -> Metrics:
    texts, classes = _read_classes(examples, rows)
    num_labels = len(set(classes))
    num_texts = len(set(texts))
    if not 1 < num_labels < num_texts:
        raise InputError(
            f"{examples[0].where}: {num_texts} different texts have {num_labels} labels, so "
            "clusters are always perfect; --eval_task=clustering needs several labels, and several "
            "texts of a label"
        )
    return lambda vectors: metrics.clustering(vectors[texts], classes, _SEED)


def _prepare_few_shot(examples: Sequence[Example], rows: TextRows) -> Metrics:
    """Prepares training on examples of one half of the set, and testing on the other half."""
    texts, classes = _read_classes(examples, rows)
    order = np.random.default_rng(_SEED).permutation(len(texts))
    half = len(order) // 2
    train_rows = np.sort(order[:half])
    test_rows = np.sort(order[half:])
    counts = {str(name): np.sum(classes[train_rows] == name) for name in np.unique(classes)}
    rarest_name = min(counts, key=lambda name: counts[name])
    if len(counts) < 2 or counts[rarest_name] < metrics.SHOTS[-1]:
        raise InputError(
            f"{examples[0].where}: --eval_task=few_shot draws {metrics.SHOTS[-1]} examples of each "
            f"of several labels from half of the set, which has {counts[rarest_name]} of "
            f"{rarest_name!r}; add examples, or use --eval_task=clustering"
        )

    def compute(vectors: np.ndarray) -> dict[str, float]:
        set_vectors = vectors[texts]
        return metrics.few_shot(
            metrics.LabelledVectors(set_vectors[train_rows], classes[train_rows]),
            metrics.LabelledVectors(set_vectors[test_rows], classes[test_rows]),
            seed=_SEED,
        )

    return compute


_LABEL_ONLY = frozenset({LABEL})
CLUSTERING = VectorEvaluation("eval_v_measure", _LABEL_ONLY, _prepare_clustering)
FEW_SHOT = VectorEvaluation("eval_accuracy_8", _LABEL_ONLY, _prepare_few_shot)
