"""The original 2018 BERT release on TensorFlow 2 and Keras 3.

The public names below are resolved when they are first used: importing the package loads no
TensorFlow. Keras finds our classes in a .keras file only after `official_bert.modeling`, and for a
trained model `official_bert.optimization`, have been imported; `official_bert.load_model` does so.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING

from official_bert.io.quiet_imports import quiet_imports, set_log_level
from official_bert.version import __version__ as __version__

if TYPE_CHECKING:  # editors and type checkers see the names here
    from official_bert.checkpoints import load_checkpoint
    from official_bert.config import BertConfig
    from official_bert.extensions.embeddings.sentence_encoder import SentenceEncoder
    from official_bert.extensions.late_interaction.multi_vector_encoder import MultiVectorEncoder
    from official_bert.extensions.mteb_tasks.encoder import MtebEncoder
    from official_bert.extensions.sparse.sparse_encoder import SparseEncoder
    from official_bert.fine_tuning.classifier import ClassificationData, Classifier
    from official_bert.io.errors import InputError
    from official_bert.model_io import load_model
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
    from official_bert.tokenization import FullTokenizer

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
        "MtebEncoder",
        "MultiVectorEncoder",
        "Predictor",
        "SentenceEncoder",
        "SparseEncoder",
        "keras_optimizer",
        "load_checkpoint",
        "load_model",
    ]

set_log_level()

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
    "load_model": "official_bert.model_io",
    "Predictor": "official_bert.serving.predictor",
    "Classifier": "official_bert.fine_tuning.classifier",
    "ClassificationData": "official_bert.fine_tuning.classifier",
}


def __getattr__(name: str):
    if name in _PUBLIC:
        with quiet_imports():
            return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name == "__all__":
        return sorted([*_PUBLIC, *_list_extension_names()])
    # `from official_bert import io` asks for `io` before it imports the module.
    is_module = importlib.util.find_spec(f"{__name__}.{name}") is not None
    if not is_module and name in (places := _list_extension_names()):
        module, _, attribute = places[name].partition(":")
        with quiet_imports():
            return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*globals(), *_PUBLIC, *_list_extension_names()]


def _list_extension_names() -> Mapping[str, str]:
    """Returns the names of extensions, which are read late: `import official_bert` is quick."""
    return importlib.import_module("official_bert.catalog").public_names()
