"""The embedding layer: word, segment and position tables, layer norm and dropout.

In: token ids and segment ids. Out: a vector for every position.
"""

import keras
from keras import ops

from official_bert.modeling.dropout import dropout
from official_bert.modeling.layers import create_initializer, layer_norm


class Embeddings(keras.layers.Layer):
    """Devlin et al. (2019), section 3: the sum of token, segment and position embeddings.

    It computes in float32: the gradient of a row of a table is a sum over all occurrences of its id. The tables have
    the type that the global policy stores weights in.

    Attributes:
        word_embeddings: float[vocab, hidden]; the masked LM head uses this table, too.
    """

    def __init__(self, config, use_one_hot_embeddings: bool = False, name: str = "embeddings"):
        super().__init__(name=name, dtype="float32")
        self.config, self.use_one_hot_embeddings = config, use_one_hot_embeddings
        self.table_dtype = keras.config.dtype_policy().variable_dtype

    def build(self, input_shape=None):
        config = self.config

        def table(name, rows):
            initializer = create_initializer(config.initializer_range)
            shape = (rows, config.hidden_size)
            # Without autocast, because only the rows that are looked up need another type.
            return self.add_weight(shape, initializer, dtype=self.table_dtype, name=name, autocast=False)

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)
        self.norm = layer_norm()
        self.norm.build((None, None, config.hidden_size))

    def call(self, input_ids, segment_ids, dropout_seed=None):
        """Returns float[B, S, hidden] for `input_ids` and `segment_ids`, each int32[B, S]."""
        if self.use_one_hot_embeddings:
            rows = ops.one_hot(input_ids, self.config.vocab_size, dtype=self.table_dtype)
            x = ops.matmul(rows, self.word_embeddings)
        else:
            x = ops.take(self.word_embeddings, input_ids, axis=0)  # [B, S, hidden]
        x = ops.cast(x, "float32")
        # One-hot, as in the original: for a segment id outside the table it adds a zero vector.
        segments = ops.one_hot(segment_ids, self.config.type_vocab_size, dtype=self.table_dtype)
        x = x + ops.cast(ops.matmul(segments, self.token_type_embeddings), "float32")
        x = x + ops.cast(self.position_embeddings[: ops.shape(input_ids)[1]], "float32")
        return dropout(self.norm(x), self.config.hidden_dropout_prob, dropout_seed, index=0)
