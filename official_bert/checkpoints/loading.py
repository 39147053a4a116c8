"""Opens checkpoints of TF1 and of Hugging Face, loads them into models, and writes folders like
the original's.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import model_hub
from official_bert.checkpoints import folder, huggingface, names, tf1
from official_bert.checkpoints.weights_in_use import WeightsInUse
from official_bert.config import LEFT_TO_RIGHT, POOLER_ACTIVATION, BertConfig
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import (
    BEST_FOLDER,
    CONFIG_NAME,
    ModelFolder,
    find_nested_encoder,
    make_no_checkpoint_error,
)

if TYPE_CHECKING:
    import keras

_NAMES_SHOWN = 6
_MASKED_LM_BIAS = "cls/predictions/output_bias"
_MISSING = (
    "which would stay random; give a checkpoint that was trained on the task, or "
    "--allow_missing_weights to use random weights on purpose"
)

_CONVERT = "convert it with transformers' save_pretrained, which writes model.safetensors"
# The ending of a file with weights in another format -> what to do with it.
_OTHER_FORMATS = {
    ".h5": (
        "load it with transformers 4, BertModel.from_pretrained(folder, from_tf=True), and "
        f"{_CONVERT}"
    ),
    ".msgpack": (
        "load it with transformers 4, BertModel.from_pretrained(folder, from_flax=True), and "
        f"{_CONVERT}"
    ),
    ".keras": "load it with official_bert.load_model(path) and call save_pretrained(folder) of the "
    "model",
    ".onnx": "give the folder of the model that it was exported from",
    ".tflite": "give the folder of the model that it was exported from",
}
_PEFT_NAME = "adapter_model.safetensors"  # the weights that PEFT adds to a model
_PEFT_HINT = "load both with peft, and save_pretrained what merge_and_unload() returns"

Checkpoint = tf1.Tf1Checkpoint | huggingface.HuggingFaceCheckpoint


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of loading a checkpoint into a model. All names are TF1 names.

    Attributes:
        path: the prefix, folder or file of the checkpoint.
        matched: the variables that took their values from the checkpoint.
        missing: the variables that the checkpoint lacks, which keep their random initial values.
        unexpected: the weights that the model lacks, without optimizer slots and the step.
    """

    path: str
    matched: list[str]
    missing: list[str]
    unexpected: list[str]

    def check_complete(self, unused: Collection[str] = (), explanation: str = _MISSING) -> None:
        """Checks that no weight stays random, and that no layer of the checkpoint is left out.

        Args:
            unused: prefixes of the names of weights that may be missing, because no result depends
                on them.
            explanation: the end of the error about missing weights.

        Raises:
            InputError: a weight or a layer is missing.
        """
        missing = [name for name in self.missing if not name.startswith(tuple(unused))]
        if missing:
            raise InputError(f"{self.path}: lacks {_enumerate(missing)}, {explanation}")
        dropped = [name for name in self.unexpected if name.startswith(names.ENCODER)]
        if dropped:
            raise InputError(
                f"{self.path}: has {_enumerate(dropped)}, which the model of the config lacks; "
                "give the config of this checkpoint"
            )

    def log(self, model: keras.Model) -> None:
        """Logs the model's trainable variables and marks those of the checkpoint, as the original.

        Args:
            model: the model.
        """
        log_trainable_variables(model, self.matched)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a checkpoint of any format. Its weights are read by TF1 name, as they are used.

    Args:
        path: a TF1 prefix or folder, an output_dir, a Hugging Face folder, a safetensors file, or
            the name of a model, which is downloaded. Of an output_dir the best checkpoint is opened
            if the run saved one, else the newest.

    Raises:
        InputError: there is no checkpoint, or it is corrupt or in another format.
    """
    path = model_hub.local_path(path)
    best_folder = os.path.join(path, folder.BEST_FOLDER)
    folder.check_not_lost(best_folder)
    best = folder.latest_checkpoint(best_folder)
    if best:
        logging.info("%s keeps its best checkpoint: %s", path, best)
        return WeightsInUse(best)
    hint = _find_conversion_hint(path)
    if hint and files.exists(path) and not files.is_folder(path):
        raise InputError(f"{path}: is not in a format of BERT's checkpoints; {hint}")
    prefix = _find_prefix(path) if not huggingface.is_weights_file(path) else None
    if prefix:
        return WeightsInUse(prefix)
    if huggingface.is_huggingface(path):
        adapters = os.path.join(path, _PEFT_NAME)
        if files.exists(adapters):
            logging.warning("Ignoring %s; to use it, %s", adapters, _PEFT_HINT)
        return huggingface.HuggingFaceCheckpoint(path)
    raise _make_missing_error(path)


def _make_missing_error(path: str) -> InputError:
    """Returns the error of a path without a checkpoint that can be read."""
    file_names = sorted(files.list_folder(path)) if files.is_folder(path) else []
    for name in file_names:
        if hint := _find_conversion_hint(name):
            return InputError(
                f"{path}: its only weights are in {name}, which is not read here; {hint}"
            )
    if encoder := find_nested_encoder(path):
        return InputError(
            f"{path}: its encoder is in {encoder}; make one folder of both with official-bert "
            f"convert_checkpoint --model={path} --output_format=huggingface, and give that"
        )
    return make_no_checkpoint_error(path)


def _find_prefix(path: str) -> str | None:
    """Returns the prefix of a TF1 checkpoint; None if there is none."""
    try:
        return folder.find_prefix(path)
    except folder.CorruptList as error:
        if folder.has_index(path) or not huggingface.is_huggingface(path):
            raise
        logging.warning("Reading the weights of Hugging Face in %s; %s", path, error)
        return None


def _find_conversion_hint(name: str) -> str | None:
    """Returns how weights in a file with this name become a checkpoint; None for other files."""
    if os.path.basename(name) == _PEFT_NAME:
        return _PEFT_HINT
    return _OTHER_FORMATS.get(os.path.splitext(name)[1])


def named_variables(model: keras.layers.Layer) -> dict[str, Any]:
    """Returns the variables of a Keras model or layer by their names in a TF1 checkpoint.

    Args:
        model: the model. It may be a part of another one, and have another name than its scope in a
            checkpoint.
    """
    variables = {_find_variable_name(model, variable): variable for variable in model.weights}
    if len(variables) != len(model.weights):
        paths = sorted(variable.path for variable in model.weights)
        raise ValueError(f"variables of {model.name} share a name: {paths}")
    return variables


def _find_variable_name(model: keras.layers.Layer, variable: Any) -> str:
    scope, _, last = variable.path.rpartition("/")
    if last in names.ADAPTERS:
        kernel_name = _convert_path(model, f"{scope}/kernel")
        return kernel_name.removesuffix("kernel") + last
    return _convert_path(model, variable.path)


def _convert_path(model: keras.layers.Layer, path: str) -> str:
    """Returns the TF1 name of a Keras path."""
    inner_path = path.removeprefix(f"{model.path}/")
    if inner_path != path:
        scope = getattr(model, "checkpoint_scope", None)  # BertModel has one
        name = f"{scope}/{inner_path}" if scope else inner_path
        if names.to_huggingface(name) is not None:
            return name
    return names.from_path(path)


def load_checkpoint(
    model: keras.layers.Layer,
    source: str | Checkpoint,
    left_out: Collection[str] = (),
    is_trained_next: bool = False,
) -> LoadReport:
    """Loads the weights of a checkpoint into a model, and logs the names that only one has.

    Args:
        model: a built Keras model.
        source: an opened checkpoint, or the path of a TF1 or Hugging Face checkpoint or its folder.
        left_out: prefixes of the names of variables that keep their values.
        is_trained_next: whether a training of the model follows. A new head in place of those of
            the pre-training then needs no warning.

    Returns:
        The names of the weights that were loaded, and of those that were not.

    Raises:
        InputError: there is no checkpoint, it does not fit the model, or it has values of no valid
            model.

    Example:
        ```python
        from official_bert import BertConfig, BertModel, load_checkpoint

        folder = "quickstart_output/full/bert"
        model = BertModel(BertConfig.from_json_file(f"{folder}/bert_config.json"))
        report = load_checkpoint(model, folder)
        report.missing  # []: the checkpoint has each weight of the model
        ```
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    # The kernels of a checkpoint contain its adapters, so that new ones start. The maps of a
    # distillation are new, too, because they may lead to another teacher.
    variables = {
        name: variable
        for name, variable in named_variables(model).items()
        if not (names.is_adapter(name) or names.is_training_state(name))
    }
    report = LoadReport(
        checkpoint.path,
        matched=[name for name in variables if name in checkpoint.shapes],
        missing=[name for name in variables if name not in checkpoint.shapes],
        unexpected=[
            name
            for name in checkpoint.shapes
            if name not in variables and not names.is_training_state(name)
        ],
    )
    if not report.matched:
        raise InputError(_describe_mismatch(checkpoint))
    skipped_names = [name for name in report.matched if name.startswith(tuple(left_out))]
    if skipped_names:
        logging.info("Randomly initialised, not loaded: %s", ", ".join(skipped_names))
        matched = [name for name in report.matched if name not in skipped_names]
        report = dataclasses.replace(report, matched=matched)
    assign(checkpoint, {name: variables[name] for name in report.matched})
    noteworthy = _log_new_head(checkpoint, report) if is_trained_next else report
    _log_differences(checkpoint, noteworthy)
    return report


