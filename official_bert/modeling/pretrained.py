"""The base of all models: how a model is saved and made again, by Keras and as a folder with a
checkpoint.

The folder has the format of the original's releases or of Hugging Face.
"""

import os
from collections.abc import Sequence
from typing import Literal, Self

import keras

from official_bert import catalog, model_dir
from official_bert.checkpoints import (
    huggingface,
    load_checkpoint,
    loading,
    named_variables,
    names,
    open_checkpoint,
)
from official_bert.checkpoints.loading import Checkpoint
from official_bert.config import BertConfig
from official_bert.data.model_inputs import check_vocabulary
from official_bert.features import ENCODER_INPUTS
from official_bert.io import errors, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import LABELS_NAME, PROBLEM_TYPES, VOCAB_NAME, ModelFolder, TaskRecord
from official_bert.modeling.layers import Dense
from official_bert.tokenization import FullTokenizer, write_vocabulary
from official_bert.tokenizer_config import TokenizerConfig

PACKAGE = "official_bert"  # Keras' name for the models of this project in a file
FORMATS = {"tf1": f"{loading.TF1_NAME}.index", "huggingface": huggingface.WEIGHTS_FILE}
# Of a configuration.
_DROPOUT_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout")
_LINEAR_HEAD = ("output_weights", "output_bias")
# What may be missing, with the heads, because fine-tuning learns it.
_DRAWN = ("bert/pooler/", "bilstm")


