"""Distillation: a model learns the outputs of another one, its teacher."""

from official_bert.extension import Command, Extension

_HERE = "official_bert.extensions.distillation"
_FINE_TUNING_COMMANDS = ("run_classifier", "run_squad", "run_swag", "run_ner")

EXTENSION = Extension(
    name="distillation",
    summary="Trains smaller models on the outputs of larger ones.",
    commands={
        "create_student": Command(
            options=f"{_HERE}.options:StudentOptions",
            function=f"{_HERE}.create_student:run",
            summary="Makes a smaller model for distillation: some layers of a model, or a new one "
            "of a published size.",
            check="official_bert.commands.first_checks:check_model_files",
            stage="Tools",
            example="--model=bert --num_layers=6 --output_dir=student",
        )
    },
    options=dict.fromkeys(_FINE_TUNING_COMMANDS, f"{_HERE}.options:DistillationOptions")
    | {"run_pretraining": f"{_HERE}.options:PretrainingDistillationOptions"},
    hooks={
        "fine_tuning": f"{_HERE}.fine_tuning:FineTuningPlugin",
        "pretraining": f"{_HERE}.pretraining:PretrainingPlugin",
    },
)
