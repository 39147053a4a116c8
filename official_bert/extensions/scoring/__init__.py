"""Scores of texts by a pre-trained model, and the evaluation of models on minimal pairs."""

from official_bert.extension import Command, Extension

_HERE = "official_bert.extensions.scoring"

EXTENSION = Extension(
    name="scoring",
    summary="Scores texts by their probability, and tests models on minimal pairs.",
    commands={
        "evaluate_minimal_pairs": Command(
            options=f"{_HERE}.options:MinimalPairsOptions",
            function=f"{_HERE}.minimal_pairs:run",
            summary="Tells how often a pre-trained model gives the right sentence of a pair the "
            "better score, as BLiMP asks.",
            check="official_bert.commands.first_checks:check_prediction",
            stage="Evaluate",
            example="--model=my_bert --input_file=BLiMP.zip",
        )
    },
    options={"predict": f"{_HERE}.options:ScoreOptions"},
    hooks={
        "predictor_methods": f"{_HERE}.predictor:methods",
        "predict_mode": f"{_HERE}.predictor:score_mode",
    },
)
