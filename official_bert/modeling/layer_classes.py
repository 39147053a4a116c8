"""Chooses the classes of the parts of an encoder layer when a model is built.

`layers.py` and `attention.py` have the plain mathematics. A subclass computes the same faster on
some processors; its module is imported only there.
"""

from typing import NamedTuple

import keras

from official_bert.modeling.attention import Attention
from official_bert.modeling.layers import Dense, ResidualOutput

_CPU_DTYPES = ("float32", "bfloat16")  # of the products that processors are fast with


class LayerClasses(NamedTuple):
    """The classes of the parts of an encoder layer."""

    dense: type[Dense] = Dense
    residual_output: type[ResidualOutput] = ResidualOutput
    attention: type[Attention] = Attention


def choose_layer_classes(compute_dtype: str) -> LayerClasses:
    """Returns the classes of layers for a type of the products and this machine.

    Args:
        compute_dtype: the type of the products, such as "bfloat16".
    """
    if compute_dtype in _CPU_DTYPES and keras.backend.backend() == "tensorflow":
        from official_bert.modeling import cpu_layers

        if cpu_layers.is_available():
            return LayerClasses(
                dense=cpu_layers.Dense,
                residual_output=cpu_layers.ResidualOutput,
                attention=cpu_layers.Attention,
            )
    return LayerClasses()
