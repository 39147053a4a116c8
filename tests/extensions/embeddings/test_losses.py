"""Tests of the losses of sentence embeddings against their formulas in numpy.

Training in micro-batches gives the same numbers as training in whole batches.
"""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.extensions.embeddings.losses import LOSSES, Matryoshka
from official_bert.extensions.embeddings.options import LOSSES as LOSS_FLAG_VALUES
from official_bert.extensions.embeddings.settings import EmbeddingSettings
from tests import fine_tuning_runs
from tests.commands.pretraining_run import checkpoint_values, scalars
from tests.shared import in_test_long
from tests.training_state import assert_close

GENERATOR = np.random.default_rng(5)
VECTORS = np.float32(GENERATOR.normal(size=(5, 3, 8)))  # [B, N, D]
ANCHORS = VECTORS[:, 0]
SECOND = VECTORS[:, 1]
THIRD = VECTORS[:, 2]
PAIRS = VECTORS[:, :2]
SCORES = np.float32([0.1, 0.9, 0.5, 0.5, 0.0])
UNIQUE_TEXT_IDS = np.int32(
    [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
        [12, 13, 14],
    ]
)
KERNEL = "bert/encoder/layer_0/output/dense/kernel"


def make_loss(name: str, **settings):
    make = LOSSES[name]
    return make(EmbeddingSettings(**settings))


def compute_loss(name: str, vectors=VECTORS, features=None, **settings) -> np.ndarray:
    loss = make_loss(name, **settings)
    features = features or {}
    value = loss(tf.constant(vectors), features)
    return value.numpy()


def close(value):
    return pytest.approx(value, rel=1e-5)


def cosine(a, b) -> float:
    squares = np.dot(a, a) * np.dot(b, b)
    norms = math.sqrt(squares)
    return float(np.dot(a, b) / norms)


def list_cosines(pairs) -> list[float]:
    return [cosine(*pair) for pair in pairs]


def ranking_loss(vectors, excluded=(), scale=20.0) -> float:
    """Compute the mean of `ranking_losses`."""
    losses = ranking_losses(vectors, excluded, scale)
    return np.mean(losses)


def ranking_losses(vectors, excluded=(), scale=20.0) -> list[float]:
    """Compute -log of the softmax share of each anchor's second text.

    The candidates of every anchor are all second texts, then all third ones.

    Args:
        vectors: [B, N, D].
        excluded: Pairs (anchor, candidate) that are no negatives.
        scale: The factor of the cosines.
    """
    columns = vectors.swapaxes(0, 1)
    anchors, *others = columns
    candidates = np.concatenate(others)
    losses = []
    for row, anchor in enumerate(anchors):
        total = 0
        for number, candidate in enumerate(candidates):
            logit = scale * cosine(anchor, candidate)
            if (row, number) not in excluded:
                total += math.exp(logit)
        positive_logit = scale * cosine(anchor, candidates[row])
        loss = math.log(total) - positive_logit
        losses.append(loss)
    return losses


def test_ranking_loss_is_that_of_the_second_text_in_the_batch():
    features = {"text_ids": UNIQUE_TEXT_IDS}

    loss = compute_loss("multiple_negatives_ranking", features=features)
    assert loss == close(ranking_loss(VECTORS))

    loss = compute_loss("multiple_negatives_ranking", features=features, scale=3.0)
    assert loss == close(ranking_loss(VECTORS, scale=3.0))


def test_symmetric_ranking_loss_adds_that_of_the_first_text():
    features = {"text_ids": UNIQUE_TEXT_IDS[:, :2]}
    swapped = PAIRS[:, ::-1]

    loss = compute_loss("multiple_negatives_ranking", PAIRS, features, symmetric=True)

    both_directions = ranking_losses(PAIRS) + ranking_losses(swapped)
    assert loss == close(np.mean(both_directions))


