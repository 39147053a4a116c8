"""Describes DistilBERT (Sanh et al., 2019) as a BERT.

Its encoder is that of BERT without segments, so that a table of zeros replaces the embeddings of
segments. It has no pooler. The head of its classifiers is a dense layer with relu and a linear
layer: the pooler of a BERT whose configuration has `pooler_act` "relu", and the usual head.
"""

import re
from collections.abc import Mapping
from typing import Any

from official_bert.model_types import BERT, ModelType

_NAME = "distilbert"
_CLASS_PREFIX = "DistilBert"
_NUM_SEGMENTS = 2
_ZERO_TABLES = {"bert.embeddings.token_type_embeddings.weight": _NUM_SEGMENTS}
# Field of DistilBERT -> field of BERT and the default of transformers.
_FIELDS: Mapping[str, tuple[str, Any]] = {
    "vocab_size": ("vocab_size", 30522),
    "max_position_embeddings": ("max_position_embeddings", 512),
    "dim": ("hidden_size", 768),
    "n_layers": ("num_hidden_layers", 6),
    "n_heads": ("num_attention_heads", 12),
    "hidden_dim": ("intermediate_size", 3072),
    "activation": ("hidden_act", "gelu"),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "initializer_range": ("initializer_range", 0.02),
}
# Class of DistilBERT -> the field with the dropout before its head, and the default of
# transformers. A head that is new has the dropout of all tasks here.
_HEAD_DROPOUTS = {
    "DistilBertForSequenceClassification": ("seq_classif_dropout", 0.2),
    "DistilBertForMultipleChoice": ("seq_classif_dropout", 0.2),
    "DistilBertForTokenClassification": ("dropout", 0.1),
}
# Part of a tensor's name -> the same in the files of a BERT. A part ends at a dot.
_PARTS = {
    "distilbert": "bert",
    "transformer": "encoder",
    "q_lin": "self.query",
    "k_lin": "self.key",
    "v_lin": "self.value",
    "out_lin": "output.dense",
    "sa_layer_norm": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "output_layer_norm": "output.LayerNorm",
    "vocab_transform": "cls.predictions.transform.dense",
    "vocab_layer_norm": "cls.predictions.transform.LayerNorm",
    "vocab_projector.weight": "cls.predictions.decoder.weight",
    "vocab_projector.bias": "cls.predictions.bias",
    "pre_classifier": "bert.pooler.dense",
}
_PATTERN = re.compile(rf"(?<![^.])({'|'.join(map(re.escape, _PARTS))})(?![^.])")


def model_types() -> Mapping[str, ModelType]:
    """Return the model type of DistilBERT by its name in config.json."""
    return {_NAME: ModelType(read_fields, rename_weight, _ZERO_TABLES)}


def read_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the config.json of a BERT that computes the same outputs.

    Args:
        fields: the content of the config.json of a DistilBERT.
    """
    bert_fields = {name: value for name, value in fields.items() if name not in _FIELDS}
    for name, (bert_name, default) in _FIELDS.items():
        bert_fields[bert_name] = fields.get(name, default)
    bert_fields["model_type"] = BERT
    bert_fields["type_vocab_size"] = _NUM_SEGMENTS
    bert_fields["pooler_act"] = "relu"
    classes = fields.get("architectures")
    if not isinstance(classes, list):
        return bert_fields
    for name in classes:
        if isinstance(name, str) and name in _HEAD_DROPOUTS:
            field_name, default = _HEAD_DROPOUTS[name]
            bert_fields["classifier_dropout"] = fields.get(field_name, default)
    bert_fields["architectures"] = [
        re.sub(f"^{_CLASS_PREFIX}", "Bert", str(name)) for name in classes
    ]
    return bert_fields


def rename_weight(name: str) -> str:
    """Return the name of a tensor in the files of a BERT.

    Args:
        name: its name in the files of a DistilBERT.
    """
    return _PATTERN.sub(lambda match: _PARTS[match[0]], name)
