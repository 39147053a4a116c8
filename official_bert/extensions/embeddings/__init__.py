"""Sentence embeddings: one vector for each text, trained, evaluated and served."""

from official_bert.extension import Command, Extension, Family

EXTENSION = Extension(
    name="embeddings",
    summary="Trains, evaluates and uses models that give similar texts similar embeddings.",
    commands={
        "run_embeddings": Command(
            options="official_bert.extensions.embeddings.options:EmbeddingOptions",
            function="official_bert.extensions.embeddings.command:run",
            summary="Trains BERT to give similar texts similar vectors, evaluates the vectors, and "
            "writes those of texts.",
            check="official_bert.extensions.embeddings.options:check_paths",
            stage="Fine-tune",
            example="--data_dir=pairs --model=bert --do_train --do_eval --output_dir=my_encoder",
        )
    },
    families={
        "embedding": Family(
            task="official_bert.extensions.embeddings.task:EmbeddingTask",
            script="run_embeddings",
            tasks=("embedding",),
            head_weights=("projection/",),
            encoder="SentenceEncoder",
        )
    },
    options={"export_saved_model": "official_bert.extensions.embeddings.options:EmbeddingServing"},
    hooks={
        "model_layout": "official_bert.extensions.embeddings.layout:find_layout",
        "predictor_methods": "official_bert.extensions.embeddings.task:predictor_methods",
    },
    public={
        "SentenceEncoder": "official_bert.extensions.embeddings.sentence_encoder:SentenceEncoder"
    },
    keras_modules=("official_bert.extensions.embeddings.model",),
)
