"""The seeds of a run: one number from which every draw of every step follows."""

from __future__ import annotations

import random

import keras
import tensorflow as tf


def choose_seed(given: int | None) -> int:
    """The run's seed: the one that was given, else one drawn from the system."""
    return random.SystemRandom().randrange(2**31) if given is None else given


def seed_initial_weights(seed: int):
    """Makes the weights drawn from here on follow from `seed`, the same under every strategy."""
    keras.utils.set_random_seed(seed % 2**32)


def step_seed(run_seed, step: tf.Tensor, replica) -> tf.Tensor:
    """The dropout seed of one step on one replica.

    Args:
        run_seed: int32[].
        step: int64[], updates made so far.
        replica: int32[], its id in the sync group.

    Returns:
        int32[2]; no state is involved, so a resumed run goes on as if it had never stopped.
    """
    seed = tf.stack([tf.cast(run_seed, tf.int32), tf.cast(step, tf.int32)])
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(replica, tf.int32), alg="philox")
