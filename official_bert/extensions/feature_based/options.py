"""The flags that run_ner has for a tagger on the layers of an encoder that is not trained."""

import dataclasses

from official_bert.options.fields import MAX_LENGTH, between, option

FEATURE_BASED = "feature_based"  # the name of the task
# The choices of layers, in the order of the rows of table 7 of the paper.
EMBEDDINGS = "embeddings"
SECOND_TO_LAST = "second_to_last"
LAST = "last"
SUM_LAST_FOUR = "sum_last_four"
CONCAT_LAST_FOUR = "concat_last_four"
SUM_ALL = "sum_all"
FEATURE_LAYERS = (EMBEDDINGS, SECOND_TO_LAST, LAST, SUM_LAST_FOUR, CONCAT_LAST_FOUR, SUM_ALL)

_ONLY_WITH = {"task_name": (FEATURE_BASED,)}


WIDTH_RULE = f"must be an even number from 2 to {MAX_LENGTH}, half of it for each direction"


def is_width(width: int) -> bool:
    """Returns whether a BiLSTM can have this number of outputs.

    Args:
        width: the number of outputs.
    """
    return 2 <= width <= MAX_LENGTH and width % 2 == 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureOptions:
    feature_layers: str | None = option(
        fallback=CONCAT_LAST_FOUR,
        choices=FEATURE_LAYERS,
        fixed_by_training=True,
        only_with=_ONLY_WITH,
        help="With --task_name=feature_based, the layers of the encoder that the BiLSTM reads: "
        "one of them, the concatenation of the last four, or a sum whose weights are trained.",
    )
    bilstm_size: int | None = option(
        fallback=768,
        check=(is_width, WIDTH_RULE),
        fixed_by_training=True,
        only_with=_ONLY_WITH,
        help="With --task_name=feature_based, the number of outputs of each layer of the BiLSTM. "
        "It has 2 layers, or --num_bilstm_layers.",
    )
    feature_cache_dir: str | None = option(
        None,
        only_with=_ONLY_WITH,
        help="With --task_name=feature_based, the folder in which runs keep the outputs of the "
        "encoder and find those of earlier runs. You can delete it at any time. Without this flag "
        "it is layer_vectors in ~/.cache/official_bert, or in the folder that the environment "
        "variable OFFICIAL_BERT_CACHE names.",
    )
    feature_cache_gb: float = option(
        20.0,
        check=between(0, 1_000_000),
        only_with=_ONLY_WITH,
        help="With --task_name=feature_based, the largest size of --feature_cache_dir in GB. The "
        "files that were used least recently are deleted. A set that needs more space is not "
        "kept: each batch then runs the encoder. 0 keeps nothing.",
    )
