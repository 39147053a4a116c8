"""Counts the operations of a training, for its share of what the devices can do.

The operations are the multiplications and additions of the matrix products that every
implementation of the model makes. Padding is included. Not counted are the heads of fine-tuning,
which have less than a thousandth of the encoder's products, embedding look-ups, also where one-hot
products make them, and the recomputation of layers.
"""

import re

import tensorflow as tf

from official_bert.config import LEFT_TO_RIGHT, BertConfig
from official_bert.options.shared import BFLOAT16, FLOAT16, FLOAT32

_NEXT_SENTENCE_CLASSES = 2
_TERA = 1e12
# A part of the name of a GPU -> the dense peak in each type, in 10^12 operations a second: half of
# the peak "with sparsity", where the data sheet has only that. float32 is TF32 on the tensor cores,
# which TensorFlow uses by default; V100 and T4 have none, so theirs is the peak of float32. The
# first name that matches counts. The sources are NVIDIA's data sheets "H200 Tensor Core GPU",
# "GH200 Grace Hopper Superchip", "H100 Tensor Core GPU" (SXM, NVL and PCIe), "A100 Tensor Core
# GPU", "L40S", "L4 Tensor Core GPU", "A10 Tensor Core GPU" (the A10G is slower: AWS's page of G5),
# "T4 Tensor Core GPU" and "V100 Tensor Core GPU" (SXM2 and PCIe).
_GPU_PEAKS = {
    "H200 NVL": {BFLOAT16: 835.5, FLOAT16: 835.5, FLOAT32: 417.5},
    "H200": {BFLOAT16: 989.4, FLOAT16: 989.4, FLOAT32: 494.7},
    "GH200": {BFLOAT16: 989.4, FLOAT16: 989.4, FLOAT32: 494.7},
    "H100 NVL": {BFLOAT16: 835.5, FLOAT16: 835.5, FLOAT32: 417.5},
    "H100 PCIe": {BFLOAT16: 756.0, FLOAT16: 756.0, FLOAT32: 378.0},
    "H100": {BFLOAT16: 989.4, FLOAT16: 989.4, FLOAT32: 494.7},
    "A100": {BFLOAT16: 312.0, FLOAT16: 312.0, FLOAT32: 156.0},
    "L40S": {BFLOAT16: 362.0, FLOAT16: 362.0, FLOAT32: 183.0},
    "L4": {BFLOAT16: 121.0, FLOAT16: 121.0, FLOAT32: 60.0},
    "A10G": {BFLOAT16: 70.0, FLOAT16: 70.0, FLOAT32: 35.0},
    "T4": {FLOAT16: 65.0, FLOAT32: 8.1},
    "V100-PCIE": {FLOAT16: 112.0, FLOAT32: 14.0},
    "V100": {FLOAT16: 125.0, FLOAT32: 15.7},
}


def find_peak(dtype: str, device_kind: str) -> float | None:
    """Returns the operations a second of a replica's device; None if they are not known.

    Args:
        dtype: the type of the matrix products.
        device_kind: CPU, GPU or TPU.
    """
    if device_kind != "GPU":
        return None
    gpu = tf.config.list_physical_devices("GPU")[0]
    name = tf.config.experimental.get_device_details(gpu).get("device_name", "")
    return peak_by_name(name, dtype)


def peak_by_name(name: str, dtype: str) -> float | None:
    """Returns the operations a second of a GPU; None if they are not known.

    Args:
        name: the name of the GPU, such as "NVIDIA H100 80GB HBM3".
        dtype: the type of the matrix products.
    """
    for part, peaks in _GPU_PEAKS.items():
        if re.search(rf"\b{part}\b", name):
            return peaks[dtype] * _TERA if dtype in peaks else None
    return None


def forward_flops(
    config: BertConfig, num_sequences: int, length: int, num_predictions: int = 0
) -> int:
    """Returns the operations of a forward pass.

    Args:
        config: the configuration of the model.
        num_sequences: the number of sequences; a multiple-choice example has several.
        length: the number of tokens of a sequence.
        num_predictions: the number of masked LM positions of a sequence; 0 means no heads of
            pre-training. A model that predicts from left to right predicts at all positions but
            the last.
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
) -> int:
    """Returns the operations of a forward and a backward pass, three times those of
    `forward_flops`.

    Each product has two in the backward pass, for the gradients of its two factors.

    Args:
        config: the configuration of the model.
        num_sequences: the number of sequences.
        length: the number of tokens of a sequence.
        num_predictions: the number of masked LM positions of a sequence.
    """
    return 3 * forward_flops(config, num_sequences, length, num_predictions)


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
