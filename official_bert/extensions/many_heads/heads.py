"""Reads the models of --heads, and checks that they can answer together.

In: the folder of each head. Out: a `Head` each, whose encoders share their variables. The heads
whose encoders are equal form a group, whose encoder is computed once. Models that LoRA has trained
share the weights of their base instead, and each is a group of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import catalog
from official_bert.checkpoints import named_variables, names, open_checkpoint
from official_bert.checkpoints.weights_in_use import WeightsInUse, find_adapter_rank
from official_bert.extensions.many_heads.head_records import FIRST_TEXT, SECOND_TEXT
from official_bert.extensions.many_heads.options import HeadExportOptions, parse_heads
from official_bert.io.errors import InputError
from official_bert.modeling import BertModel
from official_bert.modeling.layers import Dense
from official_bert.options.shared import BFLOAT16, FLOAT32
from official_bert.serving.export import TrainedModel, check_text_export
from official_bert.serving.model import build
from official_bert.tokenization import vocabulary_lines

# The layers of an encoder that all heads share, and the scopes of their weights. The pooler belongs
# to a head, because a training with a frozen encoder changes it.
_SHARED_LAYERS = ("embeddings", "encoder")
_SHARED_SCOPES = ("bert/embeddings/", "bert/encoder/")
# The fields of a configuration that must be equal although no weight depends on them.
_CONFIG_FIELDS = ("num_attention_heads", "hidden_act", "direction")
# The names that a head of an export of text may give to the texts of a request.
_TEXT_INPUTS = ([FIRST_TEXT], [FIRST_TEXT, SECOND_TEXT], ["text"])


class Head(NamedTuple):
    """A fine-tuned model.

    Attributes:
        name: its name in --heads.
        folder: its folder.
        built: the task and the model with its weights.
    """

    name: str
    folder: str
    built: TrainedModel

    @property
    def encoder(self) -> BertModel:
        """The encoder of the model."""
        return self.built.model.bert

    @property
    def text_inputs(self) -> list[str]:
        """The names of the texts that the task reads."""
        return list(self.built.task.text_inputs)


def read_heads(options: HeadExportOptions) -> list[list[Head]]:
    """Builds the models of --heads.

    Args:
        options: the flags of the export.

    Returns:
        The groups of heads with equal encoders. The order is that of the flag.

    Raises:
        InputError: a model cannot be used, or two models do not fit each other.
    """
    # Build the models.
    options_class = catalog.options_class("export_saved_model")
    # Converters make smaller weights from those of float32.
    dtype = BFLOAT16 if options.dtype == BFLOAT16 else FLOAT32
    heads = []
    for name, folder in parse_heads(options).items():
        model_options = options_class(
            model=folder,
            export_dir=options.export_dir,
            export_text=options.export_text,
            dtype=dtype,
        )
        head = Head(name, folder, build(model_options, dtype))
        _check_task(head, options.export_text)
        heads.append(head)
    if len(heads) < 2:
        raise InputError(
            "--heads: names one model; give two or more, or use official-bert export_saved_model"
        )

    # Compare them, and group them by their encoders.
    for head in heads[1:]:
        _check_equal_inputs(heads[0], head)
    groups: list[list[Head]] = []
    for head in heads:
        _add_to_group(groups, head)
    if len(groups) > 1:
        _share_base(groups)
    for group in groups:
        for head in group[1:]:
            _replace_layers(head.encoder, group[0].encoder)
    return groups


def _check_task(head: Head, reads_text: bool):
    """Refuses a model that cannot answer beside others."""
    task = head.built.task
    if task.num_choices is not None or not isinstance(
        getattr(head.built.model, "bert", None), BertModel
    ):
        raise InputError(
            f"--heads: {head.name}={head.folder}: is a model of {head.built.task_name}, which "
            "does not read one sequence of tokens; export it with official-bert export_saved_model"
        )
    if not reads_text:
        return
    check_text_export(task)
    if head.text_inputs not in _TEXT_INPUTS:
        raise InputError(
            f"--export_text: {head.name}={head.folder} reads {', '.join(head.text_inputs)}, and "
            "heads share a text or a pair of texts; leave the flag off, or leave out the head"
        )


def _check_equal_inputs(first: Head, head: Head):
    """Refuses models that read texts in different ways."""
    both = f"--heads: {first.folder} and {head.folder}"
    first_options, options = first.built.options, head.built.options
    pieces = [vocabulary_lines(each.built.vocab_file) for each in (first, head)]
    if pieces[0] != pieces[1]:
        raise InputError(
            f"{both} have different vocabularies; give models that were fine-tuned from one model"
        )
    for name in ("do_lower_case", "strip_accents"):
        values = [getattr(each, name) for each in (first_options, options)]
        if values[0] != values[1]:
            raise InputError(
                f"{both} read texts with different {name}, {values[0]} and {values[1]}; give "
                "models that were fine-tuned from one model"
            )
    lengths = [each.built.max_seq_length for each in (first, head)]
    if lengths[0] != lengths[1]:
        raise InputError(
            f"{both} were trained with different lengths, {lengths[0]} and {lengths[1]} tokens; "
            "train them with the same --max_seq_length"
        )
    for name in _CONFIG_FIELDS:
        values = [getattr(each.built.config, name) for each in (first, head)]
        if values[0] != values[1]:
            raise InputError(
                f"{both} have encoders with different {name}, {values[0]} and {values[1]}; give "
                "models that were fine-tuned from one model"
            )


def _add_to_group(groups: list[list[Head]], head: Head):
    """Adds a head to the group with the same encoder, or to a new group."""
    for group in groups:
        if _find_difference(group[0], head) is None:
            group.append(head)
            return
    groups.append([head])


def _find_difference(first: Head, head: Head) -> str | None:
    """Returns the name of the first weight in which two encoders differ; None for equal ones."""
    return compare_weights(_read_weights(first), _read_weights(head))


def _read_weights(head: Head) -> dict[str, np.ndarray]:
    variables = _list_variables(head)
    return {name: variable.numpy() for name, variable in variables.items()}


def _list_variables(head: Head) -> dict[str, Any]:
    """Returns the variables of the encoder by TF1 name, without its pooler."""
    variables = named_variables(head.built.model)
    return {name: each for name, each in variables.items() if name.startswith(_SHARED_SCOPES)}


def compare_weights(
    weights: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> str | None:
    """Returns the name of the first weight in which two models differ; None for equal ones.

    Args:
        weights: the weights of one model by name.
        others: those of the other one.
    """
    for name in (*weights, *others):
        if name not in weights or name not in others:
            return name
        if not np.array_equal(weights[name], others[name]):
            return name
    return None


def _share_base(groups: Sequence[Sequence[Head]]):
    """Lets the encoders of several groups share the variables of their base model.

    Args:
        groups: the groups, whose encoders differ.

    Raises:
        InputError: the encoders differ in more than the adapters of LoRA.
    """
    leaders = [group[0] for group in groups]
    adapted = [_read_adapted(head) for head in leaders]
    for head, encoder in zip(leaders[1:], adapted[1:], strict=True):
        difference = compare_weights(adapted[0].weights, encoder.weights)
        if difference is not None:
            raise InputError(
                f"--heads: the encoders of {leaders[0].folder} and {head.folder} differ, first in "
                f"{difference}; fine-tune one model with --freeze_layers="
                f"{head.built.config.num_hidden_layers} or --lora_rank, or train the tasks together"
            )
    for head, encoder in zip(leaders, adapted, strict=True):
        _use_adapters(head, encoder)
    for head in leaders[1:]:
        _replace_variables(head.encoder, leaders[0].encoder)
    logging.info(
        "The adapters of %s differ: the file has the weights of their encoder once, and a request "
        "for all heads computes it %d times",
        ", ".join(head.name for head in leaders),
        len(leaders),
    )


@dataclasses.dataclass(frozen=True)
class _AdaptedEncoder:
    """The weights of an encoder before LoRA, and the adapters.

    Attributes:
        weights: the weights of the base by TF1 name.
        adapters: the two matrices of a kernel by its TF1 name.
    """

    weights: Mapping[str, np.ndarray]
    adapters: Mapping[str, Sequence[np.ndarray]]


def _read_adapted(head: Head) -> _AdaptedEncoder:
    """Reads the base and the adapters of a model; without adapters the base is the model."""
    weights = _read_weights(head)
    checkpoint = open_checkpoint(head.built.checkpoint_metadata["path"])
    adapters = {}
    if isinstance(checkpoint, WeightsInUse):
        for name in weights:
            if matrices := checkpoint.read_adapters(name):
                adapters[name] = matrices
                dtype = weights[name].dtype
                weights[name] = checkpoint.read_base(name).astype(dtype)
    return _AdaptedEncoder(weights, adapters)


def _use_adapters(head: Head, encoder: _AdaptedEncoder):
    """Replaces the kernels of a model by those of its base and the adapters."""
    if not encoder.adapters:
        return
    shapes = {
        adapter_name: matrix.shape
        for name, matrices in encoder.adapters.items()
        for adapter_name, matrix in zip(names.list_adapters(name), matrices, strict=True)
    }
    rank = find_adapter_rank(shapes)
    kernels = {id(variable): name for name, variable in _list_variables(head).items()}
    for layer in head.encoder._flatten_layers():
        name = kernels.get(id(getattr(layer, "_kernel", None)), "")
        if not isinstance(layer, Dense) or name not in encoder.adapters:
            continue
        layer.enable_lora(rank)
        layer._kernel.assign(encoder.weights[name])
        first, second = encoder.adapters[name]
        layer.lora_kernel_a.assign(first)
        layer.lora_kernel_b.assign(second)


def _replace_layers(encoder: BertModel, other: BertModel):
    """Replaces the layers of an encoder, except its pooler, by those of another.

    Args:
        encoder: the encoder.
        other: an encoder with the same weights.
    """
    for name in _SHARED_LAYERS:
        # Not by setattr, which would make them further layers of the model.
        encoder.__dict__[name] = other.__dict__[name]


def _replace_variables(encoder: BertModel, base: BertModel):
    """Replaces the variables of an encoder, except its pooler and adapters, by those of another.

    Args:
        encoder: the encoder.
        base: an encoder with the same weights except its adapters.
    """
    for part in _SHARED_LAYERS:
        layers = getattr(encoder, part)._flatten_layers()
        base_layers = getattr(base, part)._flatten_layers()
        for layer, base_layer in zip(layers, base_layers, strict=True):
            members = layer.__dict__
            base_members = base_layer.__dict__
            for name, value in members.items():
                if isinstance(value, keras.Variable) and not names.is_adapter(name):
                    # Not by setattr, which would make it a second variable of the layer.
                    members[name] = base_members[name]


def name_texts(heads: Sequence[Head]) -> dict[str, list[None]]:
    """Returns the names and shapes of the texts that some heads read.

    Args:
        heads: the heads.
    """
    has_second = any(SECOND_TEXT in head.text_inputs for head in heads)
    names = [FIRST_TEXT, SECOND_TEXT] if has_second else [FIRST_TEXT]
    return {name: [None] for name in names}


def list_weights(heads: Sequence[Head]) -> dict[str, tf.Variable]:
    """Returns the variables of all heads by name; those that heads share have one name.

    Args:
        heads: the heads.
    """
    weights: dict[str, tf.Variable] = {}
    variable_ids: set[int] = set()
    for head in heads:
        for name, variable in named_variables(head.built.model).items():
            if id(variable.value) in variable_ids:
                continue
            variable_ids.add(id(variable.value))
            weights[name if name not in weights else f"{head.name}/{name}"] = variable.value
    return weights
