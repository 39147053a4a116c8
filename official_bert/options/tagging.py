"""The options of a run on named entities. Every field is a flag of run_ner.py."""

import dataclasses

from official_bert.options.data_files import DataFilesOptions
from official_bert.options.fields import SIZE, option

FEATURE_LAYERS = (
    "embeddings",
    "second_to_last",
    "last",
    "weighted_sum_of_last_four",
    "concat_of_last_four",
    "weighted_sum_of_all",
)
DEFAULT_BILSTM_SIZE = 768  # of the paper


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingOptions(DataFilesOptions):
    data_dir: str | None = option(
        None, help="The folder that holds the files train, dev and test, each with the suffix .conll or .txt."
    )
    do_lower_case: bool | None = option(
        otherwise=True,
        help="Lower-case the text. Uncased models need this; cased models, which the paper uses for names, need "
        "--nodo_lower_case.",
    )
    document_context: bool = option(
        False,
        help="Fill each window with the text around the sentence in its document, as in the paper. The files need a "
        "-DOCSTART- line before each document.",
    )
    feature_layers: str | None = option(
        otherwise=None,
        choices=FEATURE_LAYERS,
        help="Train no variable of the encoder: a BiLSTM of two layers (--num_bilstm_layers) reads the output of "
        "these layers, which is computed once for each sentence. Without this flag the whole model is fine-tuned.",
    )
    bilstm_size: int | None = option(
        otherwise=DEFAULT_BILSTM_SIZE,
        check=SIZE,
        help="With --feature_layers, the width of the BiLSTM's output, half of it for each direction.",
    )