def test_ranking_loss_excludes_negatives_that_are_positives():
    text_ids = np.int32(
        [
            [0, 1, 2],
            [3, 4, 5],
            [6, 7, 4],  # the negative is the positive of row 1
            [9, 1, 11],  # the positive is that of row 0
            [3, 13, 14],  # the anchor is that of row 1
        ]
    )

    loss = compute_loss("multiple_negatives_ranking", features={"text_ids": text_ids})

    excluded = {
        (0, 3),
        (3, 0),
        (1, 4),
        (4, 1),
        (1, 5 + 2),
    }
    assert loss == close(ranking_loss(VECTORS, excluded))


def test_cosent_counts_pairs_in_the_wrong_order():
    cosines = list_cosines(PAIRS)
    total = 1.0
    for i in range(5):
        for j in range(5):
            if SCORES[i] < SCORES[j]:
                difference = cosines[i] - cosines[j]
                total += math.exp(20 * difference)

    loss = compute_loss("cosent", PAIRS, {"scores": SCORES})

    assert loss == close(math.log(total))


def test_cosine_similarity_loss_is_the_squared_difference():
    differences = list_cosines(PAIRS) - SCORES
    expected = differences**2
    losses = compute_loss("cosine_similarity", PAIRS, {"scores": SCORES})
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_triplet_loss_is_zero_beyond_the_margin():
    near = np.linalg.norm(ANCHORS - SECOND, axis=1)
    far = np.linalg.norm(ANCHORS - THIRD, axis=1)
    margins = near - far + 0.5
    expected = np.maximum(0.0, margins)
    assert 0 < (expected == 0).sum() < 5

    losses = compute_loss("triplet", triplet_margin=0.5)

    np.testing.assert_allclose(losses, expected, atol=1e-5)


def test_mse_loss_is_the_mean_of_squares():
    generator = np.random.default_rng(6)
    targets = np.float32(generator.normal(size=VECTORS.shape))
    losses = compute_loss("mse", features={"targets": targets})
    squares = (VECTORS - targets) ** 2
    expected = squares.mean(axis=(1, 2))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


BINARY_LABELS = np.float32([1, 0, 1, 0, 0])


def test_contrastive_loss_pushes_pairs_of_label_0_apart_up_to_a_margin():
    expected = []
    for label, pair_cosine in zip(BINARY_LABELS, list_cosines(PAIRS), strict=True):
        distance = 1 - pair_cosine
        gap = max(0.0, 0.9 - distance)
        expected.append((distance**2 if label else gap**2) / 2)
    features = {"scores": BINARY_LABELS}
    losses = compute_loss("contrastive", PAIRS, features, contrastive_margin=0.9)
    assert losses == close(expected)
    assert 0 in losses  # a pair of label 0 beyond the margin
    assert compute_loss("contrastive", PAIRS, features) == close(
        compute_loss("contrastive", PAIRS, features, contrastive_margin=0.5)
    )


def pairs_at(distances) -> np.ndarray:
    """Pairs of vectors whose distances, 1 - cosine, are given: float32[n, 2, 2]."""
    pairs = []
    for distance in distances:
        angle = math.acos(1 - distance)
        pairs.append([[2.0, 0.0], [3 * math.cos(angle), 3 * math.sin(angle)]])
    return np.float32(pairs)


@pytest.mark.parametrize(
    ("positive_distances", "negative_distances", "hard_positives", "hard_negatives"),
    [
        # Two of each: the limits are the nearest pair of label 0 and the farthest of label 1.
        ([0.1, 0.4], [0.2, 0.45, 0.9], [0.4], [0.2]),
        # One pair of label 1: the mean of label 0, 0.5, is the limit of label 0.
        ([0.1], [0.2, 0.8], [], [0.2]),
        # One pair of label 0: the mean of label 1, 0.3, is the limit of label 1.
        ([0.1, 0.5], [0.45], [0.5], [0.45]),
        # One label only.
        ([0.1, 0.5], [], [0.5], []),
        ([], [0.2, 0.4], [], [0.2]),
    ],
)
def test_online_contrastive_loss_sums_over_hard_pairs(
    positive_distances, negative_distances, hard_positives, hard_negatives
):
    vectors = pairs_at([*positive_distances, *negative_distances])
    labels = np.float32([1] * len(positive_distances) + [0] * len(negative_distances))
    expected = sum(distance**2 for distance in hard_positives)
    expected += sum((0.5 - distance) ** 2 for distance in hard_negatives)
    loss = compute_loss("online_contrastive", vectors, {"scores": labels})
    assert loss == pytest.approx(expected, rel=1e-4)


