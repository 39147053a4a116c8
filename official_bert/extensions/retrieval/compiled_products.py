"""The products of a query with many int8 vectors: one loop that XLA compiles.

It converts the components in the registers of the processor. NumPy would write each of them to the
memory as float32 and read it again, which takes most of the time.
"""

import numpy as np
import tensorflow as tf

_ALIGNMENT = 16  # The bytes at whose multiples XLA expects arrays to start.


def multiply(query: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the products of a query with int8 vectors, float32[n].

    Args:
        query: float32[width].
        codes: int8[n, width].
    """
    with tf.device("CPU:0"):
        return _multiply(_to_tensor(codes), query).numpy()


@tf.function(jit_compile=True)
def _multiply(codes: tf.Tensor, query: tf.Tensor) -> tf.Tensor:
    return tf.linalg.matvec(tf.cast(codes, tf.float32), query)


def _to_tensor(codes: np.ndarray) -> tf.Tensor:
    """Returns a tensor that shares the memory of an array, or of a copy if it cannot share it."""
    flags = codes.flags
    is_aligned = codes.ctypes.data % _ALIGNMENT == 0
    if not (flags.writeable and flags.c_contiguous and is_aligned):
        return tf.constant(codes)
    return tf.experimental.dlpack.from_dlpack(codes.__dlpack__())
