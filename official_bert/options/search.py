"""Which runs a search makes of one command."""

import dataclasses

from official_bert.options.fields import POSITIVE, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Flags of --search."""

    search: bool = option(
        False,
        help="Whether to train a model for each combination of the --search_... flags, in folders of output_dir; the "
        "results go into search_results.tsv, the best run keeps its checkpoints.",
    )
    search_batch_sizes: list[str] | None = option(
        None, help="Values of --train_batch_size to try; the paper's 16,32 when not given."
    )
    search_learning_rates: list[str] | None = option(
        None, help="Values of --learning_rate to try; the paper's 5e-5,3e-5,2e-5 when not given."
    )
    search_epochs: list[str] | None = option(
        None, help="Values of --num_train_epochs to try; the paper's 2,3,4 when not given."
    )
    search_restarts: int = option(
        1, check=POSITIVE, help="Runs of each combination, from --random_seed (else 0) upwards."
    )
