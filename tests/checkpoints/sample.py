"""Random weights of a small pre-training model, with the names and shapes of the original's
checkpoints.
"""

import numpy as np

from official_bert.config import BertConfig

CONFIG = BertConfig(
    vocab_size=20,
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
    type_vocab_size=2,
)


def encoder_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    vector = (hidden,)
    square = (hidden, hidden)
    shapes = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        "bert/embeddings/LayerNorm/beta": vector,
        "bert/embeddings/LayerNorm/gamma": vector,
    }
    for i in range(config.num_hidden_layers):
        for name, shape in layer_shapes(config).items():
            shapes[f"bert/encoder/layer_{i}/{name}"] = shape
    return shapes | {
        "bert/pooler/dense/kernel": square,
        "bert/pooler/dense/bias": vector,
    }


def layer_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    inner = config.intermediate_size
    vector = (hidden,)
    square = (hidden, hidden)
    return {
        "attention/self/query/kernel": square,
        "attention/self/query/bias": vector,
        "attention/self/key/kernel": square,
        "attention/self/key/bias": vector,
        "attention/self/value/kernel": square,
        "attention/self/value/bias": vector,
        "attention/output/dense/kernel": square,
        "attention/output/dense/bias": vector,
        "attention/output/LayerNorm/beta": vector,
        "attention/output/LayerNorm/gamma": vector,
        "intermediate/dense/kernel": (hidden, inner),
        "intermediate/dense/bias": (inner,),
        "output/dense/kernel": (inner, hidden),
        "output/dense/bias": vector,
        "output/LayerNorm/beta": vector,
        "output/LayerNorm/gamma": vector,
    }


def pretraining_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    vector = (hidden,)
    return encoder_shapes(config) | {
        "cls/predictions/transform/dense/kernel": (hidden, hidden),
        "cls/predictions/transform/dense/bias": vector,
        "cls/predictions/transform/LayerNorm/beta": vector,
        "cls/predictions/transform/LayerNorm/gamma": vector,
        "cls/predictions/output_bias": (config.vocab_size,),
        "cls/seq_relationship/output_weights": (2, hidden),
        "cls/seq_relationship/output_bias": (2,),
    }


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {name: draws.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def with_training_state(weights: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """Adds Adam slots with different values, and the step."""
    first_moments = {f"{name}/adam_m": value + 1 for name, value in weights.items()}
    second_moments = {f"{name}/adam_v": value * value for name, value in weights.items()}
    return {
        **weights,
        **first_moments,
        **second_moments,
        "global_step": np.int64(step),
    }
