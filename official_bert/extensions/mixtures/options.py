"""The flags of a training on several data sets."""

import dataclasses

from official_bert.options.fields import option

PROPORTIONAL, ROUND_ROBIN = "proportional", "round_robin"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixtureOptions:
    """The data sets, and how batches are taken from them."""

    data_sets: str | None = option(
        None,
        fixed_by_training=True,
        help="A TOML file with a table for each data set: its train_file and its dev_file, and the "
        "flags in which it differs, such as loss, eval_task and the columns. Each batch is of one "
        "set. Paths are relative to the folder of the file.",
    )
    set_sampling: str = option(
        PROPORTIONAL,
        choices=(PROPORTIONAL, ROUND_ROBIN),
        fixed_by_training=True,
        only_with={"data_sets": ()},
        help="How many batches each of --data_sets gives: proportional to its number of examples, "
        "or round_robin, as many as the others.",
    )
    main_set: str | None = option(
        None,
        only_with={"data_sets": ()},
        help="The one of --data_sets by whose main metric checkpoints are compared. Without this "
        "flag it is the first with a dev_file.",
    )