def test_angle_loss_is_cosent_of_quotients_of_complex_numbers():
    similarities = []
    for first, second in PAIRS:
        first_numbers = (first[:4] + 1j * first[4:]) / np.linalg.norm(first)
        second_numbers = (second[:4] + 1j * second[4:]) / np.linalg.norm(second)
        # A quotient times the square of its divisor is the product with its conjugate.
        products = first_numbers * second_numbers.conj()
        similarities.append(abs(products.real.sum() + products.imag.sum()))
    total = 1.0
    for row, score in enumerate(SCORES):
        for column, other_score in enumerate(SCORES):
            if score < other_score:
                total += math.exp(20 * (similarities[row] - similarities[column]))
    loss = compute_loss("angle", PAIRS, {"scores": SCORES})
    assert loss == close(math.log(total))


def gist_loss(vectors, teacher_vectors, scale=100.0) -> float:
    """Computes the loss gist of different texts with one loop for each sum."""
    size = len(vectors)
    losses = []
    for row in range(size):
        anchor, positive = (row, 0), (row, 1)
        pairs = [(anchor, (other, 1)) for other in range(size)]
        pairs += [(anchor, (other, column)) for column in range(2, 3) for other in range(size)]
        pairs += [(anchor, (other, 0)) for other in range(size) if other != row]
        pairs += [(positive, (other, 1)) for other in range(size) if other != row]
        limit = cosine(teacher_vectors[anchor], teacher_vectors[positive])
        total = 0.0
        for pair in pairs:
            teacher_cosine = cosine(*(teacher_vectors[place] for place in pair))
            if teacher_cosine <= limit or pair == (anchor, positive):
                total += math.exp(scale * cosine(*(vectors[place] for place in pair)))
        losses.append(math.log(total) - scale * cosine(vectors[anchor], vectors[positive]))
    return np.mean(losses)


def test_gist_leaves_out_what_the_teacher_takes_for_right():
    # The vectors of the teacher have another width.
    teacher_vectors = np.float32(GENERATOR.normal(size=(5, 3, 6)))
    features = {"text_ids": UNIQUE_TEXT_IDS, "targets": teacher_vectors}
    expected = gist_loss(VECTORS, teacher_vectors, scale=7.0)
    assert compute_loss("gist", features=features, scale=7.0) == close(expected)
    # Where the teacher finds each second text at once, nothing is left out.
    certain = teacher_vectors.copy()
    certain[:, 1] = certain[:, 0]
    features["targets"] = certain
    expected = gist_loss(VECTORS, certain, scale=7.0)
    assert compute_loss("gist", features=features, scale=7.0) == close(expected)
    # Shorter vectors of the model do not shorten those of the teacher.
    shortened = Matryoshka(make_loss("gist", scale=7.0), [4])
    loss = shortened(tf.constant(VECTORS), features).numpy()
    assert loss == close(gist_loss(VECTORS[..., :4], certain, scale=7.0))


def test_gist_leaves_out_equal_texts():
    vectors = VECTORS[:2, :2].copy()
    vectors[1, 1] = vectors[0, 1]
    # The teacher finds no text nearer than the right one.
    teacher_vectors = np.float32([[[1, 0], [1, 0]], [[0, 1], [0, 1]]])
    features = {"text_ids": np.int32([[0, 1], [2, 1]]), "targets": teacher_vectors}
    losses = []
    for row in range(2):
        right = math.exp(5 * cosine(vectors[row, 0], vectors[row, 1]))
        other_anchor = math.exp(5 * cosine(vectors[row, 0], vectors[1 - row, 0]))
        losses.append(-math.log(right / (right + other_anchor)))
    loss = compute_loss("gist", vectors, features, scale=5.0)
    assert loss == close(np.mean(losses))


