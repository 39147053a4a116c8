"""The base of all models: how a model is saved and made again, by Keras and as a folder with a checkpoint.

In: a model. Out: its configuration as a dictionary of plain values, and from such a dictionary the same model with new
weights, which `.keras` files, `keras.models.clone_model` and `to_json` use; or a folder, and a model of one.
"""

from typing import TYPE_CHECKING, Literal, Self

import keras

from official_bert.config import BertConfig
from official_bert.errors import InputError

if TYPE_CHECKING:
    from official_bert.tokenization import FullTokenizer

PACKAGE = "official_bert"  # Keras' name for the models of this project in a file


class ConfiguredModel(keras.Model):
    """A model that is determined by a BertConfig and a few further arguments of its constructor.

    Attributes:
        config: the BertConfig.
        use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
        has_open_outputs: whether the constructor has the argument `num_outputs`.
        huggingface_class: the class of transformers for a head of one linear layer.
    """

    config: BertConfig
    use_one_hot_embeddings: bool
    has_open_outputs = False
    huggingface_class = ""

    @classmethod
    def from_pretrained(cls, folder: str, **arguments) -> Self:
        """Makes a model with the configuration and the weights of a folder.

        Weights of a head, or the pooler, that the checkpoint lacks are drawn, and the log names them.

        Args:
            folder: a TF1 prefix or folder, an output_dir of a training script, a Hugging Face folder or a safetensors
                file, with bert_config.json or config.json beside it.
            **arguments: further arguments of the class, such as `use_one_hot_embeddings` and `name`. `num_outputs` of a
                classifier or tagger is that of the checkpoint's head, or the number of lines of labels.txt beside it,
                if it is not given.

        Raises:
            InputError: there is no checkpoint or configuration, they do not fit each other or the arguments, or weights
                of the encoder are missing.
        """
        from official_bert.modeling import pretrained  # late: it imports TensorFlow

        return pretrained.load(cls, folder, arguments)

    def save_pretrained(
        self,
        folder: str,
        format: Literal["tf1", "huggingface"] = "tf1",
        tokenizer: "FullTokenizer | None" = None,
    ):
        """Writes the weights and the configuration into a folder; on any failure, nothing is there.

        Args:
            folder: need not exist; it must not hold another checkpoint.
            format: "tf1" writes bert_model.ckpt and bert_config.json, as the original's releases have them;
                "huggingface" writes model.safetensors and config.json.
            tokenizer: the tokenizer of the model, whose vocabulary is written to vocab.txt; None for none.

        Raises:
            InputError: the format is unknown or cannot hold the model, or the folder cannot be written.
        """
        from official_bert.modeling import pretrained  # late: it imports TensorFlow

        pretrained.save(self, folder, format, tokenizer)

    def get_config(self) -> dict:
        """Returns the arguments of the constructor, the compute type and the numbers of the frozen layers.

        Raises:
            InputError: the configuration holds a function, which no file can hold.
        """
        if callable(self.config.hidden_act):
            raise InputError(
                "hidden_act: is a function, which cannot be saved; give the configuration an activation by name"
            )
        return {
            "config": self.config.to_dict(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "frozen_layers": [
                number for number, layer in enumerate(self._all_layers()) if not layer.trainable
            ],
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects=None):
        """Makes the model that `get_config` described, with new weights."""
        arguments = dict(config)
        frozen = arguments.pop("frozen_layers", ())
        policy = arguments.pop("dtype", None)
        arguments["config"] = BertConfig.from_dict(arguments["config"])
        # The layers of a model are made with the global policy, whatever the policy of the model is.
        current = keras.config.dtype_policy()
        if policy is not None:
            keras.config.set_dtype_policy(keras.dtype_policies.deserialize(policy))
        try:
            model = cls(**arguments)
        finally:
            keras.config.set_dtype_policy(current)
        layers = model._all_layers()
        for number in frozen:
            layers[number].trainable = False
        return model

    def _all_layers(self) -> list[keras.layers.Layer]:
        """Returns the model and all layers in it, in an order that follows from the configuration."""
        return list(self._flatten_layers())


def in_context(training: bool | None) -> dict:
    """Returns the keyword argument `training` for Keras, without which a call follows the calling context."""
    return {} if training is None else {"training": training}
