"""The flags of a fine-tuning that trains a part of a model."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import COMMON, NOT_NEGATIVE, SIZE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptationOptions:
    """Which weights a fine-tuning changes, and how far."""

    chapter: ClassVar[str] = COMMON

    freeze_layers: int | None = option(
        None,
        check=NOT_NEGATIVE,
        fixed_by_training=True,
        help="The number of encoder layers, counted from the input, whose variables are frozen "
        "together with the embeddings. 0 freezes the embeddings only. Without this flag all "
        "variables are trainable.",
    )
    lora_rank: int | None = option(
        None,
        check=SIZE,
        fixed_by_training=True,
        help="Train, instead of the encoder, two matrices of this rank, such as 8, beside each "
        "dense layer of its layers, attention and feed-forward network (LoRA; Hu et al., 2021), "
        "and the head. A higher --learning_rate is usual, such as 5e-4. --output_dir contains the "
        "whole model; its file adapters.safetensors contains only the trained weights, for "
        "load_adapters.",
    )
    layer_wise_lr_decay: float = option(
        1.0,
        check=(lambda decay: 0.0 < decay <= 1.0, "must be above 0 and at most 1"),
        changes_training=True,
        help="The factor from the learning rate of each encoder layer to that of the layer below "
        "it, such as 0.9 (Howard and Ruder, 2018; Sun et al., 2019; Clark et al., 2020). The head, "
        "the pooler and the last layer have --learning_rate, the embeddings have the lowest.",
    )
    reinit_layers: int | None = option(
        None,
        check=NOT_NEGATIVE,
        fixed_by_training=True,
        help="The number of encoder layers, counted from the output, that with the pooler do not "
        "start with their pre-trained weights but with random ones, such as 1 (Zhang et al., "
        "2021). 0 initialises only the pooler at random.",
    )
