"""Search by embeddings: methods of Predictor and SentenceEncoder, indexes, and hard negatives."""

from official_bert.extension import Command, Extension

EXTENSION = Extension(
    name="retrieval",
    summary="Searches texts by their embeddings, and finds hard negatives for training.",
    commands={
        "mine_hard_negatives": Command(
            options="official_bert.extensions.retrieval.options:MiningOptions",
            function="official_bert.extensions.retrieval.mining:run",
            check="official_bert.extensions.retrieval.options:check_paths",
            summary="Finds for pairs of texts the wrong answers that an encoder takes for right "
            "ones, to train a better one on.",
            stage="Prepare the data",
            example="--input_file=pairs.tsv --model=my_encoder --output_file=triples.jsonl",
        )
    },
    options={"predict": "official_bert.extensions.retrieval.options:SearchOptions"},
    hooks={
        "encoder_methods": "official_bert.extensions.retrieval.methods:encoder_methods",
        "predictor_methods": "official_bert.extensions.retrieval.methods:predictor_methods",
        "predict_mode": "official_bert.extensions.retrieval.modes:choose_mode",
    },
)
