"""Hostile tables: what official-bert predict refuses in one sentence, and what it leaves."""

import pytest

from tests.hostile.rows import check, row, table


def predict(folder, content: str, *others, name="in.csv", output="out.csv") -> list[str]:
    """A prediction by the good model, which is a pre-trained one."""
    (folder / name).write_text(content, encoding="utf-8")
    files = [f"--input_file={folder / name}", f"--output_file={folder / output}"]
    return ["predict", f"--model={folder}", *files, *others]


TABLES = [
    row(
        "no column of texts",
        lambda at: predict(at, "when,what,who\n1,2,3\n"),
        "in.csv: has 3 columns, when, what, who; name that of text_a, --text_columns=...",
    ),
    row(
        "a column that is not there",
        lambda at: predict(at, "when,what\n1,2\n", "--text_columns=which"),
        "--text_columns=which: ",
        "in.csv has no such column, only when, what",
    ),
    row(
        "more columns than texts",
        lambda at: predict(at, "a,b,c\n1,2,3\n", "--text_columns=a,b,c"),
        "--text_columns=a,b,c: names 3 columns, and the model reads text_a, text_b; leave",
    ),
    row(
        "a name twice",
        lambda at: predict(at, "text,id,id\na,1,2\n"),
        "in.csv: line 1: names a column twice; name each once",
    ),
    row(
        "a short row",
        lambda at: predict(at, "text,id\na,1\nb\n"),
        "in.csv: line 3: has 1 columns, the first one 2; complete or correct it",
    ),
    row(
        "an open quote",
        lambda at: predict(at, 'text,id\n"a,1\nb,2\n'),
        "in.csv: line 3: unexpected end of data; check the quotes",
    ),
    row(
        "a second header",
        lambda at: predict(at, "text,id\na,1\ntext,id\n"),
        "in.csv: line 3: has the names of the columns again",
    ),
    row(
        "only names",
        lambda at: predict(at, "text,id\n"),
        "in.csv: has no row below the names of the columns; check the file",
    ),
    row("nothing", lambda at: predict(at, ""), "in.csv: has no row below the names"),
    row(
        "a number as text",
        lambda at: predict(at, '{"text": "a"}\n{"text": 3}\n', name="in.jsonl"),
        "in.jsonl: line 2: text is not a text; give it a text; correct it, or give "
        "--on_error=report to continue",
    ),
    row(
        "an array of objects",
        lambda at: predict(at, '[{"text": "a"}]', name="in.jsonl"),
        "in.jsonl: line 1: begins a JSON array; write its objects without it, one a line",
    ),
    row(
        "half of a pair of surrogates",
        lambda at: predict(at, '{"text": "\\ud800"}\n', name="in.jsonl"),
        "half of a surrogate pair, which is not a character; leave it out",
    ),
    row(
        "no name for the predictions",
        lambda at: predict(at, "text,masks,predicted_masks\n[MASK],a,b\n"),
        "out.csv: has the columns masks and predicted_masks, so that the predictions have no name",
    ),
    row(
        "a line end in TSV",
        lambda at: predict(at, 'text,id\n"the [MASK]",1\n"a\n[MASK]",2\n', output="out.tsv"),
        "out.tsv: a value of the column text has a tab or a line end, which a TSV file without "
        "quotes can't contain; write a file .csv, or give --quoting=csv",
    ),
    row(
        "other columns in a later row",
        lambda at: predict(at, "text\n[MASK]\nthe cat\n", "--batch_size=1"),
        leaves=("out.csv",),
    ),
    row(
        "over the input",
        lambda at: predict(at, "text\na\n", output="in.csv"),
        "is also an input of this run (--input_file)",
    ),
]
FLAGS = [
    row(
        "probabilities of lines",
        lambda at: predict(at, "a\n", "--all_probabilities", name="in.txt"),
        "--all_probabilities=True: is for tables, and ",
        "in.txt is none; name a file that ends in .csv, .tsv, .jsonl, .parquet, or give "
        "--data_format",
    ),
    row(
        "columns of lines",
        lambda at: predict(at, "a\n", "--text_columns=a", "--input_format=tsv"),
        "--text_columns=a: is for tables, and ",
        "in.csv is none; leave --input_format=tsv out",
    ),
    row(
        "a format of tables and one of lines",
        lambda at: predict(at, "a\n", "--data_format=csv", "--input_format=json"),
        "--data_format=csv: is for tables, and ",
    ),
    row(
        "no header of lines",
        lambda at: predict(at, "a\n", "--has_header=false", name="in.txt"),
        "--has_header=False: is for tables, and ",
        "in.txt is none; name a file that ends in .csv",
    ),
    row(
        "no header of lines of a format",
        lambda at: predict(at, '{"text_a": "a"}\n', "--nohas_header", "--input_format=json"),
        "--has_header=False: is for tables, and ",
        "in.csv is none; leave --input_format=json out",
    ),
    row(
        "no header of JSON lines",
        lambda at: predict(at, '{"text": "a"}\n', "--has_header=false", name="in.jsonl"),
        "--has_header=false: ",
        "in.jsonl is jsonl, which always names its fields; leave it out",
    ),
    row(
        "probabilities of no predictions",
        lambda at: [
            "run_classifier.py",
            "--task_name=text",
            f"--model={at}",
            f"--train_file={at / 'corpus.txt'}",
            f"--output_dir={at / 'out'}",
            "--do_train",
            "--all_probabilities",
        ],
        "--all_probabilities: only goes with --task_name=text and --do_predict; leave it out",
    ),
]


@table(TABLES)
def test_tables_are_refused(row, folder):
    check(row, folder)


@table(FLAGS)
def test_flags_are_refused(row, folder):
    check(row, folder)


@pytest.mark.needs_extra("pyarrow")
def test_a_file_that_is_no_parquet(folder):
    what = row(
        "no Parquet",
        lambda at: predict(at, "text\na\n", name="in.parquet", output="out.parquet"),
        "in.parquet: cannot be read as Parquet",
    )
    check(what, folder)