def _log_new_head(checkpoint: Checkpoint, report: LoadReport) -> LoadReport:
    """Logs the weights of a new head, and the heads of the pre-training that it replaces.

    Returns:
        The report without these weights.
    """
    new_names = [name for name in report.missing if not name.startswith(names.PRETRAINED)]
    if not new_names:
        return report
    logging.info("New head (%s): random weights until trained", ", ".join(new_names))
    replaced = [name for name in report.unexpected if name.startswith(names.PRETRAINED_HEADS)]
    if replaced:
        logging.info("Heads of %s that are not used: %s", checkpoint.path, ", ".join(replaced))
    return dataclasses.replace(
        report,
        missing=[name for name in report.missing if name not in new_names],
        unexpected=[name for name in report.unexpected if name not in replaced],
    )


def _log_differences(checkpoint: Checkpoint, report: LoadReport):
    """Warns about the weights that only the model or only the checkpoint has."""
    # A masked LM of transformers lacks the other heads of a pre-trained model, so that these need
    # no warning.
    expected_prefixes: tuple[str, ...] = ()
    if _MASKED_LM_BIAS in report.matched:
        expected_prefixes = getattr(checkpoint, "weights_missing_from_class", ())
    for log, is_expected in ((logging.warning, False), (logging.info, True)):
        missing = [
            name for name in report.missing if name.startswith(expected_prefixes) is is_expected
        ]
        if missing:
            log(
                "Not in %s, therefore randomly initialised: %s",
                checkpoint.path,
                ", ".join(missing),
            )
    if report.unexpected:
        logging.warning(
            "%s has weights that the model does not use: %s",
            checkpoint.path,
            ", ".join(report.unexpected),
        )


