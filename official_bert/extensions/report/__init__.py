"""Reports: one page with the curves, the tables and the examples of a run, and its model card."""

from official_bert.extension import Command, Extension

_HERE = "official_bert.extensions.report"
_COMMANDS = (
    "run_pretraining",
    "run_classifier",
    "run_squad",
    "run_swag",
    "run_ner",
    "run_embeddings",
    "run_reranker",
    "run_sparse_embeddings",
    "run_late_interaction",
)

EXTENSION = Extension(
    name="report",
    summary="Writes a page with the curves, tables and examples of a run, and a model card.",
    commands={
        "report": Command(
            options=f"{_HERE}.options:ReportOptions",
            function=f"{_HERE}.command:run",
            summary="Writes a page about a training run, or about several side by side.",
            stage="Evaluate",
            example="my_model",
        )
    },
    options=dict.fromkeys(_COMMANDS, f"{_HERE}.options:ReportFlag"),
    hooks={
        "fine_tuning": f"{_HERE}.plugin:ReportPlugin",
        "pretraining": f"{_HERE}.plugin:ReportPlugin",
    },
)
