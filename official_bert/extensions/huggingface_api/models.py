"""The arguments and output names of transformers' models, for our models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling.inputs import InputNames

if TYPE_CHECKING:
    from official_bert.modeling.bert import BertOutput
    from official_bert.modeling.configured_model import ConfiguredModel
    from official_bert.modeling.task_models import PretrainingOutput

_SYNONYMS = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_WITHOUT_EFFECT: dict[str, tuple] = {
    "return_dict": (None, True),
    "output_hidden_states": (None, False),
    "output_attentions": (None, False),
}
_DROPOUT_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")


def model_input_names(model_class: type) -> InputNames:
    """Return transformers' names of the inputs, and its arguments that change nothing here.

    Args:
        model_class: the class of the model.

    Returns:
        The synonyms of inputs, and the harmless values of arguments without effect.
    """
    from official_bert.modeling.bert import BertModel

    without_effect = dict(_WITHOUT_EFFECT)
    if issubclass(model_class, BertModel):  # Its output always has all layers.
        without_effect["output_hidden_states"] = (None, False, True)
    return InputNames(_SYNONYMS, without_effect)


def pretrained_arguments(
    model_class: type[ConfiguredModel], config: BertConfig, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Apply the arguments of transformers' `from_pretrained`.

    Args:
        model_class: the class of the model.
        config: the configuration, in which `hidden_dropout_prob`, `attention_probs_dropout_prob`
            and `classifier_dropout` replace the values.
        arguments: the arguments. `num_labels` is another name of `num_outputs`;
            `return_dict=True` has no effect.

    Returns:
        The arguments that remain, under our names.

    Raises:
        InputError: `num_labels` and `num_outputs` differ.
    """
    remaining = dict(arguments)
    for name in _DROPOUT_RATES:
        rate = remaining.pop(name, None)
        if rate is not None:
            setattr(config, name, rate)
    if remaining.get("return_dict") is True:
        del remaining["return_dict"]
    if model_class.needs_num_outputs and "num_labels" in remaining:
        num_labels = remaining.pop("num_labels")
        num_outputs = remaining.get("num_outputs")
        if num_outputs is None:
            remaining["num_outputs"] = num_labels
        elif num_labels not in (None, num_outputs):
            raise InputError(
                f"num_labels={num_labels}: is another name of num_outputs, which is {num_outputs}; "
                "give one"
            )
    return remaining


def encoder_output_members() -> Mapping[str, Any]:
    """Return transformers' names of the outputs of BertModel."""
    return {
        "last_hidden_state": property(lambda output: output.sequence_output),
        "pooler_output": property(lambda output: output.pooled_output),
        "hidden_states": property(_hidden_states),
        "attentions": property(_attentions),
    }


def _hidden_states(output: BertOutput) -> tuple:
    """Returns the embeddings and the outputs of all layers."""
    return (output.embedding_output, *output.all_encoder_layers)


def _attentions(output: BertOutput) -> tuple | None:
    """Returns the attention probabilities of all layers; None if the call did not compute them."""
    probabilities = output.all_attention_probabilities
    return None if probabilities is None else tuple(probabilities)


def pretraining_output_members() -> Mapping[str, Any]:
    """Return transformers' names of the outputs of BertPretrainer."""
    return {
        "prediction_logits": property(_word_logits),
        "logits": property(_word_logits),  # BertForMaskedLM has this name.
        "seq_relationship_logits": property(lambda output: output.next_sentence_logits),
    }


def _word_logits(output: PretrainingOutput) -> Any:
    return output.masked_lm_logits
