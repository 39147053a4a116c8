"""The seeds of a run: one number determines all random draws of all steps."""

from __future__ import annotations

import random

import keras
import tensorflow as tf


def choose_seed(given: int | None) -> int:
    """Returns the seed of the run: the given one, or one that is drawn from the operating system."""
    return random.SystemRandom().randrange(2**31) if given is None else given


def seed_initial_weights(seed: int):
    """Sets the seed of the initial weights, which are then the same under every strategy."""
    keras.utils.set_random_seed(seed % 2**32)


def step_seed(run_seed, step: tf.Tensor, replica) -> tf.Tensor:
    """Computes the dropout seed of one step on one replica.

    Args:
        run_seed: int32[], the seed of the run.
        step: int64[], the number of updates made so far.
        replica: int32[], the id of the replica in the sync group.

    Returns:
        int32[2]. It depends only on the arguments, so a resumed run draws the same masks as an uninterrupted one.
    """
    seed = tf.stack([tf.cast(run_seed, tf.int32), tf.cast(step, tf.int32)])
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(replica, tf.int32), alg="philox")


def micro_batch_seed(seed: tf.Tensor, index) -> tf.Tensor:
    """Computes the dropout seed of one micro-batch of a replica's batch.

    Args:
        seed: int32[2], the result of `step_seed`.
        index: int32[], the index of the micro-batch. The first one has the seed itself, like a batch that is whole.

    Returns:
        int32[2].
    """
    folded = tf.random.experimental.stateless_fold_in(seed, tf.cast(index, tf.int32), alg="philox")
    return tf.where(index > 0, folded, seed)
