"""The original 2018 BERT release on TensorFlow 2 and Keras 3.

The public names below are resolved when they are first used: importing the package loads no
TensorFlow. Where Keras is imported, before or after, it knows our classes and loads a .keras file
with them.
"""

import importlib
import sys
from typing import TYPE_CHECKING

from official_bert.version import __version__ as __version__

if TYPE_CHECKING:  # editors and type checkers see the names here
    from official_bert.checkpoints import load_checkpoint
    from official_bert.config import BertConfig
    from official_bert.fine_tuning.classifier import ClassificationData, Classifier
    from official_bert.io.errors import InputError
    from official_bert.modeling import (
        BertChoice,
        BertClassifier,
        BertModel,
        BertPretrainer,
        BertSpans,
        BertTagger,
    )
    from official_bert.optimization import AdamWeightDecayOptimizer, keras_optimizer
    from official_bert.serving.predictor import Predictor
    from official_bert.tasks.embedding.sentence_encoder import SentenceEncoder
    from official_bert.tokenization import FullTokenizer

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
    "InputError": "official_bert.io.errors",
    "load_checkpoint": "official_bert.checkpoints",
    "Predictor": "official_bert.serving.predictor",
    "SentenceEncoder": "official_bert.tasks.embedding.sentence_encoder",
    "Classifier": "official_bert.fine_tuning.classifier",
    "ClassificationData": "official_bert.fine_tuning.classifier",
}

# Keras finds the classes in a .keras file only if their modules are loaded, and the file of a
# trained model needs both.
_SAVED_BY_KERAS = ("official_bert.modeling", "official_bert.optimization")

__all__ = [
    "AdamWeightDecayOptimizer",
    "BertChoice",
    "BertClassifier",
    "BertConfig",
    "BertModel",
    "BertPretrainer",
    "BertSpans",
    "BertTagger",
    "ClassificationData",
    "Classifier",
    "FullTokenizer",
    "InputError",
    "Predictor",
    "SentenceEncoder",
    "keras_optimizer",
    "load_checkpoint",
]


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__():
    return [*globals(), *_PUBLIC]


def _register():
    """Registers the classes that Keras saves; other backends than TensorFlow lack the optimizer."""
    if "tensorflow" in sys.modules:
        for module in _SAVED_BY_KERAS:
            importlib.import_module(module)


class _FinderOfKeras:
    """Finds Keras as the finders behind it do, and lets our classes be registered when its
    import is complete.
    """

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in behind)
        if spec := next(filter(None, found), None):
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (execute(module), _register())
        return spec


if "keras" in sys.modules:
    _register()
else:
    sys.meta_path.insert(0, _FinderOfKeras())