def assign(checkpoint: Checkpoint, variables: Mapping[str, Any]) -> None:
    """Assigns the values of a checkpoint to variables; to none of them if a shape or type differs.

    Args:
        checkpoint: the checkpoint.
        variables: the variables by TF1 name, all of which the checkpoint has.

    Raises:
        InputError: a shape or a type differs, or a weight has values of no valid model.
    """
    float_names = set()
    for name, variable in variables.items():
        stored_shape = list(checkpoint.shapes[name])
        model_shape = list(variable.shape)
        if stored_shape != model_shape:
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored_shape} in the checkpoint and "
                f"{model_shape} in the model; check that the config file and the labels are those "
                "of the checkpoint"
            )
        is_float = tf.as_dtype(variable.dtype).is_floating
        if is_float:
            float_names.add(name)
        tf1.check_type(checkpoint, name, is_float)
    for name, variable in variables.items():
        if name in float_names:
            variable.assign(tf1.read_weight(checkpoint, name))
        else:
            variable.assign(checkpoint.read(name))


def log_trainable_variables(model: keras.layers.Layer, initialized: Collection[str] = ()) -> None:
    """Logs the origin of the trainable variables, and with --verbosity=1 the original's list.

    Args:
        model: the model.
        initialized: the TF1 names of the variables with values from a checkpoint.
    """
    variables = {
        _find_variable_name(model, variable): variable for variable in model.trainable_variables
    }
    loaded = variables.keys() & set(initialized)
    num_random = len(variables) - len(loaded)
    origins = []
    if loaded:
        origins.append(f"{len(loaded) if num_random else 'all'} from the checkpoint")
    if num_random:
        origins.append(f"{num_random if loaded else 'all'} randomly initialised")
    num_weights = sum(math.prod(variable.shape) for variable in variables.values())
    size = f"{num_weights / 1e6:.1f} M" if num_weights >= 1e6 else f"{num_weights:,}"
    logging.info(
        "%d trainable variables with %s weights: %s",
        len(variables),
        size,
        ", ".join(origins),
    )
    logging.debug("**** Trainable Variables ****")
    for name, variable in variables.items():
        suffix = ", *INIT_FROM_CKPT*" if name in loaded else ""
        logging.debug("  name = %s:0, shape = %s%s", name, tuple(variable.shape), suffix)


