"""Reads and writes models: as a folder with a checkpoint, and as a file of Keras.

A folder has the format of the original's releases or of Hugging Face.
"""

import importlib
import os
from collections.abc import Sequence
from typing import Any, TypeVar

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
from official_bert.data.model_inputs import check_vocabulary
from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.model_dir import LABELS_NAME, PROBLEM_TYPES, VOCAB_NAME, ModelFolder, TaskRecord
from official_bert.modeling.configured_model import ConfiguredModel
from official_bert.modeling.layers import Dense
from official_bert.tokenization import FullTokenizer, write_vocabulary
from official_bert.tokenizer_config import TokenizerConfig

FORMATS = {"tf1": f"{loading.TF1_NAME}.index", "huggingface": huggingface.WEIGHTS_FILE}
_LINEAR_HEAD = ("output_weights", "output_bias")
# The weights that a checkpoint may lack besides the heads, because fine-tuning learns them.
_OPTIONAL_WEIGHTS = ("bert/pooler/", "bilstm")

Model = TypeVar("Model", bound=ConfiguredModel)


def load_model(path: str, **arguments: Any) -> keras.Model:
    """Loads a `.keras` file with models of this project.

    Keras finds their classes, and the optimizer's, only when their modules are imported. This
    function imports them and calls `keras.saving.load_model`.

    Args:
        path: the file.
        **arguments: further arguments of `keras.saving.load_model`, such as `compile`.

    Example:
        ```python
        import official_bert

        model = official_bert.BertModel.from_pretrained("quickstart_output/full/bert")
        model.save("/tmp/model.keras")
        model = official_bert.load_model("/tmp/model.keras")
        ```
    """
    modules = ["official_bert.modeling"]
    for extension in catalog.extensions():
        modules += extension.keras_modules
    if keras.backend.backend() == "tensorflow":  # the optimizer needs it
        modules.append("official_bert.optimization")
    for module in modules:
        importlib.import_module(module)
    return keras.saving.load_model(path, **arguments)


def from_pretrained(
    model_class: type[Model],
    folder: str | Checkpoint,
    *,
    ignore_mismatched_sizes: bool = False,
    **arguments: Any,
) -> Model:
    """Makes a model from a checkpoint, as `ConfiguredModel.from_pretrained` describes.

    Args:
        model_class: the class of the model.
        folder: the folder of a model, the path or the name of a checkpoint, or an opened one.
        ignore_mismatched_sizes: whether a head of another size is replaced by a new one.
        **arguments: further arguments of the class.

    Raises:
        InputError: the checkpoint does not fit the class, or a file is missing or corrupt.
    """
    checkpoint = folder if isinstance(folder, Checkpoint) else open_checkpoint(folder)
    config = loading.read_stored_config(checkpoint)
    for pretrained_arguments in catalog.hooks("pretrained_arguments"):
        arguments = pretrained_arguments(model_class, config, arguments)
    config.validate()
    if model_class.needs_num_outputs:
        arguments["num_outputs"] = arguments.get("num_outputs") or _find_num_outputs(checkpoint)
    model = model_class(config, **arguments)
    new_head = _find_mismatched_head(model, checkpoint)
    if new_head and not ignore_mismatched_sizes:
        name = new_head[0]
        stored, built = list(checkpoint.shapes[name]), list(getattr(model, name).shape)
        raise InputError(
            f"{checkpoint.path}: {name} has shape {stored} in the checkpoint and {built} in "
            "the model; leave num_outputs out, or pass ignore_mismatched_sizes=True, which "
            "draws a new head"
        )
    report = load_checkpoint(model, checkpoint, new_head)
    report.check_complete(
        (*_OPTIONAL_WEIGHTS, *names.head_weights()),
        "so that it is no whole encoder; give a checkpoint of a BERT model",
    )
    if model_class.needs_num_outputs:
        labels = _read_labels(checkpoint) or ()
        model.labels = tuple(labels) if len(labels) == model.num_outputs else None
        record = ModelFolder(checkpoint.path).task()
        model.label_type = record.settings.get("label_type") if record and not new_head else None
    return model


