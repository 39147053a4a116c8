"""Drawn vectors and rankings, and a model of them for the evaluators of sentence-transformers."""

import types

import numpy as np
import pytest
from scipy.spatial.distance import cdist

WIDTH = 4


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def draw_vectors(seed: int, *shape: int, ties: bool = False) -> np.ndarray:
    """Draw vectors.

    Args:
        seed: The seed of the generator.
        shape: The shape of the result, whose last axis is that of a vector.
        ties: Whether many vectors have the same cosine, which float32 represents exactly.
    """
    generator = np.random.default_rng(seed)
    if not ties:
        vectors = generator.normal(size=shape)
        return np.float32(vectors)
    directions = generator.choice([-0.5, 0.5], shape)
    lengths = generator.choice([0.5, 2], (*shape[:-1], 1))
    return np.float32(directions) * lengths


def draw_row_sets(seed: int, num_sets: int, num_rows: int, max_size: int) -> list[set[int]]:
    """Draw sets of at most `max_size` numbers below `num_rows`."""
    generator = np.random.default_rng(seed)
    row_sets = []
    for _ in range(num_sets):
        size = generator.integers(max_size + 1)
        rows = generator.choice(num_rows, size, replace=False)
        row_sets.append(set(rows.tolist()))
    return row_sets


def cosine_table(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    distances = cdist(np.float64(a), np.float64(b), "cosine")
    return np.float32(1 - distances)


def mean_scores(query_scores: list[dict[str, float]]) -> dict[str, float]:
    means = {}
    for name in query_scores[0]:
        values = [scores[name] for scores in query_scores]
        means[name] = np.mean(values)
    return means


WITH_AND_WITHOUT_TIES = pytest.mark.parametrize(
    "ties",
    [
        pytest.param(False, id="no ties"),
        pytest.param(True, id="ties"),
    ],
)


def make_evaluator_model(vectors: dict[str, np.ndarray]):
    """Make what the evaluators of sentence-transformers need of a model, in float64.

    Args:
        vectors: The vectors by text.
    """
    import torch
    from sentence_transformers.util import cos_sim

    def encode(texts, convert_to_tensor=False, **_):
        rows = np.float64([vectors[text] for text in texts])
        return torch.tensor(rows) if convert_to_tensor else rows

    card = types.SimpleNamespace(set_evaluation_metrics=lambda *_: None)
    return types.SimpleNamespace(
        encode=encode,
        encode_query=encode,
        encode_document=encode,
        similarity=cos_sim,
        similarity_fn_name="cosine",
        model_card_data=card,
    )


def name_texts(kind: str) -> list[str]:
    return [f"{kind}{number:03}" for number in range(128)]


A_NAMES = name_texts("a")
B_NAMES = name_texts("b")
C_NAMES = name_texts("c")


def draw_three(ties: bool) -> list[np.ndarray]:
    """Draw the vectors of the texts `A_NAMES`, `B_NAMES` and `C_NAMES`."""
    return [draw_vectors(seed, 128, WIDTH, ties=ties) for seed in (1, 2, 3)]


def make_model_of_three(vectors: list[np.ndarray]):
    """Make a model that encodes `A_NAMES`, `B_NAMES` and `C_NAMES` as these vectors."""
    names = [*A_NAMES, *B_NAMES, *C_NAMES]
    rows = np.concatenate(vectors)
    vectors_by_name = dict(zip(names, rows, strict=True))
    return make_evaluator_model(vectors_by_name)
