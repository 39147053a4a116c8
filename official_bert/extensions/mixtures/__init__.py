"""Training on several data sets: each with a loss and an evaluation of its own."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.mixtures"
_COMMANDS = ("run_embeddings", "run_sparse_embeddings", "run_late_interaction")

EXTENSION = Extension(
    name="mixtures",
    summary="Trains an encoder of texts on several data sets, each with its own loss.",
    options=dict.fromkeys(_COMMANDS, f"{_HERE}.options:MixtureOptions"),
    hooks={
        "data_sets": f"{_HERE}.loaded_sets:load_data_sets",
        "fine_tuning": f"{_HERE}.plugin:MixturePlugin",
    },
)
