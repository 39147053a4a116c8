"""The configuration of a model, from a bert_config.json, a Hugging Face config.json, or a named
size.

In: a dictionary, a JSON file or the name of a size. Out: a BertConfig. Code that builds a model
calls its `validate`.
"""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

from official_bert import model_types
from official_bert.io import files, reading
from official_bert.io.errors import InputError

# Turc et al. (2019), table 1, and Devlin et al. (2019), section 3: layers, hidden size, heads.
SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
# The 24 small models of Turc et al. (2019), L2_H128 to L12_H768.
SIZES |= {
    f"L{layers}_H{hidden}": (layers, hidden, hidden // 64)
    for layers in range(2, 13, 2)
    for hidden in (128, 256, 512, 768)
}
# The values of the field "attention_direction". A bidirectional model does not have the field.
BIDIRECTIONAL, LEFT_TO_RIGHT = "bidirectional", "left_to_right"
# Fields that the original release does not have.
FURTHER_FIELDS = (
    "attention_direction",
    "num_bilstm_layers",
    "classifier_dropout",
    "pooler_act",
)
# Name -> Hugging Face's name. The function is Keras' of the same name, unless modeling/layers.py
# has one. The original's gelu is the tanh form, and Hugging Face's is the erf form.
ACTIVATIONS = {
    "gelu": "gelu_new",
    "gelu_erf": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_FROM_HUGGING_FACE = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
_FROM_HUGGING_FACE |= {"gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu"}
_LAYER_NORM_EPSILON = 1e-12
POOLER_ACTIVATION = "tanh"  # that of a model whose configuration has no field "pooler_act"

_POSITIVE_FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_DROPOUT_FIELDS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


class BertConfig:
    """The configuration of a BERT model, with the original's names and defaults.

    Attributes:
        vocab_size: the number of WordPieces in the vocabulary.
        hidden_size: the width of the encoder.
        num_hidden_layers: the number of encoder layers.
        num_attention_heads: the number of attention heads of a layer, which must divide
            `hidden_size`.
        intermediate_size: the width of the feed-forward layer.
        hidden_act: a name of ACTIVATIONS, such as "gelu" (the tanh form) or "gelu_erf", or a
            callable.
        hidden_dropout_prob: the dropout rate of the embeddings and of the two outputs of a layer.
        attention_probs_dropout_prob: the dropout rate of the attention probabilities.
        max_position_embeddings: the length of the longest sequence, in tokens.
        type_vocab_size: the number of segment ids (released models have 2).
        initializer_range: the standard deviation of the initial weights.

    The dropout before the head of a fine-tuned model is 0.1, as in the original. It does not depend
    on these rates.

    Four more fields exist only in a model that differs from the original. `from_dict` and the
    files accept them:

    - `attention_direction`: "left_to_right" for a model whose tokens attend to the left only.
    - `num_bilstm_layers`: the number of bidirectional LSTM layers between the encoder and the head
      of a fine-tuned model.
    - `classifier_dropout`: Hugging Face's name for another dropout rate before that head.
    - `pooler_act`: another activation of the pooler than tanh, a name of ACTIVATIONS.

    Example:
        ```python
        from official_bert import BertConfig

        config = BertConfig.from_size("small", vocab_size=8000)
        config.hidden_size  # 512
        BertConfig.from_json_file("quickstart_output/full/bert/bert_config.json")
        ```
    """

    attention_direction: str
    num_bilstm_layers: int
    classifier_dropout: float | None
    pooler_act: str

    def __init__(  # noqa: PLR0913 - the original's arguments
        self,
        vocab_size: int,
        hidden_size: int = 768,
        num_hidden_layers: int = 12,
        num_attention_heads: int = 12,
        intermediate_size: int = 3072,
        hidden_act: str | Callable | None = "gelu",
        hidden_dropout_prob: float = 0.1,
        attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512,
        type_vocab_size: int = 16,
        initializer_range: float = 0.02,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.hidden_act = hidden_act
        self.intermediate_size = intermediate_size
        self.hidden_dropout_prob = hidden_dropout_prob
        self.attention_probs_dropout_prob = attention_probs_dropout_prob
        self.max_position_embeddings = max_position_embeddings
        self.type_vocab_size = type_vocab_size
        self.initializer_range = initializer_range

    def __repr__(self) -> str:
        fields = vars(self)
        # The constructor has no arguments for further fields.
        if fields.keys() - vars(BertConfig(self.vocab_size)).keys():
            return f"BertConfig.from_dict({fields!r})"
        arguments = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        return f"BertConfig({arguments})"

    @classmethod
    def from_size(cls, size: str, vocab_size: int = 30522, **overrides: Any) -> "BertConfig":
        """Returns the configuration of a published size, with two segment ids.

        Args:
            size: a key of SIZES, "tiny" to "large", or such as "L4_H256".
            vocab_size: the number of WordPieces in the vocabulary.
            **overrides: fields with other values, by name. `intermediate_size` is 4 * hidden_size
                by default.

        Raises:
            InputError: there is no such size.
        """
        if size not in SIZES:
            raise InputError(f"no model size is called {size!r}; choose one of {', '.join(SIZES)}")
        layers, hidden, heads = SIZES[size]
        fields: dict[str, Any] = {
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "type_vocab_size": 2,
        }
        fields |= overrides
        fields.setdefault("intermediate_size", 4 * fields["hidden_size"])
        return cls(vocab_size, **fields)

    @classmethod
    def from_dict(cls, json_object: dict) -> "BertConfig":
        """Makes a configuration from a dictionary.

        Args:
            json_object: the fields by name. Other fields have their defaults. Unknown fields are
                stored, too.

        Raises:
            InputError: a field has the name of a method.
        """
        config = cls(vocab_size=0)
        # `validate` reports the field if the dictionary lacks it, because there is no default.
        vars(config)["vocab_size"] = None
        for key, value in json_object.items():
            if hasattr(cls, key):
                raise InputError(f"{key!r} is no field of a model config; remove it")
            setattr(config, key, value)
        return config

    @classmethod
    def from_json_file(cls, json_file: str) -> "BertConfig":
        """Reads a bert_config.json, or a Hugging Face config.json, which has a `model_type`.

        The config.json of a model that extensions know, such as a DistilBERT, becomes the
        configuration of the BERT that computes the same outputs.

        Args:
            json_file: the path of the file.

        Raises:
            InputError: the file is missing or not a JSON object, or it describes a Hugging Face
                model that this project does not support.
        """
        json_object = reading.check_object(
            reading.read_json(files.check_model_file(json_file)), json_file
        )
        if "model_type" in json_object:
            json_object = _from_huggingface_fields(json_object, json_file)
        try:
            config = cls.from_dict(json_object)
            # This fails if an unknown field is nested too deep to be written again.
            config.to_dict()
        except InputError as error:
            raise InputError(f"{json_file}: {error}") from None
        except RecursionError:
            raise InputError(
                f"{json_file}: has a field that is nested too deep; remove it"
            ) from None
        return config

    def to_dict(self) -> dict:
        """Returns a copy of all fields by name."""
        return copy.deepcopy(self.__dict__)

    def to_json_string(self) -> str:
        """Returns the content of a bert_config.json."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_huggingface_dict(self) -> dict:
        """Returns the fields of a Hugging Face config.json for this model.

        Raises:
            InputError: Hugging Face has no name for the activation, or the model attends to the
                left only.
        """
        if self.direction != BIDIRECTIONAL:
            raise InputError(
                f"attention_direction: is {self.direction}, which Hugging Face's BERT would not "
                "keep; only bidirectional models can be converted"
            )
        field_names = (*vars(BertConfig(self.vocab_size)), "classifier_dropout")
        fields = {key: value for key, value in self.to_dict().items() if key in field_names}
        activation = self.hidden_act or "linear"
        if not isinstance(activation, str) or activation.lower() not in ACTIVATIONS:
            raise InputError(f"hidden_act: Hugging Face has no activation for {activation!r}")
        return fields | {
            "model_type": "bert",
            "hidden_act": ACTIVATIONS[activation.lower()],
            "layer_norm_eps": _LAYER_NORM_EPSILON,
            "position_embedding_type": "absolute",
            "pad_token_id": 0,
        }

    @property
    def direction(self) -> str:
        """The value of the field `attention_direction`; bidirectional without the field."""
        return getattr(self, "attention_direction", BIDIRECTIONAL)

    @property
    def pooler_activation(self) -> str:
        """The value of the field `pooler_act`; tanh without the field."""
        return getattr(self, "pooler_act", POOLER_ACTIVATION)

    @property
    def num_layers_on_top(self) -> int:
        """The value of the field `num_bilstm_layers`, 0 without it."""
        return getattr(self, "num_bilstm_layers", 0)

    def validate(self, source: str = "model config") -> None:
        """Checks all fields.

        Args:
            source: the name of the configuration for the error, such as a file.

        Raises:
            InputError: a field is missing or has an invalid value.
        """
        self._check_numbers(source)
        self._check_layers_on_top(source)
        if self.direction not in (BIDIRECTIONAL, LEFT_TO_RIGHT):
            raise InputError(
                f"{source}: attention_direction must be {BIDIRECTIONAL} or {LEFT_TO_RIGHT}, got "
                f"{_shorten(self.direction)}"
            )
        name = None if callable(self.hidden_act) else self.hidden_act
        if name not in (None, ""):
            _check_activation("hidden_act", name, source)
        _check_activation("pooler_act", self.pooler_activation, source)

    def _check_numbers(self, source: str):
        for name in _POSITIVE_FIELDS:
            value = getattr(self, name)
            if value is None:
                raise InputError(f"{source}: {name} is missing; add it to the config file")
            if not _is_int(value) or value <= 0:
                raise InputError(
                    f"{source}: {name} must be a positive whole number, got {_shorten(value)}"
                )
        for name in (*_DROPOUT_FIELDS, "classifier_dropout"):
            value = getattr(self, name, None)
            if value is not None and not (_is_number(value) and 0 <= value < 1):
                raise InputError(
                    f"{source}: {name} must be a number from 0 to below 1, got {_shorten(value)}"
                )
        if not _is_number(self.initializer_range) or self.initializer_range < 0:
            raise InputError(
                f"{source}: initializer_range must be 0 or positive, got "
                f"{_shorten(self.initializer_range)}"
            )
        if self.hidden_size % self.num_attention_heads:
            raise InputError(
                f"{source}: hidden_size ({self.hidden_size}) must be a multiple of "
                f"num_attention_heads ({self.num_attention_heads})"
            )

    def _check_layers_on_top(self, source: str):
        if not _is_int(self.num_layers_on_top) or self.num_layers_on_top < 0:
            raise InputError(
                f"{source}: num_bilstm_layers must be a whole number from 0, got "
                f"{_shorten(self.num_layers_on_top)}"
            )
        if self.num_layers_on_top and self.hidden_size % 2:
            raise InputError(
                f"{source}: num_bilstm_layers needs an even hidden_size, half of it for each "
                f"direction, got {self.hidden_size}"
            )


def _check_activation(field: str, name: object, source: str):
    """Refuses the name of an activation that this project does not have."""
    if not isinstance(name, str) or name.lower() not in ACTIVATIONS:
        raise InputError(
            f"{source}: {field} must be one of {', '.join(ACTIVATIONS)}, got {_shorten(name)}"
        )


def _from_huggingface_fields(json_object: dict, source: str) -> dict:
    """Converts the fields of a Hugging Face config that BertConfig has to the original's names and
    values.

    Other fields are left out: with a `model_type`, a bert_config.json would be taken for a Hugging
    Face config.
    """
    json_object = model_types.to_bert_fields(json_object)
    model_type = json_object["model_type"]
    if model_type not in (None, model_types.BERT):
        loaded_types = " or ".join(map(repr, model_types.list_names()))
        raise InputError(
            f"{source}: model_type is {_shorten(model_type)}, and only models with {loaded_types} "
            "can be loaded"
        )
    _refuse_unlike(json_object, "position_embedding_type", "absolute", source)
    _refuse_unlike(json_object, "layer_norm_eps", _LAYER_NORM_EPSILON, source)
    _refuse_unlike(json_object, "is_decoder", False, source)
    _refuse_unlike(json_object, "pruned_heads", {}, source)
    defaults = vars(BertConfig(vocab_size=30522, type_vocab_size=2, hidden_act="gelu"))
    if json_object.get("classifier_dropout") is not None:
        defaults["classifier_dropout"] = None
    if "pooler_act" in json_object:
        defaults["pooler_act"] = POOLER_ACTIVATION
    fields = {key: json_object.get(key, default) for key, default in defaults.items()}
    activation = fields["hidden_act"]
    if not isinstance(activation, str) or activation not in _FROM_HUGGING_FACE:
        raise InputError(
            f"{source}: hidden_act {_shorten(activation)} is not supported; it must be one of "
            f"{', '.join(_FROM_HUGGING_FACE)}"
        )
    return fields | {"hidden_act": _FROM_HUGGING_FACE[activation]}


def _refuse_unlike(json_object: dict, key: str, accepted_value: Any, source: str):
    """Refuses a field with another value than the only one that this project implements."""
    value = json_object.get(key)
    if value is not None and value != accepted_value:
        raise InputError(
            f"{source}: {key} is {_shorten(value)}, and only models with {accepted_value!r} can be "
            "loaded"
        )


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if _is_int(value):
        return abs(value) < 1 << 63
    return isinstance(value, float) and math.isfinite(value)


def _shorten(value: Any) -> str:
    """Returns a value for a message, truncated."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def read_config(config_file: str, max_seq_length: int) -> BertConfig:
    """Reads a configuration, and checks it together with the length of the examples.

    Args:
        config_file: the value of --bert_config_file.
        max_seq_length: the value of --max_seq_length.

    Raises:
        InputError: the file is missing or invalid, or the model has fewer positions.
    """
    config = BertConfig.from_json_file(config_file)
    config.validate(config_file)
    if max_seq_length > config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={max_seq_length}: the model of {config_file} was made for sequences "
            f"up to max_position_embeddings={config.max_position_embeddings}; give a smaller number"
        )
    return config
