"""Tables in and out: predictions for the rows of a table, and tables of what a model learnt."""

from official_bert.extension import Extension

_HERE = "official_bert.extensions.tables"

EXTENSION = Extension(
    name="tables",
    summary="Adds predictions to the rows of CSV, TSV, JSON lines and Parquet.",
    options={
        "predict": f"{_HERE}.options:InputTableOptions",
        "run_classifier": f"{_HERE}.options:TextTrainingOptions",
        "run_ner": f"{_HERE}.options:SplitOptions",
        "run_swag": f"{_HERE}.options:SplitOptions",
    },
    hooks={
        "fine_tuning": f"{_HERE}.plugin:TablesPlugin",
        "predictor_frame": f"{_HERE}.frames:split_frame",
        "predictor_methods": f"{_HERE}.training_report:methods",
        "read_tagged": f"{_HERE}.annotated_texts:read_marked",
        "predict_table": f"{_HERE}.request_table:find_table",
    },
)
