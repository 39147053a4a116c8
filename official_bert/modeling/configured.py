"""The base of all models: what Keras needs to save a model and to make it again.

In: a model. Out: its configuration as a dictionary of plain values, and from such a dictionary the same model with new
weights. `.keras` files, `keras.models.clone_model` and `to_json` use both.
"""

import keras

from official_bert.config import BertConfig
from official_bert.errors import InputError

PACKAGE = "official_bert"  # Keras' name for the models of this project in a file


class ConfiguredModel(keras.Model):
    """A model that is determined by a BertConfig and a few further arguments of its constructor.

    Attributes:
        config: the BertConfig.
        use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
    """

    config: BertConfig
    use_one_hot_embeddings: bool

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
