"""The activation functions and their names in bert_config.json."""

import math

from keras import ops

from official_bert.errors import InputError


@ops.custom_gradient
def gelu(x):
    """Gaussian error linear unit in its tanh form, which the released checkpoints were trained with.

        0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

    The erf form is `gelu_erf`; the two differ by up to 5e-4. Source: Hendrycks and Gimpel (2016).

    Args:
        x: float tensor of any shape.
    """
    # Products compute the polynomials, because a power costs more than all the rest. The derivative is written out
    # because it needs only x and the gate; automatic differentiation would compute and keep twice as much.
    slope = math.sqrt(2.0 / math.pi)
    gate = 0.5 + 0.5 * ops.tanh(x * (slope + (0.044715 * slope) * x * x))

    def gradient(upstream):
        inner_slope = 2.0 * slope + (6.0 * 0.044715 * slope) * x * x
        return upstream * (gate + gate * (1.0 - gate) * x * inner_slope)

    return x * gate, gradient


def gelu_erf(x):
    """Gaussian error linear unit in its exact (erf) form, which Hugging Face calls `gelu`."""
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


_BY_NAME = {"linear": None, "relu": ops.relu, "gelu": gelu, "gelu_erf": gelu_erf, "tanh": ops.tanh}


def get_activation(activation_string):
    """Returns the activation function of a given name.

    Args:
        activation_string: "relu", "gelu", "gelu_erf", "tanh" or "linear", in upper or lower case. An empty string and
            None mean linear. A value that is not a string is returned unchanged.

    Returns:
        A function of a tensor, or None for linear.

    Raises:
        InputError: the name is not one of these.
    """
    if activation_string is not None and not isinstance(activation_string, str):
        return activation_string
    name = (activation_string or "linear").lower()
    if name not in _BY_NAME:
        raise InputError(f"no activation is called {activation_string!r}; use one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
