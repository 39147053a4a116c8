"""Late interaction: a vector for each token of a text, compared by MaxSim (ColBERT)."""

from official_bert.extension import Command, Extension, Family

EXTENSION = Extension(
    name="late_interaction",
    summary="Trains and uses models that compare texts token by token.",
    commands={
        "run_late_interaction": Command(
            options="official_bert.extensions.late_interaction.options:LateInteractionOptions",
            function="official_bert.fine_tuning.run:fine_tune",
            summary="Trains BERT to compare queries and documents token by token (ColBERT), "
            "evaluates retrieval, and writes the vectors of texts.",
            check="official_bert.commands.first_checks:check_fine_tuning",
            stage="Fine-tune",
            example="--data_dir=pairs --model=bert --do_train --do_eval --output_dir=my_colbert",
        )
    },
    families={
        "late_interaction": Family(
            task="official_bert.extensions.late_interaction.task:LateInteractionTask",
            script="run_late_interaction",
            tasks=("late_interaction",),
            head_weights=("token_projection/",),
            encoder="MultiVectorEncoder",
        )
    },
    options={
        "export_saved_model": "official_bert.extensions.late_interaction.options:"
        "LateInteractionServing",
        "predict": "official_bert.extensions.late_interaction.options:TokenSearchOptions",
    },
    hooks={
        "model_layout": "official_bert.extensions.late_interaction.layout:find_layout",
        "predict_mode": "official_bert.extensions.late_interaction.modes:choose_mode",
    },
    public={
        "MultiVectorEncoder": "official_bert.extensions.late_interaction.multi_vector_encoder:"
        "MultiVectorEncoder"
    },
    keras_modules=("official_bert.extensions.late_interaction.model",),
)
