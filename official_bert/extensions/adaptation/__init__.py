"""Training less of a model: LoRA, frozen layers, new layers, learning rates by layer."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.adaptation"
_FINE_TUNING_COMMANDS = (
    "run_classifier",
    "run_squad",
    "run_swag",
    "run_ner",
    "run_embeddings",
    "run_reranker",
    "run_sparse_embeddings",
    "run_late_interaction",
    "run_multitask",
)

EXTENSION = Extension(
    name="adaptation",
    summary="Fine-tunes a part of a model: LoRA, frozen or new layers, learning rates by layer.",
    options=dict.fromkeys(_FINE_TUNING_COMMANDS, f"{_HERE}.options:AdaptationOptions"),
    hooks={
        "fine_tuning": f"{_HERE}.plugin:AdaptationPlugin",
        "model_methods": f"{_HERE}.methods:model_methods",
    },
)
