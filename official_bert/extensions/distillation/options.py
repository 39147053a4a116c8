"""The flags of distillation, and those of official-bert create_student."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import NOT_NEGATIVE, POSITIVE, SEED, SIZE, between, option
from official_bert.options.shared import CHECKPOINT_FORMS, ConfigOptions, TokenizerOptions

# What a model can learn of a teacher in pre-training.
LOGITS, HIDDEN, RELATIONS = TEXT_TARGETS = "logits", "hidden", "attention_relations"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationOptions:
    """Flags of fine-tuning with a teacher; official-bert run_embeddings has another --teacher."""

    teacher: str | None = option(
        None,
        changes_training=True,
        names_model=True,
        help="Distil from this model: its folder or its name. It is usually larger, has the same "
        "vocabulary, and the trained model learns its outputs. In fine-tuning it is the "
        "--output_dir of a training on the same task.",
    )
    distillation_weight: float = option(
        0.5,
        check=between(0, 1),
        changes_training=True,
        only_with={"teacher": ()},
        help="With --teacher, the weight w of its loss: the whole is (1 - w) times the loss of the "
        "labels plus w times that of the teacher's outputs.",
    )
    distillation_temperature: float = option(
        2.0,
        check=POSITIVE,
        changes_training=True,
        only_with={"teacher": ()},
        help="With --teacher, what its logits and those of the model are divided by before the "
        "softmax, so that the less probable labels count more (Hinton et al., 2015). It does not "
        "apply to regression.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDistillationOptions(DistillationOptions):
    """Flags of pre-training with a teacher."""

    distillation: list[str] | None = option(
        None,
        check=(
            lambda names: {*names} <= {*TEXT_TARGETS},
            f"must be of {', '.join(TEXT_TARGETS)}",
        ),
        changes_training=True,
        only_with={"teacher": ()},
        help="With --teacher, what the model learns from it, separated by commas; the losses are "
        "added. logits (the default): those of masked words. hidden: the outputs of its layers, "
        "through a linear map (Jiao et al., 2020). attention_relations: how its queries, its keys "
        "and its values are related (Wang et al., 2021).",
    )
    teacher_layer: int | None = option(
        None,
        check=NOT_NEGATIVE,
        changes_training=True,
        only_with={"distillation": (RELATIONS,)},
        help="With attention_relations, the layer of the teacher that the last layer of the model "
        "learns, from 0. Without this flag it is the last one.",
    )
    relation_heads: int | None = option(
        None,
        check=SIZE,
        changes_training=True,
        only_with={"distillation": (RELATIONS,)},
        help="With attention_relations, the number of relation heads, a divisor of both widths. "
        "Without this flag it is the number of the teacher's heads.",
    )


def _are_numbers(texts: list[str]) -> bool:
    return all(text.isdecimal() and len(text) < 5 for text in texts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentOptions(ConfigOptions, TokenizerOptions):
    max_seq_length: ClassVar[int] = 1  # no flag: the configuration is read for texts of any length

    model: str = option(help=f"The model to begin with, usually the teacher: {CHECKPOINT_FORMS}.")
    output_dir: str = option(
        help="The new folder for the student, with the vocabulary of the model, in the format of "
        "the original."
    )
    keep_layers: list[str] | None = option(
        None,
        basic=True,
        check=(_are_numbers, "must be whole numbers from 0, separated by commas"),
        help="The layers that the student keeps, counted from 0, such as 0,2,5, with embeddings, "
        "pooler and head.",
    )
    num_layers: int | None = option(
        None,
        basic=True,
        check=between(1, 1000),
        help="In place of --keep_layers, how many layers the student keeps: the first, the last, "
        "and others evenly between them, rounded down. 3 of 12 are 0, 5 and 11. A single one is "
        "the first.",
    )
    size: str | None = option(
        None,
        basic=True,
        help="In place of --keep_layers and --num_layers, a new model of this size with random "
        "weights: L4_H256 has 4 layers of width 256. There are 2, 4, 6, 8, 10, 12 layers of 128, "
        "256, 512, 768 (Turc et al., 2019), base and the like.",
    )
    random_seed: int = option(12345, check=SEED, help="The seed of the random weights of --size.")
