"""run_experiment.py's runner: what it prints, what it writes of finished runs, and what it refuses."""

import json
import shlex

import pytest

from official_bert.commands import run_experiment
from official_bert.io.errors import InputError
from official_bert.jobs.experiments import results
from official_bert.jobs.experiments.definitions import read_catalogue, read_experiment
from official_bert.jobs.experiments.plan import Settings, make_plan
from official_bert.jobs.experiments.steps import Layout
from official_bert.options.running import ExperimentOptions
from tests import toy
from tests.experiment_data import TWO_ROWS, write_data
from tests.shared import ROOT


@pytest.fixture
def options(tmp_path):
    """A function that returns options of the made-up experiment with some changes."""
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    write_data(tmp_path / "data")

    def make(**changes) -> ExperimentOptions:
        given = {
            "name": str(tmp_path / "two.toml"),
            "scale": "smoke",
            "data_dir": str(tmp_path / "data"),
            "output_dir": str(tmp_path / "out"),
        }
        return ExperimentOptions(**(given | changes))

    return make


def test_a_dry_run_prints_commands_for_a_shell_and_makes_nothing(options, capsys, tmp_path):
    run_experiment.run(options(dry_run=True))
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "# 9 of 9 commands are still to run, for 4 cells of the table"
    commands = [shlex.split(line)[1] for line in lines if line.startswith("python ")]
    assert [command.rpartition("/")[2] for command in commands] == [
        "build_vocab.py",
        "create_pretraining_data.py",
        "create_pretraining_data.py",
        *["run_pretraining.py", "run_pretraining.py", "run_classifier.py"] * 2,
    ]
    assert not (tmp_path / "out").exists()


def finish(tmp_path, kind: str, metrics: str):
    """Makes the first step of a kind of the made-up experiment a finished one with some metrics."""
    catalogue = read_catalogue(str(ROOT / "experiments"))
    experiment = read_experiment(str(tmp_path / "two.toml"), catalogue)
    plan = make_plan(experiment, catalogue.scale("smoke"), catalogue, Settings())
    layout = Layout(str(tmp_path / "out/smoke/steps"), str(tmp_path / "data"), {}, str(ROOT))
    step = next(step for step in plan.steps if step.kind == kind)
    output = tmp_path / layout.output(step)
    output.mkdir(parents=True)
    (output / "eval_results.txt").write_text(metrics)
    results.write_result(layout, step, 3.0, is_resumed=False)


