"""The losses of sentence embeddings, beside their formulas in numpy, and what a batch in parts
changes: nothing.
"""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.extensions.embeddings.losses import LOSSES, Matryoshka
from official_bert.extensions.embeddings.options import LOSSES as NAMES
from tests import fine_tuning_runs
from tests.commands.pretraining_run import checkpoint_values, scalars
from tests.shared import in_test_long
from tests.training_state import assert_close

DRAWS = np.random.default_rng(5)
VECTORS = DRAWS.normal(size=(5, 3, 8)).astype(np.float32)  # [B, N, D]
SCORES = np.array([0.1, 0.9, 0.5, 0.5, 0.0], np.float32)
DIFFERENT = np.arange(15, dtype=np.int32).reshape(5, 3)


def computed(name: str, vectors=VECTORS, features=None, **settings) -> np.ndarray:
    loss = LOSSES[name](settings)
    return loss(tf.constant(vectors), features or {}).numpy()


def cosine(a, b) -> float:
    return float(np.dot(a, b) / math.sqrt(np.dot(a, a) * np.dot(b, b)))


def ranked(vectors, excluded=(), scale=20.0) -> list[float]:
    """-log of the share of each anchor's second text among the second texts, then the third
    ones.
    """
    candidates = [
        vectors[row, column] for column in range(1, vectors.shape[1]) for row in range(len(vectors))
    ]
    losses = []
    for row, anchor in enumerate(vectors[:, 0]):
        logits = [scale * cosine(anchor, one) for one in candidates]
        kept = [value for number, value in enumerate(logits) if (row, number) not in excluded]
        losses.append(math.log(sum(map(math.exp, kept))) - logits[row])
    return losses


def test_the_second_text_is_found_among_those_of_the_batch():
    found = computed("multiple_negatives_ranking", features={"text_ids": DIFFERENT})
    assert found == pytest.approx(np.mean(ranked(VECTORS)), rel=1e-5)
    scaled = computed("multiple_negatives_ranking", features={"text_ids": DIFFERENT}, scale=3.0)
    assert scaled == pytest.approx(np.mean(ranked(VECTORS, scale=3.0)), rel=1e-5)


def test_the_symmetric_loss_finds_the_first_text_too():
    pairs, ids = VECTORS[:, :2], DIFFERENT[:, :2]
    found = computed("multiple_negatives_ranking", pairs, {"text_ids": ids}, symmetric=True)
    assert found == pytest.approx(np.mean(ranked(pairs) + ranked(pairs[:, ::-1])), rel=1e-5)


def test_a_right_text_is_no_negative():
    """Row 3 has the second text of row 0, row 4 the first one of row 1, and row 2 that of row 1
    as a hard negative.
    """
    ids = DIFFERENT.copy()
    ids[3, 1], ids[4, 0], ids[2, 2] = ids[0, 1], ids[1, 0], ids[1, 1]
    excluded = {(0, 3), (3, 0), (1, 4), (4, 1), (1, 5 + 2)}
    found = computed("multiple_negatives_ranking", features={"text_ids": ids})
    assert found == pytest.approx(np.mean(ranked(VECTORS, excluded)), rel=1e-5)


def test_cosent_counts_pairs_in_the_wrong_order():
    cosines = [cosine(*pair) for pair in VECTORS[:, :2]]
    total = 1 + sum(
        math.exp(20 * (cosines[i] - cosines[j]))
        for i in range(5)
        for j in range(5)
        if SCORES[i] < SCORES[j]
    )
    assert computed("cosent", VECTORS[:, :2], {"scores": SCORES}) == pytest.approx(
        math.log(total), rel=1e-5
    )


def test_losses_of_single_examples():
    differences = [
        (cosine(*pair) - score) ** 2 for pair, score in zip(VECTORS[:, :2], SCORES, strict=True)
    ]
    found = computed("cosine_similarity", VECTORS[:, :2], {"scores": SCORES})
    np.testing.assert_allclose(found, differences, rtol=1e-4)

    near, far = (np.linalg.norm(VECTORS[:, 0] - VECTORS[:, column], axis=1) for column in (1, 2))
    expected = np.maximum(0.0, near - far + 0.5)
    assert 0 < (expected == 0).sum() < 5
    np.testing.assert_allclose(computed("triplet", triplet_margin=0.5), expected, atol=1e-5)

    targets = DRAWS.normal(size=VECTORS.shape).astype(np.float32)
    expected = ((VECTORS - targets) ** 2).mean(axis=(1, 2))
    np.testing.assert_allclose(computed("mse", features={"targets": targets}), expected, rtol=1e-5)


def test_matryoshka_adds_up_the_losses_of_first_components():
    loss = Matryoshka(LOSSES["multiple_negatives_ranking"]({}), [8, 3])
    expected = np.mean(ranked(VECTORS)) + np.mean(ranked(VECTORS[..., :3]))
    assert loss(VECTORS, {"text_ids": DIFFERENT}).numpy() == pytest.approx(expected, rel=1e-5)
    targets = VECTORS + np.arange(8, dtype=np.float32)
    found = Matryoshka(LOSSES["mse"]({}), [8, 2])(VECTORS, {"targets": targets}).numpy()
    np.testing.assert_allclose(found, np.full(5, np.mean(np.arange(8.0) ** 2) + 0.5), rtol=1e-5)


def test_the_flag_names_every_loss():
    assert tuple(LOSSES) == NAMES


@pytest.mark.parametrize(
    ("loss", "flags"),
    [
        (
            "multiple_negatives_ranking",
            {"symmetric": True, "matryoshka": ["8", "4"], "projection": 8, "pooling": "cls"},
        ),
        *in_test_long(
            ("cosent", {"projection": 8, "pooling": "cls"}),
            ("simcse", {"jit_compile": True, "num_train_epochs": 0.5}),  # each text is an example
            ("cosine_similarity", {}),
        ),
    ],
)
def test_micro_batches_train_as_whole_batches(tmp_path, loss, flags):
    options = fine_tuning_runs.prepared(tmp_path, "embedding", train=24)
    options = dataclasses.replace(options, do_train=True, train_batch_size=8, loss=loss, **flags)
    if loss in ("cosent", "cosine_similarity"):
        fine_tuning_runs.write_scored_pairs(tmp_path / "scored", 24, fine_tuning_runs.Texts(0))
        options = dataclasses.replace(options, train_file=str(tmp_path / "scored.tsv"))
    for name, count in (("whole", 1), ("parts", 4)):
        fine_tuning_runs.run("embedding", options, tmp_path / name, num_accumulation_steps=count)
    losses = [scalars(tmp_path / name, "loss") for name in ("parts", "whole")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert len(losses[0]) == 3
    weights = [
        checkpoint_values(latest_checkpoint(str(tmp_path / name))) for name in ("parts", "whole")
    ]
    assert_close(*weights, weights=1e-5, first_moments=1e-5)
    before = checkpoint_values(options.init_checkpoint)["bert/encoder/layer_0/output/dense/kernel"]
    assert np.abs(weights[0]["bert/encoder/layer_0/output/dense/kernel"] - before).max() > 1e-3, (
        "it learns"
    )
