"""Counts the floating-point operations of the matrix products that every implementation of the
model makes.

Padding is included. Not counted are the heads of fine-tuning, which have less than a thousandth of
the encoder's products, embedding look-ups, also where one-hot products make them, and the
recomputation of layers.
"""

from official_bert.config import LEFT_TO_RIGHT, BertConfig

_NEXT_SENTENCE_CLASSES = 2


def forward_flops(
    config: BertConfig, num_sequences: int, length: int, num_predictions: int = 0
) -> int:
    """Returns the operations of a forward pass; a multiple-choice example has several sequences.

    `num_predictions` is the number of masked LM positions of each sequence; 0 means no heads of
    pre-training. A model that predicts from left to right predicts at all positions but the last.
    """
    layers = config.num_hidden_layers * _layer_flops(config, length)
    if num_predictions and config.direction == LEFT_TO_RIGHT:
        num_predictions = length - 1
    return num_sequences * (layers + _head_flops(config, num_predictions))


def training_flops(
    config: BertConfig,
    num_sequences: int,
    length: int,
    num_predictions: int = 0,
    num_frozen_layers: int = 0,
) -> int:
    """Returns the operations of a forward and a backward pass, three times those of
    `forward_flops`.

    Each product has two in the backward pass, for the gradients of its two factors. Frozen layers
    have none.
    """
    forward = forward_flops(config, num_sequences, length, num_predictions)
    return 3 * forward - 2 * num_sequences * num_frozen_layers * _layer_flops(config, length)


def _layer_flops(config: BertConfig, length: int) -> int:
    hidden = config.hidden_size
    projections = 4 * _product(length, hidden, hidden)  # query, key, value, output
    attention = 2 * _product(length, hidden, length)  # scores and context, all heads together
    return projections + attention + 2 * _product(length, hidden, config.intermediate_size)


def _head_flops(config: BertConfig, num_predictions: int) -> int:
    """Returns the operations of the pooler and, with predictions, of the heads of pre-training
    for one sequence.
    """
    hidden = config.hidden_size
    pooler = _product(1, hidden, hidden)
    if not num_predictions:
        return pooler
    words = _product(num_predictions, hidden, hidden) + _product(
        num_predictions, hidden, config.vocab_size
    )
    return pooler + words + _product(1, hidden, _NEXT_SENTENCE_CLASSES)


def _product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns
