"""The model: BertModel, the pre-training heads and losses, and the original's public helpers."""

from official_bert.config import BertConfig
from official_bert.io.errors import no_attribute
from official_bert.modeling.attention import create_attention_mask_from_input_mask
from official_bert.modeling.bert import BertModel, BertOutput, BertOutputWithAttentions
from official_bert.modeling.layers import (
    create_initializer,
    gather_indexes,
    gelu,
    get_activation,
    get_shape_list,
)
from official_bert.modeling.task_models import (
    BertChoice,
    BertClassifier,
    BertPretrainer,
    BertSpans,
    BertTagger,
    PretrainingOutput,
    SpanOutput,
)

__all__ = [
    "BertChoice",
    "BertClassifier",
    "BertConfig",
    "BertModel",
    "BertOutput",
    "BertOutputWithAttentions",
    "BertPretrainer",
    "BertSpans",
    "BertTagger",
    "PretrainingOutput",
    "SpanOutput",
    "create_attention_mask_from_input_mask",
    "create_initializer",
    "gather_indexes",
    "gelu",
    "get_activation",
    "get_shape_list",
]


def __getattr__(name: str):
    raise no_attribute(__name__, name)  # such as layer_norm
