"""The losses of labels, and of pre-training (Devlin et al., 2019, 3.1 and appendix A.2)."""

from collections.abc import Callable, Mapping

from keras import ops

from official_bert.modeling.layers import Tensor

# The constant of the original. It keeps a loss without predictions finite.
MASKED_LM_EPSILON = 1e-5


def masked_lm_loss(example_loss: Tensor, weights: Tensor, total_weight: Tensor) -> Tensor:
    """Returns the weighted mean loss over the predictions of a whole update, float32[].

    It is 0 if there is no prediction.

    Args:
        example_loss: the loss of each prediction, float32[N].
        weights: 1.0 for a real prediction and 0.0 for padding, float32[N].
        total_weight: the sum of the weights on all replicas, float32[]. The results of all replicas
            then add up to the loss of one device.
    """
    total_loss = ops.sum(example_loss * weights)
    return total_loss / (total_weight + MASKED_LM_EPSILON)


def next_sentence_loss(example_loss: Tensor, total_examples: Tensor) -> Tensor:
    """Returns the mean loss over the examples of a whole update, float32[].

    Args:
        example_loss: the loss of each example, float32[B].
        total_examples: the number of examples on all replicas, float32[].
    """
    return ops.sum(example_loss) / total_examples


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns -log softmax(logits)[label], float32[N].

    Args:
        logits: float[N, classes].
        labels: int32[N], each in [0, classes).
    """
    logits = ops.cast(logits, "float32")
    return _cross_entropy(logits, labels)


def stack_columns(values: Tensor) -> Tensor:
    """Returns [B * N, ...] of [B, N, ...]: the first texts of all examples, then the second ones.

    Args:
        values: a value of each of the N texts of B examples.
    """
    shape = ops.shape(values)
    further_axes = range(2, len(shape))
    columns = ops.transpose(
        values,
        (1, 0, *further_axes),
    )
    stacked_shape = (-1, *shape[2:])
    return ops.reshape(columns, stacked_shape)


def encode_each_text(encode: Callable[[dict], Tensor], features: Mapping[str, Tensor]) -> Tensor:
    """Returns the outputs for the texts of examples, [B, N, ...].

    Args:
        encode: a function from the features of texts, int32[B * N, S] by name, to their outputs,
            [B * N, ...].
        features: the features of the N texts of B examples, int32[B, N, S], by name.
    """
    shape = ops.shape(features["input_ids"])
    flat_shape = (-1, shape[2])
    outputs = encode({name: ops.reshape(ids, flat_shape) for name, ids in features.items()})
    output_shape = (*shape[:2], *ops.shape(outputs)[1:])
    return ops.reshape(outputs, output_shape)


def find_false_negatives(text_ids: Tensor) -> Tensor:
    """Returns which candidates are no negatives of an anchor, bool[B, C].

    The candidates are the second texts of all examples, then their further texts. One is no
    negative if it is equal to the second text of the anchor, or the second text of an equal anchor.
    The second text of the anchor itself is False.

    Args:
        text_ids: the texts of B examples, equal for equal texts, int32[B, N]. The first is the
            anchor.
    """
    anchors = text_ids[:, 0]
    documents = text_ids[:, 1:]
    candidates = stack_columns(documents)
    size = ops.shape(anchors)[0]
    num_candidates = ops.shape(candidates)[0]
    rows = ops.arange(size)
    columns = ops.arange(num_candidates)

    # A candidate may be equal to the positive of the anchor.
    positives = documents[:, 0]
    has_equal_text = ops.equal(
        positives[:, None],
        candidates,
    )

    # A candidate may be the positive of an equal anchor.
    candidate_anchors = ops.take(
        anchors,
        columns % size,
    )
    is_positive = columns < size
    has_equal_anchor = ops.equal(
        anchors[:, None],
        ops.where(is_positive, candidate_anchors, -1),
    )

    is_right = ops.logical_or(
        has_equal_text,
        has_equal_anchor,
    )
    is_another = ops.not_equal(
        rows[:, None],
        columns,
    )
    return ops.logical_and(
        is_right,
        is_another,
    )


@ops.custom_gradient
def _cross_entropy(logits: Tensor, labels: Tensor):
    """Computes the cross-entropy with one softmax that the forward and backward pass share.

    With as many classes as a vocabulary has, TensorFlow's sparse cross-entropy takes three times as
    long on CPU.
    """
    probabilities = ops.softmax(logits)
    # max - log max(p) is log sum exp. The largest probability is at least 1 / classes, so its
    # logarithm is finite.
    largest_logit = ops.max(logits, axis=-1)
    largest_probability = ops.max(probabilities, axis=-1)
    log_total = largest_logit - ops.log(largest_probability)
    column = labels[:, None]

    def gradient(upstream: Tensor):
        num_rows = ops.shape(labels)[0]
        rows = ops.arange(num_rows, dtype=labels.dtype)
        label_places = ops.stack([rows, labels], axis=1)
        label_probabilities = _values_at(probabilities, column)
        label_gradient = (label_probabilities - 1.0) * upstream
        scaled = probabilities * upstream[:, None]
        logit_gradient = ops.scatter_update(scaled, label_places, label_gradient)
        return logit_gradient, None

    losses = log_total - _values_at(logits, column)
    return losses, gradient


def _values_at(values: Tensor, column: Tensor) -> Tensor:
    """Returns the value of each row of float[N, classes] in its column, int32[N, 1]: float[N]."""
    picked = ops.take_along_axis(values, column, axis=-1)
    return picked[:, 0]
