"""Sparse embeddings: weights of the words of the vocabulary for each text (SPLADE)."""

from official_bert.extension import Command, Extension, Family

EXTENSION = Extension(
    name="sparse",
    summary="Trains and uses models that describe texts by weighted words, for inverted indexes.",
    commands={
        "run_sparse_embeddings": Command(
            options="official_bert.extensions.sparse.options:SparseOptions",
            function="official_bert.fine_tuning.run:fine_tune",
            summary="Trains a masked LM to describe texts by weighted words of its vocabulary "
            "(SPLADE), evaluates retrieval with them, and writes those of texts.",
            check="official_bert.commands.first_checks:check_fine_tuning",
            stage="Fine-tune",
            example="--data_dir=pairs --model=bert --do_train --do_eval --output_dir=my_splade",
        )
    },
    families={
        "sparse_embedding": Family(
            task="official_bert.extensions.sparse.task:SparseTask",
            script="run_sparse_embeddings",
            tasks=("sparse_embedding",),
            head_weights=("query_lookup/",),
            encoder="SparseEncoder",
        )
    },
    options={"export_saved_model": "official_bert.extensions.sparse.options:SparseServing"},
    hooks={
        "fine_tuning": "official_bert.extensions.sparse.schedule:FlopsSchedule",
        "model_layout": "official_bert.extensions.sparse.layout:find_layout",
        "predictor_methods": "official_bert.extensions.sparse.task:predictor_methods",
    },
    public={"SparseEncoder": "official_bert.extensions.sparse.sparse_encoder:SparseEncoder"},
    keras_modules=("official_bert.extensions.sparse.model",),
)
