"""The command create_student: makes a smaller model for distillation.

Input: the folder of a model. Output: a new folder with a model of fewer layers or of another size,
and the same vocabulary.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from absl import logging

from official_bert import model_dir
from official_bert.checkpoints import loading, named_variables, names, tf1
from official_bert.checkpoints.layout import find_layout
from official_bert.checkpoints.loading import Checkpoint
from official_bert.commands.convert_checkpoint import check_weights
from official_bert.config import BertConfig
from official_bert.extensions.distillation.options import StudentOptions
from official_bert.io import writing
from official_bert.io.errors import InputError
from official_bert.model_source import check_stored_config, resolve
from official_bert.modeling import BertPretrainer
from official_bert.training.starting_point import seed_initial_weights

_LAYER = re.compile(r"(bert/encoder/layer_)(\d+)(/.*)")
# A new model copies these fields of the configuration.
_TEXT_FIELDS = (
    "vocab_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)


def run(options: StudentOptions) -> None:
    """Write a student.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a flag or the model cannot be used.
    """
    out = options.output_dir
    writing.check_new_folder(out)
    _check_flags(options)
    source = resolve(options)
    checkpoint = source.checkpoint
    config = source.config
    check_weights(checkpoint, config)
    check_stored_config(checkpoint.path, config)
    record = labels = None
    if options.size:
        text_fields = {name: getattr(config, name) for name in _TEXT_FIELDS}
        student = BertConfig.from_size(options.size, **text_fields)
        tensors = _draw_tensors(student, options.random_seed)
    else:
        layer_numbers = _choose_layers(options, config.num_hidden_layers)
        student = copy.deepcopy(config)
        student.num_hidden_layers = len(layer_numbers)
        logging.info(
            "The student keeps the layers %s of %d",
            ", ".join(map(str, layer_numbers)),
            config.num_hidden_layers,
        )
        tensors = _select_layers(checkpoint, layer_numbers)
        layout = find_layout(source.folder.path)
        record = layout.student_record(source.folder)
        labels = source.labels if layout.task_name is None else None
    with writing.replacing_folder(out) as folder:
        loading.write(folder, tensors, student)
        settings = source.folder.tokenizer_config() or source.tokenizer_config
        model_dir.write_companion_files(folder, source.options.vocab_file, settings, record, labels)
    num_weights = sum(tensor.size for tensor in tensors.values())
    logging.info(
        "Wrote %s: %d layers of width %d, %.1f M weights",
        out,
        student.num_hidden_layers,
        student.hidden_size,
        num_weights / 1e6,
    )


def _check_flags(options: StudentOptions):
    """Rejects all but one flag for the size of the student."""
    values = {
        "keep_layers": options.keep_layers,
        "num_layers": options.num_layers,
        "size": options.size,
    }
    typed_names = [name for name, value in values.items() if value]
    if len(typed_names) != 1:
        names = " and --".join(typed_names or values)
        raise InputError(f"--{names}: give one of --keep_layers, --num_layers and --size")


def _draw_tensors(config: BertConfig, seed: int) -> dict[str, Any]:
    """Returns the initial weights of a new model by name."""
    seed_initial_weights(seed)
    variables = named_variables(BertPretrainer(config))
    return {name: variable.numpy() for name, variable in variables.items()}


def _choose_layers(options: StudentOptions, num_layers: int) -> list[int]:
    """Returns the numbers of the layers that the student keeps, from 0."""
    count = options.num_layers
    if count:
        if count > num_layers:
            raise InputError(
                f"--num_layers={count}: the model has only {num_layers} layers; give fewer"
            )
        return [number * (num_layers - 1) // max(count - 1, 1) for number in range(count)]
    words = options.keep_layers or []
    layer_numbers = [int(word) for word in words]
    if layer_numbers != sorted(set(layer_numbers)) or layer_numbers[-1] >= num_layers:
        raise InputError(
            f"--keep_layers={','.join(words)}: must be different layers of 0 to "
            f"{num_layers - 1}, the lowest first"
        )
    return layer_numbers


def _select_layers(checkpoint: Checkpoint, layer_numbers: Sequence[int]) -> dict[str, Any]:
    """Returns the tensors of some layers, with new numbers, and those outside of layers.

    The state of a training is left out.
    """
    tensors = {}
    for name in checkpoint.shapes:
        if names.is_training_state(name):
            continue
        new_name = name
        match = _LAYER.fullmatch(name)
        if match:
            before, number, after = match.groups()
            if int(number) not in layer_numbers:
                continue
            new_name = f"{before}{layer_numbers.index(int(number))}{after}"
        if names.to_huggingface(name):
            tf1.check_type(checkpoint, name)
        tensors[new_name] = checkpoint.read(name)
    return tensors
