"""Compiles functions with XLA where TensorFlow is able to."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf


def has_xla() -> bool:
    """Whether XLA compiles single functions on this machine.

    TensorFlow's package for TPUs does not: it lacks XLA for the CPU, and a TPU compiles its whole program anyway.
    """
    return not tf.config.list_physical_devices("TPU_SYSTEM")


def compiled_by_xla(function: Callable) -> Callable:
    """Returns the function compiled by XLA, or as it is where XLA is missing, with the same results up to rounding.

    Args:
        function: a function of tensors that AutoGraph need not convert.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments):
        return compiled(*arguments) if has_xla() else function(*arguments)

    return call
