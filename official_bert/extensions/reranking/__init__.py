"""Rerankers: one score for a query and a document, trained, evaluated and served."""

from official_bert.extension import Command, Extension, Family

EXTENSION = Extension(
    name="reranking",
    summary="Trains, evaluates and serves models that order documents for a query.",
    commands={
        "run_reranker": Command(
            options="official_bert.extensions.reranking.options:RerankerOptions",
            function="official_bert.fine_tuning.run:fine_tune",
            summary="Trains BERT to order documents for a query, evaluates the order, and writes "
            "the scores of documents.",
            check="official_bert.commands.first_checks:check_fine_tuning",
            stage="Fine-tune",
            example="--data_dir=questions --model=bert --do_train --do_eval "
            "--output_dir=my_reranker",
        )
    },
    families={
        "reranking": Family(
            task="official_bert.extensions.reranking.task:RerankingTask",
            script="run_reranker",
            tasks=("reranking",),
            huggingface_class="BertForSequenceClassification",
            head_weights=("output_weights", "output_bias"),
        )
    },
    options={"export_saved_model": "official_bert.extensions.reranking.options:RerankerServing"},
    hooks={"model_layout": "official_bert.extensions.reranking.layout:find_layout"},
)
