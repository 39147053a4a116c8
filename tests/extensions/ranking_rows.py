"""Hostile runs of the trainings on queries and documents, for the tests of several extensions."""

import pathlib

from tests.hostile.rows import Row, model_flags, row

HEADER = "query\tdocument\n"
PAIRS = HEADER + "the cat\tthe mat\na train\tthe station\nthe rain\tthe park\n"
LABELLED = "query\tdocument\tlabel\n"
# Flags, in which AT is the folder of the row, and parts of the sentence.
FLAGS = (
    ("--loss=mse", "--loss=mse", "multiple_negatives_ranking|margin_mse"),
    ("--scale=0", "--scale=0.0: must be positive"),
    ("--scale=5 --loss=margin_mse", "has no effect without --loss=multiple_negatives_ranking"),
    ("--max_seq_length=600", "--max_seq_length=600", "max_position_embeddings=512"),
    ("--positive_column=b", "--positive_column=b: ", "only query, document"),
    ("--label_column=query", "is the column that anchor is read from"),
    ("--loss=margin_mse", "pairs.tsv: line 2: has no label; give the pair a number"),
    ("--train_file=AT/absent.tsv", "absent.tsv"),
    ("--train_file= --data_dir=AT/absent", "absent: has neither train.tsv nor"),
    ("--do_eval", "--dev_file: must be given, or --data_dir"),
    ("--nodo_train", "nothing to do: give --do_train, --do_eval or --do_predict"),
    ("--output_dir=AT/vocab.txt", "vocab.txt: no folder can be made there"),
    ("--model=AT/absent", "absent: no such folder; check the path"),
    ("--model=AT --output_dir=AT", "is the folder of the model that the training begins with"),
)
# The name of a row, its table, and parts of the sentence.
TABLES = (
    ("an empty file", "", "holds no example; check the file"),
    ("names alone", HEADER, "holds no example; check the file"),
    ("one column", "query\na\n", "line 2: --loss=", "needs two texts in each example"),
    ("other columns", "a\tb\nx\ty\n", "none of its columns a, b has a usual name"),
    ("a short row", f"{HEADER}a\n", "line 2: has 1 columns, the first one 2"),
    ("a blank document", f"{HEADER}a\t\n", "line 2: document is blank"),
    ("labels", f"{LABELLED}a\tb\t0.5\n", "line 2: has the label 0.5, but --loss="),
    ("a label in words", f"{LABELLED}a\tb\tgood\n", "line 2: the label 'good' is no number"),
)


def train(at: pathlib.Path, script: str, *flags: str, rows: str = PAIRS) -> list[str]:
    """Write a table, and return the command of a training on it."""
    (at / "pairs.tsv").write_text(rows)
    flags = tuple(flag.replace("AT", str(at)) for flag in flags)
    has_model = any(flag.startswith("--model=") for flag in flags)
    files = [f"--train_file={at}/pairs.tsv", f"--output_dir={at}/out"]
    sizes = ["--max_seq_length=16", "--train_batch_size=2", "--do_train"]
    return [script, *([] if has_model else model_flags(at)), *files, *sizes, *flags]


def evaluate(at: pathlib.Path, script: str, model: str, *flags: str, rows: str = PAIRS):
    """Write a table, and return the command of an evaluation of a model on it."""
    (at / "pairs.tsv").write_text(rows)
    files = [f"--model={model}", f"--dev_file={at}/pairs.tsv", f"--output_dir={at}/out"]
    return [script, *files, "--do_eval", *flags]


def list_rows(script: str) -> list[Row]:
    """Return what every training on queries and documents refuses."""
    rows = [
        row(flags, lambda at, flags=flags: train(at, script, *flags.split()), *sentence)
        for flags, *sentence in FLAGS
    ]
    for name, table, *sentence in TABLES:
        make = lambda at, table=table: train(at, script, rows=table)  # noqa: E731
        rows.append(row(name, make, "pairs.tsv: ", *sentence))
    rows.append(
        row(
            "margins without wrong documents",
            lambda at: train(at, script, "--loss=margin_mse", rows=f"{LABELLED}a\tb\t1\n"),
            "line 2: --loss=margin_mse needs an anchor, a positive and a negative text",
        )
    )
    return rows
