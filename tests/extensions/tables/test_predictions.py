"""A table in, the same table with predictions out: by --do_predict and by official-bert predict."""

import gzip
import io
import json
import sys

import numpy as np
import pytest

from official_bert import InputError, Predictor
from official_bert.extensions.tables.answer_columns import make_columns
from tests.extensions.tables.tickets import COLUMNS, make_rows, read_csv, write_csv
from tests.scripts import end_of, flag_list, run_here
from tests.serving import exported

PROBABILITIES = ["probability_cats, dogs", "probability_trains"]


@pytest.fixture(scope="module", autouse=True)
def models_are_loaded_once():
    with exported.models_loaded_once():
        yield


def predict(model, input_file, output_file, *others, **flags) -> str:
    """Runs official-bert predict; returns the log."""
    files = {"model": model, "input_file": input_file, "output_file": output_file}
    return run_here("predict", *others, *flag_list(**files, **flags)).stderr


def test_do_predict_writes_the_test_table_with_its_predictions(tickets):
    rows = read_csv(tickets.model / "predictions.csv")
    assert list(rows[0]) == [*COLUMNS, "label", "probability", *PROBABILITIES]
    assert [[row[name] for name in COLUMNS] for row in rows] == make_rows(6, 128)
    assert [row["label"] for row in rows] == [row["Team"] for row in rows]
    # The original's file has the same numbers, without names.
    results = np.loadtxt(tickets.model / "test_results.tsv")
    for row, values in zip(rows, results, strict=True):
        assert [float(row[name]) for name in PROBABILITIES] == list(values)
        assert float(row["probability"]) == max(values)


def test_predict_reads_the_columns_of_the_training_and_adds_its_own(tickets, tmp_path):
    log = predict(tickets.model, tickets.test_file, tmp_path / "out.csv", "--all_probabilities")
    assert "Reading text_a=Message; ignoring ticket id, Team, Channel" in log
    rows = read_csv(tmp_path / "out.csv")
    expected = read_csv(tickets.model / "predictions.csv")
    for row, other in zip(rows, expected, strict=True):
        assert list(row) == list(other)
        for name in COLUMNS:
            assert row[name] == other[name]
        for name in ("probability", *PROBABILITIES):
            assert float(row[name]) == pytest.approx(float(other[name]), abs=1e-5)


def test_the_folder_remembers_its_columns(tickets, tmp_path):
    record = json.loads((tickets.model / "task.json").read_text())
    assert record["settings"]["columns"] == {"text_a": "Message", "label": "Team"}
    # The order of the columns is another one, and there is no team.
    names = ["Channel", "Message", "Text"]
    table = write_csv(tmp_path / "new.csv", [["mail", "the cat", "a train"]], names)
    flags = {
        "task_name": "text",
        "model": tickets.model,
        "output_dir": tmp_path / "out",
        "test_file": table,
    }
    run_here("run_classifier.py", "--do_predict", *flag_list(**flags))
    (row,) = read_csv(tmp_path / "out" / "predictions.csv")
    assert list(row) == [*names, "label", "probability"]
    assert row["label"] == "cats, dogs"


def test_a_table_without_the_column_of_the_training_is_refused(tickets, tmp_path):
    names = ["When", "What"]
    table = write_csv(tmp_path / "new.csv", [["Monday", "the cat"]], names)
    files = {"model": tickets.model, "input_file": table, "output_file": tmp_path / "out.csv"}
    ended = end_of("predict", *flag_list(**files))
    assert (
        "new.csv: has no column Message, on which the model was trained, only When, What; "
        "name that of the text, --text_columns=..." in ended.sentence
    )
    assert not (tmp_path / "out.csv").exists()
    predict(tickets.model, table, tmp_path / "out.csv", "--text_columns=What")
    (row,) = read_csv(tmp_path / "out.csv")
    assert row["label"] == "cats, dogs"


def records(count: int) -> list[dict]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in make_rows(count)]