def save_pretrained(
    model: ConfiguredModel,
    folder: str,
    format: str,
    tokenizer: FullTokenizer | None,
    labels: Sequence[str] | None,
) -> None:
    """Writes the folder of a model, as `ConfiguredModel.save_pretrained` describes.

    Args:
        model: the model.
        folder: the folder, which is created if need be.
        format: a key of FORMATS.
        tokenizer: the tokenizer, whose files are written, too; None for none.
        labels: the labels in the order of the outputs; None for those of the model.

    Raises:
        InputError: an argument is invalid, or the folder has another checkpoint.
    """
    if format not in FORMATS:
        raise InputError(f"format={format!r}: must be one of {', '.join(FORMATS)}")
    variables = _merge_variables(model)
    shapes = {name: tuple(variable.shape) for name, variable in variables.items()}
    loading.check_free(folder, FORMATS[format], shapes)
    record = None if labels is None else _make_task_record(model, labels)
    labels = model.labels if labels is None else labels
    if format == "huggingface":
        unknown = [name for name in variables if names.to_huggingface(name) is None]
        if unknown:
            raise InputError(
                f"format={format!r}: has no name for {unknown[0]}; save the model as tf1"
            )
    if tokenizer is not None:
        check_vocabulary(tokenizer, model.config.vocab_size, "tokenizer")
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    with writing.replacing_folder(folder) as temporary:
        settings = None
        if tokenizer is not None:
            write_vocabulary(tokenizer.vocab, os.path.join(temporary, VOCAB_NAME))
            basic = tokenizer.basic_tokenizer
            settings = TokenizerConfig(
                do_lower_case=basic.do_lower_case,
                strip_accents=basic.strip_accents,
                model_max_length=model.config.max_position_embeddings,
            )
        if format == "tf1":
            loading.write(temporary, tensors, model.config)
        else:
            fields = {"problem_type": PROBLEM_TYPES[model.label_type]} if model.label_type else {}
            huggingface.write(
                temporary, tensors, model.config, model.huggingface_class, labels, fields
            )
        model_dir.write_companion_files(temporary, None, settings, record, labels)


def _make_task_record(model: ConfiguredModel, labels: Sequence[str]) -> TaskRecord:
    """Returns the record by which Predictor opens a classifier or tagger with these labels."""
    number = model.num_outputs if model.needs_num_outputs else 0
    are_texts = all(isinstance(label, str) and "\n" not in label for label in labels)
    are_distinct = len({*labels, ""}) == len(labels) + 1  # and none of them is empty
    if number < 2 or len(labels) != number or not are_texts or not are_distinct:
        raise InputError(
            f"labels: must be {number} different texts, one for each output of the model"
        )
    return model_dir.make_class_record(model.huggingface_class, model.label_type)


def _merge_variables(model: ConfiguredModel) -> dict[str, Any]:
    """Returns the variables of a model by TF1 name; its kernels contain the adapters of LoRA."""
    layers = list(model._flatten_layers())
    if any(layer.quantization_mode for layer in layers):
        raise InputError(
            "a quantized model has no weights for a checkpoint; save it before quantize, or export "
            "it with model.export"
        )
    variables = named_variables(model)
    merged_kernels = {}
    adapter_ids = set()
    for layer in layers:
        if isinstance(layer, Dense) and layer.lora_enabled:
            merged_kernels[id(layer._kernel)] = layer.merged_kernel()
            adapter_ids |= {id(layer.lora_kernel_a), id(layer.lora_kernel_b)}
    return {
        name: merged_kernels.get(id(variable), variable)
        for name, variable in variables.items()
        if id(variable) not in adapter_ids
    }


def _find_mismatched_head(model: ConfiguredModel, checkpoint: Checkpoint) -> list[str]:
    """Returns the names of a linear head's weights that have another shape in the checkpoint."""
    if not model.needs_num_outputs:
        return []
    stored = {name: checkpoint.shapes[name] for name in _LINEAR_HEAD if name in checkpoint.shapes}
    return [
        name for name, shape in stored.items() if list(shape) != list(getattr(model, name).shape)
    ]


def _read_labels(checkpoint: Checkpoint) -> list[str] | None:
    return ModelFolder(checkpoint.path).labels()


def _find_num_outputs(checkpoint: Checkpoint) -> int:
    if huggingface.LINEAR_HEAD in checkpoint.shapes:
        return checkpoint.shapes[huggingface.LINEAR_HEAD][0]
    if labels := _read_labels(checkpoint):
        return len(labels)
    raise InputError(
        f"{checkpoint.path}: has no {huggingface.LINEAR_HEAD}, and no {LABELS_NAME} is next to "
        "it; give num_outputs"
    )