def _enumerate(weight_names: list[str]) -> str:
    num_hidden = len(weight_names) - _NAMES_SHOWN
    suffix = f" and {num_hidden} more" if num_hidden > 0 else ""
    return ", ".join(weight_names[:_NAMES_SHOWN]) + suffix


def _describe_mismatch(checkpoint: Checkpoint) -> str:
    """Returns the sentence about a checkpoint without a variable of the model."""
    weight_names = [name for name in checkpoint.shapes if not names.is_training_state(name)]
    kind = f"it holds {_enumerate(weight_names)}" if weight_names else "it holds no weight"
    if any(name.startswith("_CHECKPOINTABLE_OBJECT_GRAPH") for name in weight_names):
        kind = "it is a TF2 object-based checkpoint"
    return (
        f"{checkpoint.path}: no variable of the model is in this checkpoint ({kind}); give a "
        "name-based checkpoint of a BERT model"
    )


TF1_NAME = "bert_model.ckpt"


def read_stored_config(checkpoint: Checkpoint) -> BertConfig:
    """Reads the configuration beside a checkpoint.

    Args:
        checkpoint: the checkpoint. The configuration of a best checkpoint may be one folder higher.

    Raises:
        InputError: there is no configuration, or it is invalid.
    """
    path = ModelFolder(checkpoint.path).config_file
    if path:
        config = BertConfig.from_json_file(path)
        config.validate(path)
        return config
    raise InputError(
        f"{checkpoint.path}: neither {CONFIG_NAME} nor {huggingface.CONFIG_FILE} of a model is "
        "next to it; copy the model's configuration there"
    )


def write(folder: str, tensors: Mapping[str, np.ndarray], config: BertConfig) -> None:
    """Writes the bert_config.json and the TF1 checkpoint of a model.

    Args:
        folder: the folder.
        tensors: the weights by TF1 name.
        config: the configuration.
    """
    if config.hidden_act == "gelu_erf":
        logging.warning(
            "The config says gelu_erf: the original BERT does not know it and computes the tanh "
            "form for gelu; write that into bert_config.json instead"
        )
    if config.direction == LEFT_TO_RIGHT:
        logging.warning(
            "The config says attention_direction left_to_right: the original BERT does not know "
            "it, and its tokens would attend to both sides"
        )
    has_pooler = any(name.startswith("bert/pooler/") for name in tensors)
    if has_pooler and config.pooler_activation != POOLER_ACTIVATION:
        logging.warning(
            "The config says pooler_act %s: the original BERT does not know it and computes %s "
            "there, so that its pooled output would have other values",
            config.pooler_activation,
            POOLER_ACTIVATION,
        )
    with writing.replacing(os.path.join(folder, CONFIG_NAME)) as file:
        file.write(config.to_json_string())
    tf1.write(os.path.join(folder, TF1_NAME), tensors)


def check_free(folder: str, file_name: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that a folder has no checkpoint, except an earlier one of the model to save.

    Readers would use the other checkpoint, or it would be lost.

    Args:
        folder: the folder.
        file_name: the name of the new checkpoint's file.
        shapes: TF1 name -> shape of the model's weights.

    Raises:
        InputError: the folder has another checkpoint.
    """
    if not files.is_folder(folder):
        return
    other_names = ("checkpoint", BEST_FOLDER, huggingface.SHARDS_FILE)
    names_in_folder = sorted(name.rstrip("/") for name in files.list_folder(folder))
    for name in names_in_folder:
        is_checkpoint = (
            name.endswith(".index") or huggingface.is_weights_file(name) or name in other_names
        )
        if not is_checkpoint:
            continue
        path = os.path.join(folder, name.removesuffix(".index"))
        if name != file_name or open_checkpoint(path).shapes != shapes:
            consequence = "lost" if name == file_name else "read instead"
            raise InputError(
                f"{folder}: holds another checkpoint ({name}), which would be {consequence}; name "
                "another folder"
            )
