"""The original 2018 BERT release on TensorFlow 2 and Keras 3.

The public names below are resolved when they are first used: importing the package loads no TensorFlow.
"""

import importlib

_PUBLIC = {
    "BertConfig": "official_bert.config",
    "BertModel": "official_bert.modeling",
    "BertPretrainer": "official_bert.modeling",
    "BertClassifier": "official_bert.modeling",
    "BertSpans": "official_bert.modeling",
    "BertTagger": "official_bert.modeling",
    "BertChoice": "official_bert.modeling",
    "FullTokenizer": "official_bert.tokenization",
    "AdamWeightDecayOptimizer": "official_bert.optimization",
    "keras_optimizer": "official_bert.optimization",
    "InputError": "official_bert.errors",
    "load_checkpoint": "official_bert.checkpoints",
    "Predictor": "official_bert.serving.predictor",
}

__all__ = sorted(_PUBLIC)
__version__ = "0.1.0"


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__():
    return [*globals(), *_PUBLIC]
