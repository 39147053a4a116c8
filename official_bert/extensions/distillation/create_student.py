"""Makes a smaller model for distillation: the runner of official-bert create_student.

In: the folder of a model. Out: a new folder with a model of fewer layers or of another size, and
    the same vocabulary.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence

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

_layer = re.compile(r"(bert/encoder/layer_)(\d+)(/.*)")
# The fields that a new model has from the configuration of the other one.
_TEXT_FIELDS = (
    "vocab_size",
    "hidden_act",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
)


def run(options: StudentOptions):
    out = options.output_dir
    writing.check_new_folder(out)
    ways = {name: getattr(options, name) for name in ("keep_layers", "num_layers", "size")}
    chosen = [name for name, value in ways.items() if value]
    if len(chosen) != 1:
        raise InputError(
            f"--{' and --'.join(chosen or ways)}: give one of --keep_layers, --num_layers and "
            "--size"
        )
    source = resolve(options)
    checkpoint, config = source.checkpoint, source.config
    check_weights(checkpoint, config)
    check_stored_config(checkpoint.path, config)
    record = labels = None
    if options.size:
        student = BertConfig.from_size(
            options.size, **{name: getattr(config, name) for name in _TEXT_FIELDS}
        )
        seed_initial_weights(options.random_seed)
        variables = named_variables(BertPretrainer(student))
        tensors = {name: variable.numpy() for name, variable in variables.items()}
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
        layout = find_layout(source.dir.path)
        record = layout.student_record(source.dir)
        labels = source.labels if layout.task_name is None else None
    with writing.replacing_folder(out) as folder:
        loading.write(folder, tensors, student)
        settings = source.dir.tokenizer_config() or source.tokenizer_config
        model_dir.write_companion_files(folder, source.options.vocab_file, settings, record, labels)
    sizes = (
        student.num_hidden_layers,
        student.hidden_size,
        sum(tensor.size for tensor in tensors.values()) / 1e6,
    )
    logging.info("Wrote %s: %d layers of width %d, %.1f M weights", out, *sizes)


def _choose_layers(options: StudentOptions, num_layers: int) -> list[int]:
    """Returns the numbers of the layers that the student keeps, from 0."""
    if count := options.num_layers:
        if count > num_layers:
            raise InputError(
                f"--num_layers={count}: the model has only {num_layers} layers; give fewer"
            )
        return [number * (num_layers - 1) // max(count - 1, 1) for number in range(count)]
    layer_numbers = [int(number) for number in options.keep_layers]
    if layer_numbers != sorted({*layer_numbers}) or layer_numbers[-1] >= num_layers:
        raise InputError(
            f"--keep_layers={','.join(options.keep_layers)}: must be different layers of 0 to "
            f"{num_layers - 1}, the lowest first"
        )
    return layer_numbers


def _select_layers(checkpoint: Checkpoint, layer_numbers: Sequence[int]) -> dict:
    """Returns the tensors without a training's state and without other layers; those of
    `layer_numbers` are numbered anew.
    """
    tensors = {}
    for name in checkpoint.shapes:
        if names.is_training_state(name):
            continue
        new_name = name
        if match := _layer.fullmatch(name):
            before, number, after = match.groups()
            if int(number) not in layer_numbers:
                continue
            new_name = f"{before}{layer_numbers.index(int(number))}{after}"
        if names.to_huggingface(name):
            tf1.check_type(checkpoint, name)
        tensors[new_name] = checkpoint.read(name)
    return tensors
