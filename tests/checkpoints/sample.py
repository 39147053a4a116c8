"""Random weights of a small pre-training model, with the names and shapes of the original's
checkpoints.
"""

import numpy as np

from official_bert.config import BertConfig

CONFIG = BertConfig(20, 8, 2, 2, 12, max_position_embeddings=16, type_vocab_size=2)


def encoder_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        "bert/embeddings/LayerNorm/beta": (hidden,),
        "bert/embeddings/LayerNorm/gamma": (hidden,),
    }
    for i in range(config.num_hidden_layers):
        layer = f"bert/encoder/layer_{i}"
        for part in ("query", "key", "value"):
            shapes[f"{layer}/attention/self/{part}/kernel"] = (hidden, hidden)
            shapes[f"{layer}/attention/self/{part}/bias"] = (hidden,)
        shapes[f"{layer}/attention/output/dense/kernel"] = (hidden, hidden)
        shapes[f"{layer}/attention/output/dense/bias"] = (hidden,)
        shapes[f"{layer}/attention/output/LayerNorm/beta"] = (hidden,)
        shapes[f"{layer}/attention/output/LayerNorm/gamma"] = (hidden,)
        shapes[f"{layer}/intermediate/dense/kernel"] = (hidden, inner)
        shapes[f"{layer}/intermediate/dense/bias"] = (inner,)
        shapes[f"{layer}/output/dense/kernel"] = (inner, hidden)
        shapes[f"{layer}/output/dense/bias"] = (hidden,)
        shapes[f"{layer}/output/LayerNorm/beta"] = (hidden,)
        shapes[f"{layer}/output/LayerNorm/gamma"] = (hidden,)
    return shapes | {
        "bert/pooler/dense/kernel": (hidden, hidden),
        "bert/pooler/dense/bias": (hidden,),
    }


def pretraining_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    return encoder_shapes(config) | {
        "cls/predictions/transform/dense/kernel": (hidden, hidden),
        "cls/predictions/transform/dense/bias": (hidden,),
        "cls/predictions/transform/LayerNorm/beta": (hidden,),
        "cls/predictions/transform/LayerNorm/gamma": (hidden,),
        "cls/predictions/output_bias": (config.vocab_size,),
        "cls/seq_relationship/output_weights": (2, hidden),
        "cls/seq_relationship/output_bias": (2,),
    }


def random_weights(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {name: draws.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def with_training_state(weights: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """Adds Adam slots with different values, and the step."""
    slots = {f"{name}/adam_m": value + 1 for name, value in weights.items()}
    slots |= {f"{name}/adam_v": value * value for name, value in weights.items()}
    return weights | slots | {"global_step": np.int64(step)}
