"""The pre-training losses. Devlin et al. (2019), section 3.1 and appendix A.2."""

from keras import ops

MASKED_LM_EPSILON = 1e-5


def masked_lm_loss(example_loss, weights, total_weight):
    """Weighted mean over the predictions of a whole update.

    Args:
        example_loss: float32[N], the loss of each prediction.
        weights: float32[N], 1.0 for a real prediction and 0.0 for padding.
        total_weight: float32[], the sum of the weights of all examples of the update, over every replica; the
            losses that replicas compute with it add up to the loss of one device.

    Returns:
        float32[]; 0 when there is no prediction, because of the original's 1e-5 in the denominator.
    """
    return ops.sum(example_loss * weights) / (total_weight + MASKED_LM_EPSILON)


def next_sentence_loss(example_loss, total_examples):
    """Mean over the examples of a whole update.

    Args:
        example_loss: float32[B].
        total_examples: the examples of the update, over every replica.
    """
    return ops.sum(example_loss) / total_examples


def cross_entropy(logits, labels):
    """-log softmax(logits)[label], for each row.

    Args:
        logits: float[N, classes].
        labels: int32[N], each within [0, classes).

    Returns:
        float32[N].
    """
    return ops.sparse_categorical_crossentropy(labels, ops.cast(logits, "float32"), from_logits=True)
