"""The options of a search: the values that it tries."""

import dataclasses

from official_bert.options.fields import PROCESSES, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Flags of --search."""

    search: bool = option(
        False,
        help="Train a model for each combination of the values of the --search_... flags, each in a folder of its "
        "own in --output_dir. search_results.tsv lists the results, and the best run keeps its checkpoints.",
    )
    search_batch_sizes: list[str] | None = option(
        None,
        help="The values of --train_batch_size that a search tries, separated by commas. Without this flag it tries "
        "those of the paper: 16,32.",
    )
    search_learning_rates: list[str] | None = option(
        None,
        help="The values of --learning_rate that a search tries, separated by commas. Without this flag it tries "
        "those of the paper: 5e-5,3e-5,2e-5.",
    )
    search_epochs: list[str] | None = option(
        None,
        help="The values of --num_train_epochs that a search tries, separated by commas. Without this flag it tries "
        "those of the paper: 2,3,4.",
    )
    search_restarts: int = option(
        1,
        check=PROCESSES,
        help="The number of runs of each combination. Their seeds count upwards from --random_seed, or from 0.",
    )
