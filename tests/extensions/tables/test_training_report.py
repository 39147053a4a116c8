"""What a folder says of its training: Predictor.history and Predictor.report."""

import json

import pytest

from official_bert import InputError, Predictor
from official_bert.extensions.tables.training_report import make_report, read_history
from tests.extensions.tables.tickets import WORDS_BY_TEAM
from tests.scripts import flag_list, run_here
from tests.serving import exported


@pytest.fixture(scope="module")
def evaluated(tickets, tmp_path_factory):
    """The trained classifier, evaluated on its test set."""
    flags = {
        "task_name": "text",
        "dev_file": tickets.test_file,
        "output_dir": tickets.model,
    }
    run_here("run_classifier.py", "--do_eval", *flag_list(**flags))
    return Predictor(tickets.model)


def test_the_history_has_every_progress_line(evaluated):
    steps = [line["step"] for line in evaluated.history]
    assert steps == sorted(steps)
    assert steps[-1] == 128
    assert evaluated.history[-1]["loss"] < evaluated.history[0]["loss"]


def test_a_repeated_evaluation_counts_once(tmp_path):
    lines = [
        {"type": "train", "step": 2, "loss": 1.5},
        {"type": "evaluation", "step": 2, "set": "eval", "eval_loss": 0.7},
        {"type": "evaluation", "step": 2, "eval_loss": 0.6},
        {"type": "evaluation", "step": 2, "set": "eval", "eval_loss": 0.8},
    ]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    class Opened:
        path = str(tmp_path)

    assert read_history(Opened()) == [
        {"step": 2, "loss": 1.5},
        {"step": 2, "set": "eval", "eval_loss": 0.8},
        {"step": 2, "eval_loss": 0.6},
    ]


def test_a_report_is_a_table_for_people(evaluated):
    report = evaluated.report()
    training, evaluation, labels = report.tables
    assert training.names == ["step", "loss", "learning_rate"]
    assert training.rows[-1][0] == "128"
    assert ["accuracy", "1"] in evaluation.rows
    perfect = ["1.0000", "1.0000", "1.0000", "3"]
    assert labels.rows == [[label, *perfect] for label in WORDS_BY_TEAM]
    assert str(report).splitlines()[-1] == "trains         1.0000  1.0000  1.0000         3"
    assert "<td>cats, dogs</td>" in report._repr_html_()


def test_a_folder_without_a_training_is_refused(tmp_path_factory):
    model = Predictor(exported.shared_export(tmp_path_factory, "mrpc").path)
    with pytest.raises(InputError, match=r"has no run.jsonl with the steps of a training; open"):
        model.report()


def test_a_damaged_table_is_refused(evaluated, tmp_path):
    path = evaluated.path
    damaged = tmp_path / "model"
    damaged.mkdir()
    with open(f"{path}/run.jsonl") as log:
        (damaged / "run.jsonl").write_text(log.read())
    (damaged / "confusion_matrix.tsv").write_text("\ta\tb\na\t1\n")

    class Opened:
        path = str(damaged)
        history = evaluated.history

    with pytest.raises(InputError, match=r"confusion_matrix.tsv: is no table of counts; evaluate"):
        make_report(Opened())
