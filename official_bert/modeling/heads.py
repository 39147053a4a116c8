"""The two pre-training heads, `cls/predictions` and `cls/seq_relationship`.

B batch   S length   P predictions per sequence   V vocabulary
"""

import keras
from keras import ops

from official_bert.modeling.layers import create_initializer, dense, float32_weight, layer_norm
from official_bert.modeling.shapes import gather_indexes


class Transform(keras.layers.Layer):
    """A dense layer with the configuration's activation, then layer norm."""

    def __init__(self, config, name: str = "transform"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape):
        self.dense = dense(self.config.hidden_size, self.config, self.config.hidden_act)
        self.dense.build(input_shape)
        self.norm = layer_norm()
        self.norm.build(input_shape)

    def call(self, x):
        return self.norm(self.dense(x))


class MaskedLmHead(keras.layers.Layer):
    """Computes logits over the vocabulary at the masked positions, with the word embeddings as output weights."""

    def __init__(self, config, name: str = "predictions"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape=None):
        self.transform = Transform(self.config)
        self.transform.build((None, self.config.hidden_size))
        self.output_bias = float32_weight(self, "output_bias", (self.config.vocab_size,))

    def call(self, sequence_output, positions, embedding_table):
        """Returns logits, float32[B*P, V], for float[B, S, hidden] and masked positions int32[B, P].

        Without positions, None, they are float32[B, S, V].
        """
        # Only the masked positions are multiplied: the product with the vocabulary is the model's most expensive one.
        x = sequence_output if positions is None else gather_indexes(sequence_output, positions)
        x = ops.cast(self.transform(x), self.compute_dtype)
        table = ops.cast(embedding_table, self.compute_dtype)
        return ops.cast(ops.matmul(x, ops.transpose(table)), "float32") + self.output_bias


class LinearHead(keras.layers.Layer):
    """A linear layer on the encoder's output; its weights are [out, in], as in the original's heads.

    It computes in float32 whatever the compute type is, which costs nothing with so few outputs.
    """

    def __init__(self, config, num_outputs: int, name: str):
        super().__init__(name=name, dtype="float32")
        self.config, self.num_outputs = config, num_outputs

    def build(self, input_shape=None):
        initializer = create_initializer(self.config.initializer_range)
        shape = (self.num_outputs, self.config.hidden_size)
        self.output_weights = self.add_weight(shape, initializer=initializer, name="output_weights")
        self.output_bias = self.add_weight((self.num_outputs,), initializer="zeros", name="output_bias")

    def call(self, x):
        """Returns logits, float32[..., num_outputs], for float[..., hidden]."""
        return ops.matmul(x, ops.transpose(self.output_weights)) + self.output_bias


class PretrainingHeads(keras.layers.Layer):
    """Both pre-training heads, whose variables are in the scope `cls` of a checkpoint."""

    def __init__(self, config, name: str = "cls"):
        super().__init__(name=name)
        self.config = config

    def build(self, input_shape=None):
        self.predictions = MaskedLmHead(self.config)
        self.predictions.build()
        # Class 0: the second segment follows the first; class 1: it is random.
        self.seq_relationship = LinearHead(self.config, 2, name="seq_relationship")
        self.seq_relationship.build()

    def call(self, encoded, positions, embedding_table):
        """Computes the logits of both heads.

        Args:
            encoded: a BertOutput.
            positions: int32[B, P], the masked positions; None for all.
            embedding_table: float[V, hidden], the word embeddings.

        Returns:
            Masked LM logits float32[B*P, V], or float32[B, S, V] without positions, and next-sentence logits
            float32[B, 2].
        """
        return (
            self.predictions(encoded.sequence_output, positions, embedding_table),
            self.seq_relationship(encoded.pooled_output),
        )
