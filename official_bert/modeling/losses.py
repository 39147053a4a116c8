"""The losses of labels, and of pre-training (Devlin et al., 2019, 3.1 and appendix A.2)."""

from keras import ops

MASKED_LM_EPSILON = 1e-5  # the original's; it keeps a loss without predictions finite


def masked_lm_loss(example_loss, weights, total_weight):
    """Returns the weighted mean loss, float32[], over the predictions of a whole update, 0 if there
    is none.

    Losses and weights are float32[N]; a weight is 1.0 for a real prediction and 0.0 for padding.
    `total_weight` is the sum over all replicas, whose losses then add up to the loss of one device.
    """
    return ops.sum(example_loss * weights) / (total_weight + MASKED_LM_EPSILON)


def next_sentence_loss(example_loss, total_examples):
    """Returns the mean loss, float32[], of float32[B] over the examples of a whole update, on
    all replicas.
    """
    return ops.sum(example_loss) / total_examples


def cross_entropy(logits, labels):
    """Returns -log softmax(logits)[label], float32[N], for float[N, classes] and int32[N], each
    in [0, classes).
    """
    return _cross_entropy(ops.cast(logits, "float32"), labels)


@ops.custom_gradient
def _cross_entropy(logits, labels):
    """Computes the cross-entropy, float32[N], with one softmax that the forward and backward pass
    share.

    With as many classes as a vocabulary has, TensorFlow's sparse cross-entropy takes three times as
    long on CPU.
    """
    probabilities = ops.softmax(logits)
    # max - log max(p) is log sum exp. The largest probability is at least 1 / classes, so its
    # logarithm is finite.
    log_total = ops.max(logits, axis=-1) - ops.log(ops.max(probabilities, axis=-1))
    column = labels[:, None]

    def gradient(upstream):
        rows = ops.arange(ops.shape(labels)[0], dtype=labels.dtype)
        at_label = (_values_at(probabilities, column) - 1.0) * upstream
        scaled = probabilities * upstream[:, None]
        return ops.scatter_update(scaled, ops.stack([rows, labels], axis=1), at_label), None

    return log_total - _values_at(logits, column), gradient


def _values_at(values, column):
    """Returns the value of each row, float[N, classes], in its column, int32[N, 1]: float[N]."""
    return ops.take_along_axis(values, column, axis=-1)[:, 0]