def test_margin_mse_compares_products():
    margins = np.float32([[0.5], [1], [0], [-2], [3]])
    positive_products = (ANCHORS * SECOND).sum(axis=1)
    negative_products = (ANCHORS * THIRD).sum(axis=1)
    errors = positive_products - negative_products - margins[:, 0]
    losses = compute_loss("margin_mse", features={"margins": margins})
    np.testing.assert_allclose(losses, errors**2, rtol=1e-4)


def test_matryoshka_adds_up_the_losses_of_first_components():
    ranking = Matryoshka(make_loss("multiple_negatives_ranking"), [8, 3])
    loss = ranking(VECTORS, {"text_ids": UNIQUE_TEXT_IDS})
    whole = ranking_loss(VECTORS)
    first_components = ranking_loss(VECTORS[..., :3])
    assert float(loss) == close(whole + first_components)

    mse = Matryoshka(make_loss("mse"), [8, 2])
    differences = np.float32(range(8))
    losses = mse(VECTORS, {"targets": VECTORS + differences})
    mean_of_8 = np.mean(differences**2)
    mean_of_2 = 0.5
    expected = np.full(5, mean_of_8 + mean_of_2)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_the_flag_names_every_loss():
    assert tuple(LOSSES) == LOSS_FLAG_VALUES


RANKING_FLAGS = {
    "symmetric": True,
    "matryoshka": ["8", "4"],
    "projection": 8,
    "pooling": "cls",
}
COSENT_FLAGS = {"projection": 8, "pooling": "cls"}
# Each text is an example of simcse, so that half an epoch has as many steps as the others have.
SIMCSE_FLAGS = {"jit_compile": True, "num_train_epochs": 0.5}


@pytest.mark.parametrize(
    ("loss", "flags"),
    [
        ("multiple_negatives_ranking", RANKING_FLAGS),
        *in_test_long(
            ("cosent", COSENT_FLAGS),
            ("simcse", SIMCSE_FLAGS),
            ("cosine_similarity", {}),
        ),
    ],
)
def test_micro_batches_train_as_whole_batches(tmp_path, loss, flags):
    options = fine_tuning_runs.prepared(tmp_path, "embedding", train=24)
    if loss in ("cosent", "cosine_similarity"):
        texts = fine_tuning_runs.Texts(0)
        fine_tuning_runs.write_scored_pairs(tmp_path / "scored", 24, texts)
        scored_pairs = tmp_path / "scored.tsv"
        options = dataclasses.replace(options, train_file=str(scored_pairs))
    options = dataclasses.replace(
        options,
        do_train=True,
        train_batch_size=8,
        loss=loss,
        **flags,
    )
    whole_dir = tmp_path / "whole"
    parts_dir = tmp_path / "parts"

    fine_tuning_runs.run("embedding", options, whole_dir, num_accumulation_steps=1)
    fine_tuning_runs.run("embedding", options, parts_dir, num_accumulation_steps=4)

    whole_losses = scalars(whole_dir, "loss")
    parts_losses = scalars(parts_dir, "loss")
    assert len(parts_losses) == 3
    assert parts_losses == pytest.approx(whole_losses, abs=1e-5)

    whole = checkpoint_values(latest_checkpoint(str(whole_dir)))
    parts = checkpoint_values(latest_checkpoint(str(parts_dir)))
    assert_close(parts, whole, weights=1e-5, first_moments=1e-5)

    initial = checkpoint_values(options.init_checkpoint)
    changes = np.abs(parts[KERNEL] - initial[KERNEL])
    assert changes.max() > 1e-3, "it learns"
