"""Counts of tokens and operations."""

import tensorflow as tf

from official_bert.training.reporting import WorkCounter

ONE = tf.distribute.get_strategy()


class TwoReplicas:
    """Stands for a strategy of two replicas, whose values are lists of two."""

    num_replicas_in_sync = 2

    @staticmethod
    def experimental_local_results(value):
        return value


def test_stacked_batches_are_counted_by_their_steps():
    work = WorkCounter(ONE, lambda sequences, length, predictions: 1000 * sequences + 10 * length + predictions)
    drawn = {"input_ids": tf.zeros([10, 4, 32], tf.int32), "masked_lm_positions": tf.zeros([10, 4, 5], tf.int32)}
    work.add(drawn, 3)  # the other seven are never read
    assert (work.tokens, work.flops) == (3 * 4 * 32, 3 * (4000 + 320 + 5))


def test_batches_of_their_own_lengths_and_choices_on_two_replicas():
    work = WorkCounter(TwoReplicas, lambda sequences, length, predictions: 1000 * sequences + length)
    batches = [{"input_ids": [tf.zeros([1, 4, 3, length], tf.int32)] * 2} for length in (8, 24)]
    work.add(batches, 2)
    assert (work.tokens, work.flops) == (2 * 4 * 3 * (8 + 24), 2 * 24000 + 8 + 24)
