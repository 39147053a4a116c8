"""What vectors know of labels: evaluations of run_embeddings by clusters and small classifiers."""

from official_bert.extension import Extension

EXTENSION = Extension(
    name="probing",
    summary="Evaluates embeddings by clusters and by classifiers that learn from few examples.",
    hooks={
        "embedding_evaluations": "official_bert.extensions.probing.plugin:embedding_evaluations"
    },
)