def test_a_report_of_what_is_finished(options, tmp_path, caplog):
    run_experiment.run(options(report=True))
    assert "no run of a cell is finished with the data and models of --data_dir and --encoder" in caplog.text
    finish(tmp_path, "fine-tuning", "eval_spearman = 0.5\n")
    run_experiment.run(options(report=True))
    (line,) = (tmp_path / "out/smoke/two.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["arm"], found["task"], found["value"], found["secs"]) == ("BERT", "STS-B", 50.0, 3.0)
    assert "| BERT | – | 3.5 | 50.0 (1) | 85.8 |" in (tmp_path / "out/smoke/two.md").read_text()


def test_a_report_that_finds_nothing_names_absent_data(options, tmp_path):
    finish(tmp_path, "fine-tuning", "eval_spearman = 0.5\n")
    elsewhere = write_data(tmp_path / "elsewhere")
    (elsewhere / "corpus" / "held_out.txt").unlink()
    (elsewhere / "STS-B" / "dev.tsv").write_text("another file\n")
    with pytest.raises(InputError) as raised:
        run_experiment.run(options(report=True, data_dir=str(elsewhere)))
    assert str(raised.value).startswith(f"{elsewhere}/corpus/held_out*.txt: no such file or folder, which ")
    assert "or name another --data_dir" in str(raised.value)
    (tmp_path / "data" / "corpus" / "held_out.txt").unlink()
    run_experiment.run(options(report=True))  # a run is found, and nothing more is needed
    assert (tmp_path / "out/smoke/two.md").exists()


def test_a_column_without_its_metric_is_empty_and_the_script_fails(options, tmp_path, caplog):
    finish(tmp_path, "evaluation", "next_sentence_accuracy = 0.5\n")
    with pytest.raises(SystemExit) as ended:
        run_experiment.run(options(report=True))
    assert ended.value.code == 1
    assert "| BERT | – | 3.5 | – | 85.8 |" in (tmp_path / "out/smoke/two.md").read_text()
    finish(tmp_path, "fine-tuning", "eval_spearman = 0.5\n")
    caplog.clear()
    with pytest.raises(SystemExit) as ended:
        run_experiment.run(options(report=True))
    assert ended.value.code == 1
    assert "| BERT | – | 3.5 | 50.0 (1) | 85.8 |" in (tmp_path / "out/smoke/two.md").read_text()
    (sentence,) = [text for text in caplog.messages if "has empty cells" in text]
    assert "have no 'perplexity', but next_sentence_accuracy; correct the metric" in sentence
    (line,) = (tmp_path / "out/smoke/two.jsonl").read_text().splitlines()
    assert json.loads(line)["task"] == "STS-B"


def test_a_run_ends_with_status_1_if_a_column_lacks_its_metric(options, tmp_path, monkeypatch):
    finish(tmp_path, "evaluation", "next_sentence_accuracy = 0.5\n")
    monkeypatch.setattr(run_experiment, "execute", lambda steps, layout, num_parallel: [])
    with pytest.raises(SystemExit) as ended:
        run_experiment.run(options())
    assert ended.value.code == 1


def test_without_matplotlib_there_is_a_table_and_a_sentence(options, tmp_path, caplog, monkeypatch):
    def draw(path, plan, values):
        raise InputError("the picture needs matplotlib, which cannot be imported")

    monkeypatch.setattr(run_experiment, "draw", draw)
    test_a_report_of_what_is_finished(options, tmp_path, caplog)
    assert "No picture: the picture needs matplotlib" in caplog.text


def test_an_estimate_needs_no_data(options, capsys):
    run_experiment.run(options(name="table1", scale="paper", data_dir="nowhere", estimate=True))
    text = capsys.readouterr().out
    assert text.startswith("Table 1: GLUE, scale paper: an estimate on paper, at 40% of the peak\n")
    assert "| hours, TPU v4-32 | hours, 8 x H100 SXM |" in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"name": ""},
            "no experiment: name one before the flags, as in run_experiment.py table5 --scale=tiny",
        ),
        ({"name": "table9"}, "table9: there is no such experiment in"),
        ({"scale": "huge"}, "--scale=huge: "),
        ({"data_dir": "nowhere"}, "(column 'STS-B': --data_dir has not the data of STS-B); choose"),
        (
            {"scale": "tiny", "data_dir": "nowhere"},
            "nowhere/corpus/train*.txt: no such file or folder, which",
        ),
        (
            {"name": "table3", "scale": "tiny"},
            "table3.toml: only fine-tunes models that are given (base and large)",
        ),
        ({"encoder": ["nowhere"]}, "--encoder=nowhere: no such folder; check the path"),
        ({"dry_run": True, "report": True}, "--dry_run, --report and --estimate: each does something else"),
        (
            {"training_flags": ["x=1"]},
            "--training_flags=x=1: the training scripts share no flag of that name",
        ),
        ({"experiments_dir": "nowhere"}, "nowhere: no such folder; run the script of a checkout"),
    ],
)
def test_what_is_refused(options, changes, sentence, tmp_path):
    with pytest.raises(InputError) as raised:
        run_experiment.run(options(**changes))
    assert sentence in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_configuration_is_refused(options, tmp_path):
    (tmp_path / "model").mkdir()
    toy.write_vocabulary(tmp_path / "model")
    with pytest.raises(InputError, match=r"the folder has no bert_config\.json or config\.json"):
        run_experiment.run(options(name="table3", scale="tiny", encoder=[str(tmp_path / "model")]))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("hidden_size", "x", "hidden_size must be a positive whole number, got 'x'"),
        ("num_hidden_layers", None, "num_hidden_layers is missing; add it to the config file"),
    ],
)
@pytest.mark.parametrize("estimate", [True, False])
def test_a_model_with_a_wrong_configuration_is_refused(options, tmp_path, field, value, said, estimate):
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "bert_config.json"
    path.write_text(json.dumps(toy.BERT_CONFIG | {field: value}))
    with pytest.raises(InputError) as raised:
        run_experiment.run(
            options(
                name="table3", scale="tiny", encoder=[str(folder)], estimate=estimate, dry_run=not estimate
            )
        )
    assert str(raised.value) == f"{path}: {said}"


def test_an_unknown_flag_in_a_declaration_is_refused_before_anything_runs(options, tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(TWO_ROWS.replace("use_next_sentence", "use_next_sentense"))
    with pytest.raises(
        InputError, match=r"run_pretraining.py has no flag --use_next_sentense .*; did you mean"
    ):
        run_experiment.run(options())
