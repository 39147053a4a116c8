"""Opens checkpoints of TF1 and of Hugging Face, loads them into models, and writes folders like
the original's.
"""

import dataclasses
import math
import os
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import model_hub
from official_bert.checkpoints import folder, huggingface, names, tf1
from official_bert.checkpoints.in_use import WeightsInUse
from official_bert.config import LEFT_TO_RIGHT, BertConfig
from official_bert.io import files, writing
from official_bert.io.errors import InputError
from official_bert.model_dir import BEST_FOLDER, CONFIG_NAME, ModelFolder, find_nested_encoder

_NAMES_SHOWN = 6
_MASKED_LM_BIAS = "cls/predictions/output_bias"
_MISSING = (
    "which would stay random; give a checkpoint that was trained on the task, or "
    "--allow_missing_weights to use random weights on purpose"
)

_CONVERT = "convert it with transformers' save_pretrained, which writes model.safetensors"
# The weights of other formats by their ending, and the way from them to a checkpoint.
_OTHER_FORMATS = {
    ".h5": f"load it with transformers 4, BertModel.from_pretrained(folder, from_tf=True), and {_CONVERT}",
    ".msgpack": f"load it with transformers 4, BertModel.from_pretrained(folder, from_flax=True), and {_CONVERT}",
    ".keras": "load it with official_bert.load_model(path) and call save_pretrained(folder) of the "
    "model",
    ".onnx": "give the folder of the model that it was exported from",
    ".tflite": "give the folder of the model that it was exported from",
}
_PEFT_NAME = "adapter_model.safetensors"  # what PEFT adds to a model
_PEFT_WAY = "load both with peft, and save_pretrained what merge_and_unload() returns"

