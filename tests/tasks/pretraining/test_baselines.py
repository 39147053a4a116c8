"""The accuracy of constant predictions, counted while batches are read."""

import numpy as np
import tensorflow as tf

from official_bert.tasks.pretraining.baselines import Baselines


def batch(**features):
    return {name: tf.constant(values) for name, values in features.items()}


def test_the_most_frequent_masked_token_and_label():
    batches = [
        batch(
            masked_lm_ids=[[5, 7, 0], [5, 0, 0]],
            masked_lm_weights=[[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]],
            next_sentence_labels=[[1], [1]],
        ),
        batch(
            masked_lm_ids=[[6, 0, 0]],
            masked_lm_weights=[[1.0, 0.0, 0.0]],
            next_sentence_labels=[[0]],
        ),
    ]
    baselines = Baselines(vocab_size=8)
    # Batches that nobody takes are not counted.
    taken = baselines.count([*batches, *batches])
    assert [next(taken), next(taken)] == batches
    assert baselines.describe() == (
        "Accuracy of constant predictions: always the most frequent token 50.0%, always the more "
        "frequent next-sentence label 66.7%"
    )


def test_the_most_frequent_next_token():
    """The masked words are put back; the first token is not predicted, nor is padding."""
    features = batch(
        input_ids=[[2, 4, 1, 3, 0], [4, 4, 0, 0, 0]],
        input_mask=[[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
        masked_lm_positions=[[2, 0], [1, 0]],
        masked_lm_ids=[[4, 0], [5, 0]],
        masked_lm_weights=[[1.0, 0.0], [1.0, 0.0]],
    )
    baselines = Baselines(vocab_size=6, is_left_to_right=True)
    assert len(list(baselines.count([features]))) == 1
    np.testing.assert_array_equal(baselines._token_counts, [0, 0, 0, 1, 2, 1])
    assert baselines.describe() == (
        "Accuracy of constant predictions: always the most frequent token 50.0%"
    )


def test_records_without_labels():
    sentence = "Accuracy of constant predictions: none, without a label"
    assert Baselines(vocab_size=8).describe() == sentence