class ConfiguredModel(keras.Model):
    """A model that is determined by a BertConfig and a few further arguments of its constructor."""

    config: BertConfig
    use_one_hot_embeddings: bool
    axes: tuple[None, ...] = (None,)  # of an example's token ids, as keras.Input takes them
    has_open_outputs = False  # whether the constructor has the argument `num_outputs`
    huggingface_class = ""  # of transformers, for a head of one linear layer
    # Beside the checkpoint of `from_pretrained`, in the order of the outputs.
    labels: tuple[str, ...] | None = None
    label_type: str | None = None  # of the checkpoint of `from_pretrained`, if it is a classifier's

    @classmethod
    def from_pretrained(cls, folder: str | Checkpoint, **arguments) -> Self:
        """Makes a model with the configuration and the weights of a folder.

        Weights of a head, or the pooler, that the checkpoint lacks are drawn, and the log names
        them.

        Args:
            folder: a TF1 prefix or folder, an output_dir of a training script, a Hugging Face
                folder or a safetensors file, with bert_config.json or config.json beside it; or the
                name of a released model or of one on the Hugging Face Hub, which is downloaded; or
                an opened checkpoint.
            **arguments: further arguments of the class, such as `use_one_hot_embeddings`.
                `num_outputs` of a classifier or tagger, also as `num_labels`, is by default that of
                the checkpoint's head, or the number of lines of labels.txt beside it. As in
                transformers, `hidden_dropout_prob`, `attention_probs_dropout_prob` and
                `classifier_dropout` replace the values of the configuration, and
                `ignore_mismatched_sizes=True` draws a head whose weights have another shape in the
                checkpoint.
        """
        checkpoint = folder if isinstance(folder, Checkpoint) else open_checkpoint(folder)
        config = loading.read_config_beside(checkpoint)
        draws_new_head = arguments.pop("ignore_mismatched_sizes", False)
        arguments = _set_dropout_rates(config, arguments)
        if cls.has_open_outputs:
            arguments["num_outputs"] = _chosen_num_outputs(arguments) or _num_outputs(checkpoint)
        model = cls(config, **arguments)
        new_head = _mismatched_head(model, checkpoint)
        if new_head and not draws_new_head:
            name = new_head[0]
            stored, built = list(checkpoint.shapes[name]), list(getattr(model, name).shape)
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored} in the checkpoint and {built} in "
                "the model; leave num_outputs out, or pass ignore_mismatched_sizes=True, which "
                "draws a new head"
            )
        report = load_checkpoint(model, checkpoint, new_head)
        report.check_complete(
            (*_DRAWN, *names.head_weights()),
            "so that it is no whole encoder; give a checkpoint of a BERT model",
        )
        if cls.has_open_outputs:
            labels = _labels(checkpoint) or ()
            model.labels = tuple(labels) if len(labels) == model.num_outputs else None
            record = ModelFolder(checkpoint.path).task()
            model.label_type = (
                record.settings.get("label_type") if record and not new_head else None
            )
        return model

    def save_pretrained(
        self,
        folder: str,
        format: Literal["tf1", "huggingface"] = "tf1",
        tokenizer: FullTokenizer | None = None,
        labels: Sequence[str] | None = None,
    ):
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
        if format not in FORMATS:
            raise InputError(f"format={format!r}: must be one of {', '.join(FORMATS)}")
        variables = _variables(self)
        loading.check_free(
            folder, FORMATS[format], {name: tuple(value.shape) for name, value in variables.items()}
        )
        record = None if labels is None else self._record_of(labels)
        labels = self.labels if labels is None else labels
        if format == "huggingface":
            unknown = [name for name in variables if names.to_huggingface(name) is None]
            if unknown:
                raise InputError(
                    f"format={format!r}: has no name for {unknown[0]}; save the model as tf1"
                )
        if tokenizer is not None:
            check_vocabulary(tokenizer, self.config.vocab_size, "tokenizer")
        tensors = {name: variable.numpy() for name, variable in variables.items()}
        with writing.replacing_folder(folder) as temporary:
            settings = None
            if tokenizer is not None:
                write_vocabulary(tokenizer.vocab, os.path.join(temporary, VOCAB_NAME))
                basic, length = tokenizer.basic_tokenizer, self.config.max_position_embeddings
                settings = TokenizerConfig(basic.do_lower_case, basic.strip_accents, length)
            if format == "tf1":
                loading.write(temporary, tensors, self.config)
            else:
                fields = {"problem_type": PROBLEM_TYPES[self.label_type]} if self.label_type else {}
                huggingface.write(
                    temporary, tensors, self.config, self.huggingface_class, labels, fields
                )
            model_dir.write_beside(temporary, None, settings, record, labels)

    def _record_of(self, labels: Sequence[str]) -> TaskRecord:
        """Returns what Predictor needs to know of a classifier or tagger with these labels."""
        number = self.num_outputs if self.has_open_outputs else 0
        if (
            number < 2
            or len(labels) != number
            or len({*labels, ""}) <= number
            or "\n" in "".join(labels)
        ):
            raise InputError(
                f"labels: must be {number} different texts, one for each output of the model"
            )
        return model_dir.class_record(self.huggingface_class, self.label_type)

    def export(self, filepath, *arguments, input_signature=None, **keywords):
        """Does what Keras' export does; the model need not have been called.

        Without a signature, the inputs are `input_ids`, `input_mask` and `segment_ids`, int32[B, S]
        (of choices [B, N, S]), and the outputs those of a call; of several outputs the tensors by
        their names.
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
        """Returns the arguments of the constructor, the compute type and the numbers of the
        frozen layers.
        """
        if callable(self.config.hidden_act):
            raise InputError(
                "hidden_act: is a function, which cannot be saved; give the configuration an "
                "activation by name"
            )
        encoder = getattr(self, "bert", self)
        return {
            "config": self.config.to_dict(),
            "use_one_hot_embeddings": self.use_one_hot_embeddings,
            # If it is on; a user's subclass may have no argument for it.
            **({"recompute_layers": True} if encoder.recompute_layers else {}),
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
        # The layers of a model are made with the global policy, whatever the policy of the model
        # is.
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


def _add_extension_methods():
    for hook in catalog.hooks("model_methods"):
        for name, function in hook().items():
            if hasattr(ConfiguredModel, name):
                raise ValueError(f"two methods of models are called {name}; rename one of them")
            setattr(ConfiguredModel, name, function)


_add_extension_methods()


def check_config(config):
    if not isinstance(config, BertConfig):
        raise TypeError(
            "config: must be a BertConfig, as of BertConfig.from_size('base') or "
            f"BertConfig.from_json_file(path), got {config!r:.60}"
        )


def warn_of_backend():
    if (backend := keras.backend.backend()) != "tensorflow":
        errors.warn(
            "KERAS_BACKEND=%s: models can be used, but not trained; set KERAS_BACKEND=tensorflow",
            backend,
        )


def in_context(training: bool | None) -> dict:
    """Returns the keyword argument `training` for Keras, without which a call follows the
    calling context.
    """
    return {} if training is None else {"training": training}


def _variables(model) -> dict:
    """Returns the variables of a model by their names in a checkpoint; what LoRA learned is a
    part of the kernels.
    """
    layers = model._all_layers()
    if any(layer.quantization_mode for layer in layers):
        raise InputError(
            "a quantized model has no weights for a checkpoint; save it before quantize, or export "
            "it with model.export"
        )
    variables = named_variables(model)
    with_lora = [layer for layer in layers if isinstance(layer, Dense) and layer.lora_enabled]
    merged = {id(layer._kernel): layer.merged_kernel() for layer in with_lora}
    left_out = {
        id(one) for layer in with_lora for one in (layer.lora_kernel_a, layer.lora_kernel_b)
    }
    return {
        name: merged.get(id(variable), variable)
        for name, variable in variables.items()
        if id(variable) not in left_out
    }


def _set_dropout_rates(config: BertConfig, arguments: dict) -> dict:
    """Moves the dropout rates among the arguments into the configuration; returns the arguments
    of the class.
    """
    others = dict(arguments)
    for name in _DROPOUT_RATES:
        rate = others.pop(name, None)
        if rate is not None:
            setattr(config, name, rate)
    config.validate()
    if others.get("return_dict") is True:  # which is what a model does
        del others["return_dict"]
    return others


def _chosen_num_outputs(arguments: dict) -> int | None:
    """Returns `num_outputs`, or `num_labels`, which is taken out of the arguments."""
    num_labels, num_outputs = arguments.pop("num_labels", None), arguments.get("num_outputs")
    if None not in (num_labels, num_outputs) and num_labels != num_outputs:
        raise InputError(
            f"num_labels={num_labels}: is another name of num_outputs, which is {num_outputs}; "
            "give one"
        )
    return num_labels if num_outputs is None else num_outputs


def _mismatched_head(model: ConfiguredModel, checkpoint: Checkpoint) -> list[str]:
    """Returns the names of a linear head's weights that have another shape in the checkpoint."""
    if not model.has_open_outputs:
        return []
    stored = {name: checkpoint.shapes[name] for name in _LINEAR_HEAD if name in checkpoint.shapes}
    return [
        name for name, shape in stored.items() if list(shape) != list(getattr(model, name).shape)
    ]


def _labels(checkpoint: Checkpoint) -> list[str] | None:
    return ModelFolder(checkpoint.path).labels()


def _num_outputs(checkpoint: Checkpoint) -> int:
    if huggingface.LINEAR_HEAD in checkpoint.shapes:
        return checkpoint.shapes[huggingface.LINEAR_HEAD][0]
    if labels := _labels(checkpoint):
        return len(labels)
    raise InputError(
        f"{checkpoint.path}: has no {huggingface.LINEAR_HEAD}, and no {LABELS_NAME} lies beside "
        "it; give num_outputs"
    )