Checkpoint = tf1.Tf1Checkpoint | huggingface.HuggingFaceCheckpoint


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """The result of loading a checkpoint into a model; all names are TF1 names."""

    path: str  # the prefix, folder or file of the checkpoint
    matched: list[str]  # the variables that took their values from the checkpoint
    # The variables of the model that the checkpoint lacks; they keep their random initial values.
    missing: list[str]
    # The weights of the checkpoint that the model lacks, without optimizer slots and the step.
    unexpected: list[str]

    def check_complete(self, unused: Collection[str] = (), explanation: str = _MISSING):
        """Refuses weights that would stay random, and layers that would be left out.

        Weights whose names have a prefix in `unused` may be missing, since no result depends on
        them.
        """
        lacking = [name for name in self.missing if not name.startswith(tuple(unused))]
        if lacking:
            raise InputError(f"{self.path}: lacks {_enumerated(lacking)}, {explanation}")
        dropped = [name for name in self.unexpected if name.startswith(names.ENCODER)]
        if dropped:
            raise InputError(
                f"{self.path}: has {_enumerated(dropped)}, which the model of the config lacks; "
                "give the config of this checkpoint"
            )

    def log(self, model):
        """Logs the model's trainable variables and marks those of the checkpoint, as the
        original does.
        """
        log_trainable_variables(model, self.matched)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a TF1 prefix or folder, an output_dir, a Hugging Face folder, a safetensors file, or a
    model by its name.

    Of an output_dir it is the best checkpoint if the run kept one, else the newest. Weights are
    read by TF1 name, those of our trainings as they are used.
    """
    path = model_hub.local_path(path)
    best_folder = os.path.join(path, folder.BEST_FOLDER)
    folder.check_not_lost(best_folder)
    best = folder.latest_checkpoint(best_folder)
    if best:
        logging.info("%s keeps its best checkpoint: %s", path, best)
        return WeightsInUse(best)
    if (way := _way_from(path)) and files.exists(path) and not files.is_folder(path):
        raise InputError(f"{path}: is not in a format of BERT's checkpoints; {way}")
    prefix = _find_prefix(path) if not huggingface.is_weights_file(path) else None
    if prefix:
        return WeightsInUse(prefix)
    if huggingface.is_huggingface(path):
        if files.exists(adapters := os.path.join(path, _PEFT_NAME)):
            logging.warning("Ignoring %s; to use it, %s", adapters, _PEFT_WAY)
        return huggingface.HuggingFaceCheckpoint(path)
    there = sorted(files.list_folder(path)) if files.is_folder(path) else []
    if others := list(filter(_way_from, there)):
        raise InputError(
            f"{path}: its only weights are in {others[0]}, which is not read here; "
            f"{_way_from(others[0])}"
        )
    if encoder := find_nested_encoder(path):
        raise InputError(
            f"{path}: its encoder is in {encoder}; make one folder of both with official-bert "
            f"convert_checkpoint --model={path} --output_format=huggingface, and give that"
        )
    raise InputError(
        f"{path}: no checkpoint there; give a TF1 prefix (bert_model.ckpt, without .index), a "
        f"folder that holds one, or a Hugging Face folder with {huggingface.WEIGHTS_FILE}"
    )


def _find_prefix(path: str) -> str | None:
    """Returns the prefix of a TF1 checkpoint; None if there is none, as in a folder of Hugging
    Face.
    """
    try:
        return folder.find_prefix(path)
    except folder.CorruptList as error:
        if folder.has_index(path) or not huggingface.is_huggingface(path):
            raise
        logging.warning("Reading the weights of Hugging Face in %s; %s", path, error)
        return None


def _way_from(name: str) -> str | None:
    """Returns how weights in a file with this name become a checkpoint; None for a format
    without a way.
    """
    if os.path.basename(name) == _PEFT_NAME:
        return _PEFT_WAY
    return _OTHER_FORMATS.get(os.path.splitext(name)[1])


def named_variables(model) -> dict:
    """Returns the variables of a Keras model by their names in a TF1 checkpoint.

    The model may be a part of another one, and its name may be another one than its scope in a
    checkpoint.
    """
    variables = {_variable_name(model, variable): variable for variable in model.weights}
    if len(variables) != len(model.weights):
        raise ValueError(
            f"variables of {model.name} share a name: {sorted(v.path for v in model.weights)}"
        )
    return variables


def _variable_name(model, variable) -> str:
    scope, _, last = variable.path.rpartition("/")
    if last in names.ADAPTERS:
        return _convert_path(model, f"{scope}/kernel").removesuffix("kernel") + last
    return _convert_path(model, variable.path)


def _convert_path(model, path: str) -> str:
    below = path.removeprefix(f"{model.path}/")
    if below != path:
        scope = getattr(model, "checkpoint_scope", None)  # BertModel has one
        name = f"{scope}/{below}" if scope else below
        if names.to_huggingface(name) is not None:
            return name
    return names.from_path(path)


def load_checkpoint(model, source: str | Checkpoint, left_out: Collection[str] = ()) -> LoadReport:
    """Loads the weights of a checkpoint into a model, and logs the names that only one of the two
    has.

    Args:
        model: a built Keras model.
        source: an opened checkpoint, or the path of a TF1 or Hugging Face checkpoint or its folder.
        left_out: prefixes of the names of variables that keep their values.

    Raises:
        InputError: there is no checkpoint, it does not fit the model, or it holds values of no
            valid model.
    """
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source)
    # Adapters begin anew: those of a checkpoint are in its kernels. So do maps, which may be to
    # another teacher.
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
        raise InputError(_nothing_matches(checkpoint))
    skipped_names = [name for name in report.matched if name.startswith(tuple(left_out))]
    if skipped_names:
        logging.info("Drawn anew, not loaded: %s", ", ".join(skipped_names))
        report = dataclasses.replace(
            report, matched=[name for name in report.matched if name not in skipped_names]
        )
    assign(checkpoint, {name: variables[name] for name in report.matched})
    # A masked LM of transformers has not the other heads of a pre-trained model.
    absent_prefixes = (
        getattr(checkpoint, "absent_in_class", ()) if _MASKED_LM_BIAS in report.matched else ()
    )
    for log, is_expected in ((logging.warning, False), (logging.info, True)):
        if missing := [
            name for name in report.missing if name.startswith(absent_prefixes) is is_expected
        ]:
            log(
                "%s lacks these variables of the model, which are randomly initialised: %s",
                checkpoint.path,
                ", ".join(missing),
            )
    if report.unexpected:
        logging.warning(
            "%s has weights that the model does not use: %s",
            checkpoint.path,
            ", ".join(report.unexpected),
        )
    return report


def assign(checkpoint: Checkpoint, variables: dict):
    """Assigns the values of a checkpoint to variables of the same names: to none of them if a
    shape or type differs.
    """
    are_floats = {
        name: tf.as_dtype(variable.dtype).is_floating for name, variable in variables.items()
    }
    for name, variable in variables.items():
        stored, built = list(checkpoint.shapes[name]), list(variable.shape)
        if stored != built:
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored} in the checkpoint and {built} in "
                "the model; check that the config file and the labels are those of the checkpoint"
            )
        tf1.check_type(checkpoint, name, are_floats[name])
    for name, variable in variables.items():
        read = tf1.read_weight if are_floats[name] else type(checkpoint).read
        variable.assign(read(checkpoint, name))


def log_trainable_variables(model, initialized: Collection[str] = ()):
    """Logs where the trainable variables come from, and with --verbosity=1 the original's list
    of them.
    """
    variables = {
        _variable_name(model, variable): variable for variable in model.trainable_variables
    }
    loaded = variables.keys() & set(initialized)
    num_random = len(variables) - len(loaded)
    origins = []
    if loaded:
        origins.append(f"{len(loaded) if num_random else 'all'} from the checkpoint")
    if num_random:
        origins.append(f"{num_random if loaded else 'all'} randomly initialised")
    num_weights = sum(math.prod(variable.shape) for variable in variables.values())
    logging.info(
        "%d trainable variables with %s weights: %s",
        len(variables),
        f"{num_weights / 1e6:.1f} M" if num_weights >= 1e6 else f"{num_weights:,}",
        ", ".join(origins),
    )
    logging.debug("**** Trainable Variables ****")
    for name, variable in variables.items():
        suffix = ", *INIT_FROM_CKPT*" if name in loaded else ""
        logging.debug("  name = %s:0, shape = %s%s", name, tuple(variable.shape), suffix)


def _enumerated(weight_names: list[str]) -> str:
    more = (
        f" and {len(weight_names) - _NAMES_SHOWN} more" if len(weight_names) > _NAMES_SHOWN else ""
    )
    return ", ".join(weight_names[:_NAMES_SHOWN]) + more


def _nothing_matches(checkpoint: Checkpoint) -> str:
    weight_names = [name for name in checkpoint.shapes if not names.is_training_state(name)]
    objects = any(name.startswith("_CHECKPOINTABLE_OBJECT_GRAPH") for name in weight_names)
    kind = f"it holds {_enumerated(weight_names)}" if weight_names else "it holds no weight"
    if objects:
        kind = "it is a TF2 object-based checkpoint"
    return (
        f"{checkpoint.path}: no variable of the model is in this checkpoint ({kind}); give a "
        "name-based checkpoint of a BERT model"
    )


TF1_NAME = "bert_model.ckpt"


def read_stored_config(checkpoint: Checkpoint) -> BertConfig:
    """Reads the configuration beside a checkpoint; that of a best checkpoint may lie one folder
    higher.
    """
    path = ModelFolder(checkpoint.path).config_file
    if path:
        config = BertConfig.from_json_file(path)
        config.validate(path)
        return config
    raise InputError(
        f"{checkpoint.path}: neither {CONFIG_NAME} nor {huggingface.CONFIG_FILE} of a model lies "
        "beside it; copy the model's configuration there"
    )


def write(folder: str, tensors: Mapping[str, np.ndarray], config: BertConfig):
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
    with writing.replacing(os.path.join(folder, CONFIG_NAME)) as file:
        file.write(config.to_json_string())
    tf1.write(os.path.join(folder, TF1_NAME), tensors)


def check_free(folder: str, ours: str, shapes: Mapping[str, tuple[int, ...]]):
    """Refuses a folder with another checkpoint than an earlier one of the model that is to be
    written there.

    Its readers would take the other one or, if the file `ours` has other weights than these by
    name, it would be lost.
    """
    there = (
        sorted(name.rstrip("/") for name in files.list_folder(folder))
        if files.is_folder(folder)
        else []
    )
    others = ("checkpoint", BEST_FOLDER, huggingface.SHARDS_FILE)
    for name in there:
        path = os.path.join(folder, name.removesuffix(".index"))
        is_checkpoint = (
            name.endswith(".index") or huggingface.is_weights_file(name) or name in others
        )
        if is_checkpoint and (name != ours or open_checkpoint(path).shapes != shapes):
            consequence = "lost" if name == ours else "read instead"
            raise InputError(
                f"{folder}: holds another checkpoint ({name}), which would be {consequence}; name "
                "another folder"
            )
