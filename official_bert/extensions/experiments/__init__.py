"""Experiments: tables of declarations, expanded into commands, run, and tabulated."""

from official_bert.extension import Command, Extension

EXTENSION = Extension(
    name="experiments",
    summary="Reproduces the tables and figures of the paper.",
    commands={
        "run_experiment": Command(
            options="official_bert.extensions.experiments.options:ExperimentOptions",
            function="official_bert.extensions.experiments.command:run",
            summary="Reproduces a table or a figure of the paper: trains and evaluates its models, "
            "writes the table.",
            stage="Evaluate",
            example="table6 --output_dir=experiments",
        )
    },
)