def as_json_lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_json_lines_keep_their_values(tickets, tmp_path):
    rows = [row | {"Channel": {"kind": "mail", "open": None}} for row in records(3)]
    (tmp_path / "in.jsonl").write_text(as_json_lines(rows))
    predict(tickets.model, tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    answers = Predictor(tickets.model)([row["Message"] for row in rows])
    for row, line, answer in zip(rows, written, answers, strict=True):
        probability = answer["probabilities"][answer["label"]]
        assert line == row | {"label": answer["label"], "probability": probability}


def test_the_output_has_the_format_of_its_ending(tickets, tmp_path):
    with gzip.open(tmp_path / "in.jsonl.gz", "wt") as file:
        file.write(as_json_lines(records(2)))
    predict(tickets.model, tmp_path / "in.jsonl.gz", tmp_path / "out.csv.gz")
    with gzip.open(tmp_path / "out.csv.gz", "rt") as file:
        assert file.readline() == ",".join([*COLUMNS, "label", "probability"]) + "\n"
    predict(tickets.model, tmp_path / "in.jsonl.gz", tmp_path / "named")
    with (tmp_path / "named").open() as file:
        assert json.loads(file.readline())["label"] == "cats, dogs"


@pytest.mark.needs_extra("pyarrow")
def test_parquet_keeps_its_types(tickets, tmp_path):
    import pyarrow
    from pyarrow import parquet

    rows = [row | {"number": number} for number, row in enumerate(records(3))]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")
    predict(tickets.model, tmp_path / "in.parquet", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == [*COLUMNS, "number", "label", "probability"]
    assert table["number"].to_pylist() == [0, 1, 2]
    assert table["label"].to_pylist() == ["cats, dogs", "trains", "cats, dogs"]
    ended = end_of("predict", *flag_list(model=tickets.model, input_file=tmp_path / "in.parquet"))
    assert "Parquet is not for standard output; name a file" in ended.sentence


def test_a_tsv_is_a_table_if_its_first_line_names_the_texts(tickets, tmp_path):
    table = tmp_path / "in.tsv"
    table.write_text("Message\tid\nthe cat\t1\n")
    predict(tickets.model, table, tmp_path / "out.tsv")
    header, row = (tmp_path / "out.tsv").read_text().splitlines()
    assert header == "Message\tid\tlabel\tprobability"
    assert row.startswith("the cat\t1\tcats, dogs\t0.")

    # Other files with this ending have a request on each line, as in earlier versions.
    table.write_text("the cat\nthe train\n")
    log = predict(tickets.model, table, tmp_path / "lines.jsonl")
    assert "Line 1 names no column of texts, so each line is a request" in log
    lines = (tmp_path / "lines.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["cats, dogs", "trains"]
    table.write_text("text\nthe train\n")
    predict(tickets.model, table, tmp_path / "lines.jsonl", input_format="tsv")
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 2


def test_a_column_of_the_same_name_stays(tickets, tmp_path):
    names = ["text", "label", "probability"]
    table = write_csv(tmp_path / "in.csv", [["the cat", "x", "y"]], names)
    predict(tickets.model, table, tmp_path / "out.csv")
    (row,) = read_csv(tmp_path / "out.csv")
    assert list(row) == [*names, "predicted_label", "predicted_probability"]
    assert (row["label"], row["predicted_label"]) == ("x", "cats, dogs")


def test_standard_streams(tickets, capsysbinary, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sys.stdout.buffer, write_through=True))
    run_here(
        "predict",
        "--text_columns=1",
        "--has_header=false",
        *flag_list(model=tickets.model, input_file=tickets.test_file),
    )
    lines = capsysbinary.readouterr().out.decode().split("mail")
    # The names of the columns are a row.
    assert lines[0].startswith("ticket id,Message,Team,Channel,")
    assert len(lines) == 7


def test_invalid_rows_are_reported_in_their_place(tickets, tmp_path, caplog):
    rows = [{"Message": 7, "id": 1}, {"Message": "the cat " * 20, "id": 2}]
    (tmp_path / "in.jsonl").write_text(as_json_lines(rows))
    predict(tickets.model, tmp_path / "in.jsonl", tmp_path / "out.csv", on_error="report")
    first, second = read_csv(tmp_path / "out.csv")
    assert first["label"] == ""
    assert first["error"].endswith("in.jsonl: line 1: Message is not a text; give it a text")
    assert second["label"] == "cats, dogs"
    assert second["error"] == ""
    (cut,) = [text for text in caplog.messages if "truncates" in text]
    assert cut.endswith("in.jsonl: the model truncates the texts of 1 of 2 rows")


def test_invalid_rows_at_the_beginning_have_the_columns_of_the_answers(tickets, tmp_path):
    rows = [{"Message": number} for number in range(40)] + [{"Message": "the cat"}]
    (tmp_path / "in.jsonl").write_text(as_json_lines(rows))
    flags = {"on_error": "report", "batch_size": 1}
    predict(tickets.model, tmp_path / "in.jsonl", tmp_path / "out.csv", **flags)
    written = read_csv(tmp_path / "out.csv")
    assert len(written) == 41
    assert list(written[0]) == ["Message", "label", "probability", "error"]
    assert [row["label"] for row in written[-2:]] == ["", "cats, dogs"]

    # All rows are invalid.
    (tmp_path / "in.jsonl").write_text(as_json_lines(rows[:2]))
    predict(tickets.model, tmp_path / "in.jsonl", tmp_path / "out.csv", **flags)
    assert [list(row) for row in read_csv(tmp_path / "out.csv")] == [["Message", "error"]] * 2


def test_every_kind_of_answer_becomes_columns(tmp_path, tmp_path_factory):
    questions = [{"context": "the cat sat on the mat", "question": "who ?", "id": "q1"}]
    (tmp_path / "in.jsonl").write_text(as_json_lines(questions))
    model = exported.shared_export(tmp_path_factory, "squad").path
    predict(model, tmp_path / "in.jsonl", tmp_path / "out.csv", max_query_length=8)
    (row,) = read_csv(tmp_path / "out.csv")
    names = ["context", "question", "id", "answer", "start", "end", "score", "probability"]
    assert list(row) == names
    assert row["context"][int(row["start"]) : int(row["end"])] == row["answer"]

    # Several labels; the columns by their numbers.
    table = write_csv(tmp_path / "in.csv", [["the cat"], ["a train"]], ["anything"])
    model = exported.shared_export(tmp_path_factory, "tsv").path
    predict(model, table, tmp_path / "labels.csv", "--all_probabilities")
    answers = Predictor(model)(["the cat", "a train"])
    for row, answer in zip(read_csv(tmp_path / "labels.csv"), answers, strict=True):
        assert row["labels"] == ",".join(answer["labels"])
        for label, probability in answer["probabilities"].items():
            assert float(row[f"probability_{label}"]) == pytest.approx(probability, abs=1e-6)


@pytest.mark.parametrize(
    "answer",
    [
        {"score": float("nan")},
        {"label": "a", "probabilities": {"a": float("nan"), "b": 0.5}},
        {"choice": 1, "probabilities": [0.5, float("inf")]},
    ],
)
def test_numbers_that_are_not_finite_are_refused(answer):
    with pytest.raises(InputError, match=r"^the model gives numbers that are not finite; its"):
        make_columns(answer, all_probabilities=False)
