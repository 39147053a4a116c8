"""The flags of run_multitask."""

import dataclasses
from typing import ClassVar

from official_bert.options.fields import PROBABILITY, SIZE, option
from official_bert.options.fine_tuning import FineTuningOptions

PROPORTIONAL, ROUND_ROBIN, POWER, ANNEALED = "proportional", "round_robin", "power", "annealed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultitaskOptions(FineTuningOptions):
    script: ClassVar[str] = "run_multitask"
    task_name: ClassVar[str] = "multitask"
    has_dev_set: ClassVar[bool] = True

    data_sets: str = option(
        fixed_by_training=True,
        help="A TOML file with a table for each task: its task_name, its data_dir or its "
        "train_file, dev_file and test_file, and the flags of its data, such as label_type and the "
        "columns. Each batch is of one task. Paths are relative to the folder of the file.",
        hint_if_missing="give a TOML file with a table for each task",
    )
    set_sampling: str = option(
        PROPORTIONAL,
        basic=True,
        choices=(PROPORTIONAL, ROUND_ROBIN, POWER, ANNEALED),
        fixed_by_training=True,
        help="How many batches each task gives: proportional to its number of examples; "
        "round_robin, as many as the others; power, proportional to that number to the power of "
        "--sampling_exponent; or annealed, with an exponent that falls from 1 in the first epoch "
        "to 0.2 in the last (Stickland and Murray, 2019).",
    )
    sampling_exponent: float = option(
        0.5,
        check=PROBABILITY,
        fixed_by_training=True,
        only_with={"set_sampling": (POWER,)},
        help="With --set_sampling=power, the exponent of the numbers of examples. 1 is "
        "proportional, 0 is round_robin.",
    )
    main_set: str | None = option(
        None,
        help="The development set by whose main metric checkpoints are compared: the name of its "
        "table, or mnli_mm for the second set of a table mnli. Without this flag it is the first.",
    )
    do_eval: bool = option(
        False, basic=True, help="Evaluate the model on the development sets of all tasks."
    )
    eval_batch_size: int = option(
        8, check=SIZE, help="The number of examples in an evaluation batch."
    )

    @property
    def dev_batch_size(self) -> int:
        """The number of examples in a batch of an evaluation."""
        return self.eval_batch_size
