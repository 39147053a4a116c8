"""The base of all models: a Keras model that a BertConfig determines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import keras

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.features import ENCODER_INPUTS
from official_bert.io import errors
from official_bert.io.errors import InputError

if TYPE_CHECKING:
    from official_bert.checkpoints.loading import Checkpoint
    from official_bert.tokenization import FullTokenizer

PACKAGE = "official_bert"  # Keras' name for the models of this project in a file
# Reading and writing of folders is above this room, and is imported when it is used.
_FROM_PRETRAINED = "official_bert.model_io:from_pretrained"
_SAVE_PRETRAINED = "official_bert.model_io:save_pretrained"


class ConfiguredModel(keras.Model):
    """A model that is determined by a BertConfig and a few further arguments of its constructor.

    Attributes:
        config: the sizes, activation and dropout rates.
        use_one_hot_embeddings: whether word embeddings are looked up by a matrix product.
        axes: the shape of an example's token ids, as keras.Input takes it.
        needs_num_outputs: whether the constructor has the argument `num_outputs`.
        huggingface_class: the class of transformers with the same head, if the head is one linear
            layer.
        labels: the labels beside the checkpoint of `from_pretrained`, in the order of the outputs.
        label_type: the label type of that checkpoint, if it is a classifier's.
    """

    config: BertConfig
    use_one_hot_embeddings: bool
    axes: tuple[None, ...] = (None,)
    needs_num_outputs = False
    huggingface_class = ""
    labels: tuple[str, ...] | None = None
    label_type: str | None = None

    @classmethod
    def from_pretrained(cls, folder: str | Checkpoint, **arguments: Any) -> Self:
        """Makes a model with the configuration and the weights of a folder.

        Weights of a head, or the pooler, that the checkpoint lacks are drawn, and the log names
        them.

        Args:
            folder: a TF1 prefix or folder, an output_dir of a training script, a Hugging Face
                folder or a safetensors file, with bert_config.json or config.json beside it; or the
                name of a released model or of one on the Hugging Face Hub, which is downloaded; or
                an opened checkpoint.
            **arguments: further arguments of the class, such as `use_one_hot_embeddings`.
                `num_outputs` of a classifier or tagger is by default that of the checkpoint's head,
                or the number of lines of labels.txt beside it.
                `ignore_mismatched_sizes=True` draws a head whose weights have another shape in the
                checkpoint. Extensions add arguments: those of transformers are in
                extensions/huggingface_api/models.py.

        Raises:
            InputError: there is no such checkpoint or configuration, or they do not fit the class.
        """
        return catalog.load(_FROM_PRETRAINED)(cls, folder, **arguments)

    def save_pretrained(
        self,
        folder: str,
        format: Literal["tf1", "huggingface"] = "tf1",
        tokenizer: FullTokenizer | None = None,
        labels: Sequence[str] | None = None,
    ) -> None:
        """Writes the weights and the configuration into a folder; on any failure, nothing is there.

        Of layers with LoRA the sum is written, which gives the model's own outputs.

        Args:
            folder: need not exist; it must not hold another checkpoint than an earlier one of a
                model with the same weights by name and shape, which is replaced.
            format: "tf1" writes bert_model.ckpt and bert_config.json, as the original's releases
                have them; "huggingface" writes model.safetensors and config.json, and
                tokenizer.json beside a vocabulary.
            tokenizer: the tokenizer of the model, whose vocabulary is written to vocab.txt; None
                for none.
            labels: what the outputs of a classifier or tagger stand for, in their order, one label
                for a text or token. With a tokenizer, official_bert.Predictor can then answer from
                the folder. None for those that the checkpoint of `from_pretrained` has, if any.
        """
        catalog.load(_SAVE_PRETRAINED)(self, folder, format, tokenizer, labels)

    def export(
        self, filepath: Any, *arguments: Any, input_signature: Any = None, **keywords: Any
    ) -> Any:
        """Exports the model as `keras.Model.export` does; it need not have been called.

        Args:
            filepath: the folder or file of the export.
            *arguments: further arguments of Keras.
            input_signature: the inputs as Keras describes them. None means `input_ids`,
                `input_mask` and `segment_ids`, int32[B, S] (for choices [B, N, S]), and as outputs
                those of a call, by their names if there are several.
            **keywords: further arguments of Keras.
        """
        if input_signature is not None:
            return super().export(filepath, *arguments, input_signature=input_signature, **keywords)
        inputs = {name: keras.Input(self.axes, dtype="int32", name=name) for name in ENCODER_INPUTS}
        outputs = self(inputs)
        if hasattr(outputs, "_asdict"):
            outputs = {
                name: value
                for name, value in outputs._asdict().items()
                if keras.utils.is_keras_tensor(value)
            }
        keras.Model(inputs, outputs, name=self.name).export(filepath, *arguments, **keywords)

    def get_config(self) -> dict:
        """Returns the arguments of the constructor, the compute type and the frozen layers."""
        if callable(self.config.hidden_act):
            raise InputError(
                "hidden_act: is a function, which cannot be saved; give the configuration an "
                "activation by name"
            )
        # An encoder has itself no attribute `bert`.
        encoder: Any = getattr(self, "bert", self)
        # A user's subclass may have no argument `recompute_layers`, so False is left out.
        recomputing = {"recompute_layers": True} if encoder.recompute_layers else {}
        return {
            "config": self.config.to_dict(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            **recomputing,
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "frozen_layers": [
                number for number, layer in enumerate(self._flatten_layers()) if not layer.trainable
            ],
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> Self:
        """Makes the model that `get_config` described, with new weights.

        Args:
            config: the result of `get_config`.
            custom_objects: not read; Keras may pass it.
        """
        arguments = dict(config)
        frozen = arguments.pop("frozen_layers", ())
        policy = arguments.pop("dtype", None)
        arguments["config"] = BertConfig.from_dict(arguments["config"])
        # The layers of a model are made with the global policy, whatever the policy of the model
        # is.
        current = keras.config.dtype_policy()
        if policy is not None:
            keras.config.set_dtype_policy(keras.dtype_policies.deserialize(policy))
        try:
            model = cls(**arguments)
        finally:
            keras.config.set_dtype_policy(current)
        layers = list(model._flatten_layers())
        for number in frozen:
            layers[number].trainable = False
        return model


def _add_extension_methods():
    for hook in catalog.hooks("model_methods"):
        for name, function in hook().items():
            if hasattr(ConfiguredModel, name):
                raise ValueError(f"two methods of models are called {name}; rename one of them")
            setattr(ConfiguredModel, name, function)


_add_extension_methods()


def check_config(config: Any) -> None:
    """Refuses anything but a BertConfig.

    Args:
        config: the first argument of a model.

    Raises:
        TypeError: it is no BertConfig.
    """
    if not isinstance(config, BertConfig):
        raise TypeError(
            "config: must be a BertConfig, as of BertConfig.from_size('base') or "
            f"BertConfig.from_json_file(path), got {config!r:.60}"
        )


def warn_of_backend() -> None:
    """Warns if Keras has another backend than TensorFlow."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        errors.warn(
            "KERAS_BACKEND=%s: models can be used, but not trained; set KERAS_BACKEND=tensorflow",
            backend,
        )


def training_argument(training: bool | None) -> dict:
    """Returns the keyword argument `training` for a call of Keras.

    Args:
        training: whether dropout is applied; None for no argument, so that the call follows its
            context.
    """
    return {} if training is None else {"training": training}
