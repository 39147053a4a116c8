"""Puts a prompt before texts that have been encoded, inside a graph."""

from collections.abc import Sequence

import tensorflow as tf


def insert_prompt(
    features: dict[str, tf.Tensor], prompt_ids: Sequence[int], longest: int
) -> dict[str, tf.Tensor]:
    """Inserts the ids of a prompt behind the [CLS] of encoded texts.

    Args:
        features: the features of the texts, int32[B, S].
        prompt_ids: the ids of the prompt, P numbers.
        longest: the number of positions of the model.

    Returns:
        The features without surplus padding, int32[B, L + P] for a longest text of L tokens.
    """
    num_tokens = len(prompt_ids)
    if not num_tokens:
        return features
    num_texts = tf.shape(features["input_ids"])[0]
    length = tf.reduce_max(tf.reduce_sum(features["input_mask"], axis=1))
    message = (
        f"with its prompt, a text may have {longest} tokens; the prompt has {num_tokens}, and "
        "these texts have"
    )
    check = tf.debugging.Assert(length + num_tokens <= longest, [message, length])
    inserted = {
        "input_ids": list(prompt_ids),
        "input_mask": [1] * num_tokens,
        "segment_ids": [0] * num_tokens,
    }
    prompted = {}
    with tf.control_dependencies([check]):
        for name, values in inserted.items():
            columns = tf.tile(tf.constant([values]), [num_texts, 1])
            first = features[name][:, :1]
            others = features[name][:, 1:length]
            prompted[name] = tf.concat([first, columns, others], axis=1)
    return prompted
