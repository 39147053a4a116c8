"""Weights of a model from a checkpoint of any form.

In: a Keras model and a path: TF1 prefix or folder, an output_dir of this project, a Hugging Face folder or
its model.safetensors. Out: the weights assigned, and a report of what matched.
"""

import dataclasses
import os
from collections.abc import Collection

from absl import logging

from official_bert.checkpoints import huggingface, names, tf1
from official_bert.errors import InputError

BEST_FOLDER = "best"  # of an output_dir: the checkpoint that was best by a metric

Checkpoint = tf1.Tf1Checkpoint | huggingface.HuggingFaceCheckpoint


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What a checkpoint gave to a model, by TF1 name.

    Attributes:
        path: the checkpoint's prefix, folder or file.
        matched: variables that took their value from it.
        missing: variables of the model that it does not have; they keep their initial values.
        unexpected: its weights that the model does not have; optimizer slots and the step do not count.
    """

    path: str
    matched: list[str]
    missing: list[str]
    unexpected: list[str]

    def log(self, model):
        """Logs the model's trainable variables, those of the checkpoint marked, as the original does."""
        log_trainable_variables(model, self.matched)


def open_checkpoint(path: str) -> Checkpoint:
    """A checkpoint to read by TF1 names, whatever its form.

    Args:
        path: TF1 prefix or folder, output_dir of this project, Hugging Face folder or safetensors file. Of a folder the
            best checkpoint where one is kept, else the newest.

    Raises:
        InputError: no checkpoint there, or one that cannot be read.
    """
    path = os.fspath(path)
    best = tf1.latest_checkpoint(os.path.join(path, BEST_FOLDER))
    if best:
        logging.info("%s keeps its best checkpoint: %s", path, best)
        return tf1.Tf1Checkpoint(best)
    prefix = tf1.find_prefix(path) if not huggingface.is_weights_file(path) else None
    if prefix:
        return tf1.Tf1Checkpoint(prefix)
    if huggingface.is_huggingface(path):
        return huggingface.HuggingFaceCheckpoint(path)
    raise InputError(
        f"{path}: no checkpoint there; give a TF1 prefix (bert_model.ckpt, without .index), a folder that "
        f"holds one, or a Hugging Face folder with {huggingface.WEIGHTS_FILE}"
    )


def named_variables(model) -> dict:
    """The variables of a Keras model by the name that they have in a TF1 checkpoint.

    Raises:
        ValueError: two variables of one name.
    """
    variables = {names.from_path(variable.path): variable for variable in model.weights}
    if len(variables) != len(model.weights):
        raise ValueError(f"variables of {model.name} share a name: {sorted(v.path for v in model.weights)}")
    return variables


def load_checkpoint(model, path: str) -> LoadReport:
    """Assigns what a checkpoint has to the variables of a model; what differs is logged by name.

    Args:
        model: a built Keras model.
        path: as for `open_checkpoint`.

    Returns:
        LoadReport.

    Raises:
        InputError: no checkpoint, nothing in it that the model has, or a variable of another shape.
    """
    checkpoint = open_checkpoint(path)
    variables = named_variables(model)
    report = LoadReport(
        checkpoint.path,
        matched=[name for name in variables if name in checkpoint.shapes],
        missing=[name for name in variables if name not in checkpoint.shapes],
        unexpected=[
            name for name in checkpoint.shapes if name not in variables and not names.is_training_state(name)
        ],
    )
    if not report.matched:
        raise InputError(_nothing_matches(checkpoint))
    assign(checkpoint, {name: variables[name] for name in report.matched})
    if report.missing:
        logging.warning("Not in %s, left as they are: %s", checkpoint.path, ", ".join(report.missing))
    if report.unexpected:
        logging.warning("In %s and unused: %s", checkpoint.path, ", ".join(report.unexpected))
    return report


def assign(checkpoint: Checkpoint, variables: dict):
    """Gives variables the values of the same names; no variable changes unless all of them fit.

    Raises:
        InputError: a variable whose shape is another one.
    """
    for name, variable in variables.items():
        stored, built = list(checkpoint.shapes[name]), list(variable.shape)
        if stored != built:
            raise InputError(
                f"{checkpoint.path}: {name} has shape {stored} in the checkpoint and {built} in the model; "
                "check that the config file and the labels are those of the checkpoint"
            )
    for name, variable in variables.items():
        variable.assign(checkpoint.read(name))


def log_trainable_variables(model, initialized: Collection[str] = ()):
    """The original's list of trainable variables, in which people look whether loading worked.

    Args:
        model: a Keras model.
        initialized: TF1 names of those that came from a checkpoint.
    """
    logging.info("**** Trainable Variables ****")
    initialized = set(initialized)
    for variable in model.trainable_variables:
        name = names.from_path(variable.path)
        suffix = ", *INIT_FROM_CKPT*" if name in initialized else ""
        logging.info("  name = %s:0, shape = %s%s", name, tuple(variable.shape), suffix)


def _nothing_matches(checkpoint: Checkpoint) -> str:
    held = [name for name in checkpoint.shapes if not names.is_training_state(name)]
    objects = any(name.startswith("_CHECKPOINTABLE_OBJECT_GRAPH") for name in held)
    kind = "it is a TF2 object-based checkpoint" if objects else f"it holds {', '.join(held[:3])}, ..."
    return (
        f"{checkpoint.path}: no variable of the model is in this checkpoint ({kind}); give a name-based "
        "checkpoint of a BERT model"
    )
