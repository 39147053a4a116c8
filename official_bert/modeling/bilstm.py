"""Bidirectional LSTM layers above the encoder. Devlin et al. (2019), sections 5.1 and 5.3.

In: the vectors of the tokens and the input mask. Out: as many vectors, half of each from the LSTM that reads forwards
and half from the one that reads backwards, from the last token of the text on.
"""

import keras
from keras import ops


class BiLstm(keras.layers.Layer):
    """A stack of bidirectional LSTMs, which computes in float32; its variables are in the scope `bilstm`.

    Attributes:
        input_width: the width of its input.
        size: the width of its output.
    """

    def __init__(self, num_layers: int, size: int, name: str = "bilstm"):
        """Sets the sizes."""
        super().__init__(name=name, dtype="float32")
        self.num_layers, self.size = num_layers, size

    def build(self, input_shape):
        self.input_width = input_shape[-1]
        self.stack = [self._layer(number) for number in range(self.num_layers)]
        for layer in self.stack:
            layer.build((None, None, input_shape[-1]))
            input_shape = (*input_shape[:-1], self.size)

    def _layer(self, number: int):
        # An operation of cuDNN would tie an export to GPUs, and XLA does not compile it.
        lstm = keras.layers.LSTM(
            self.size // 2, return_sequences=True, use_cudnn=False, dtype="float32", name="lstm"
        )
        return keras.layers.Bidirectional(lstm, dtype="float32", name=f"layer_{number}")

    def call(self, x, input_mask):
        """Returns float32[B, S, size] for float[B, S, width], 0 at padding.

        Args:
            x: the vectors.
            input_mask: int32[B, S], 1 for a token and 0 for padding, on which no output of a token depends.
        """
        x, is_token = ops.cast(x, "float32"), ops.convert_to_tensor(input_mask) != 0
        for layer in self.stack:
            x = layer(x, mask=is_token)
        return ops.where(is_token[..., None], x, 0.0)
