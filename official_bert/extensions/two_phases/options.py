"""The flags of pretrain_two_phases."""

import dataclasses

from official_bert.options.fields import (
    LENGTH,
    MAX_NUMBER,
    NOT_NEGATIVE,
    POSITIVE,
    PROCESSES,
    SIZE,
    between,
    option,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoPhaseOptions:
    input_file: list[str] = option(
        basic=True,
        help="The text, one sentence a line with a blank line between documents: files or glob "
        "patterns, separated by commas.",
    )
    vocab_file: str = option(basic=True, help="The WordPiece vocabulary.")
    bert_config_file: str = option(
        basic=True,
        help="The configuration of the model, whose max_position_embeddings is at least the "
        "length of the long sequences.",
    )
    output_dir: str = option(
        basic=True,
        help="The folder of the results: records-128 and records-512, and the model in the folder "
        "model. With --new_schedule the models of the phases are in phase1 and phase2.",
    )
    num_train_steps: int = option(
        100000,
        basic=True,
        check=between(10, MAX_NUMBER, ", so that each phase has an update"),
        help="The number of updates of both phases together.",
    )
    num_warmup_steps: int | None = option(
        None,
        check=NOT_NEGATIVE,
        help="The number of updates during which the learning rate warms up. The default is a "
        "tenth of the updates, and at most 10,000. With --new_schedule each phase warms up for a "
        "tenth of its updates by default.",
    )
    learning_rate: float = option(1e-4, check=POSITIVE, help="The highest learning rate.")
    train_batch_size: int = option(256, check=SIZE, help="The number of sequences in a batch.")
    max_seq_length: int = option(128, check=LENGTH, help="The length of the short sequences.")
    phase2_max_seq_length: int = option(512, check=LENGTH, help="The length of the long sequences.")
    phase2_train_batch_size: int | None = option(
        None,
        check=SIZE,
        help="The number of long sequences in a batch. The default is --train_batch_size.",
    )
    new_schedule: bool = option(
        False,
        help="Begin the second phase with a new schedule of the learning rate and new moments of "
        "the optimizer. Without this flag both phases have one schedule, as in the paper.",
    )
    phase2_learning_rate: float | None = option(
        None,
        check=POSITIVE,
        only_with={"new_schedule": ()},
        help="With --new_schedule, the highest learning rate of the second phase. The default is "
        "--learning_rate.",
    )
    dupe_factor: int = option(
        5, check=SIZE, help="The number of passes over the text, each with other masks."
    )
    num_workers: int = option(
        1, check=PROCESSES, help="The number of processes that make the records."
    )
    training_flags: tuple[str, ...] = option(
        (),
        after_dashes=True,
        help="Further flags of both trainings, such as --dtype=bfloat16.",
    )

    @property
    def resume_hint(self) -> str:
        """What a user is told whose run was interrupted."""
        return "the same command continues"
