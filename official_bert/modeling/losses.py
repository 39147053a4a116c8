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
    return _cross_entropy(ops.cast(logits, "float32"), labels)


@ops.custom_gradient
def _cross_entropy(logits, labels):
    """Float32[N, classes] and int32[N] to float32[N], by way of one softmax that both passes share.

    A sparse cross-entropy of TensorFlow takes three times as long on CPU over a vocabulary's width.
    """
    probabilities = ops.softmax(logits)
    # max - log max(p) is log sum exp: the greatest probability is at least 1 / classes, so its log is harmless.
    log_total = ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1))
    column = labels[:, None]

    def gradient(upstream):
        rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)
        at_label = (_picked(probabilities, column) - 1.0) * upstream
        scaled = probabilities * upstream[:, None]
        return ops.scatter_update(scaled, ops.stack([rows, labels], axis=1), at_label), None

    return log_total - _picked(logits, column), gradient


def _picked(values, column):
    """Float[N, classes] and int32[N, 1] to float[N], one value of each row."""
    return ops.take_along_axis(values, column, axis=-1)[:, 0]
