"""official-bert run_experiment: what it prints and refuses, a kill in the middle, and each table of
the paper at its smallest.
"""

import itertools
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest

from official_bert.extensions.experiments import command as run_experiment
from official_bert.extensions.experiments.execution import write_result
from official_bert.extensions.experiments.options import ExperimentOptions
from official_bert.io.errors import InputError
from tests import toy
from tests.experiment_data import TWO_ROWS, write_data
from tests.scripts import command_line, end_of, flag_list, run_script, wait_for
from tests.shared import ROOT

TABLES = ROOT / "official_bert" / "extensions" / "experiments" / "tables"


@pytest.fixture
def run(tmp_path):
    """A function that runs the made-up experiment, with some changes of its options."""
    experiment = tmp_path / "two.toml"
    experiment.write_text(TWO_ROWS)
    data = write_data(tmp_path / "data")
    flags = {
        "name": str(experiment),
        "scale": "smoke",
        "data_dir": str(data),
        "output_dir": str(tmp_path / "out"),
    }

    def run_with(**changes):
        options = ExperimentOptions(**(flags | changes))
        run_experiment.run(options)

    return run_with


def test_it_only_prints_commands_for_a_shell_and_makes_nothing(run, capsys, tmp_path):
    run(only="commands")
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "# 9 of 9 commands are still to run, for 4 cells"
    command_lines = [line for line in lines if line.startswith("official-bert ")]
    commands = [shlex.split(line)[1] for line in command_lines]
    assert commands == [
        "build_vocab",
        "create_pretraining_data",
        "create_pretraining_data",
        # The first row.
        "run_pretraining",
        "run_pretraining",
        "run_classifier",
        # The second row.
        "run_pretraining",
        "run_pretraining",
        "run_classifier",
    ]
    assert not (tmp_path / "out").exists()


def test_a_report_of_what_is_finished(run, tmp_path, caplog, monkeypatch):
    run(only="table")
    assert "no run of these data and models is finished" in caplog.text

    def execute(steps, layout, num_parallel):
        """Finish the first fine-tuning and no other step."""
        first, *_ = (step for step in steps if step.kind == "fine-tuning")
        folder = pathlib.Path(layout.output(first))
        folder.mkdir(parents=True)
        (folder / "eval_results.txt").write_text("eval_spearman = 0.5\n")
        write_result(layout, first, 3.0, is_resumed=False)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(run_experiment, "execute", execute)
        run()
    (tmp_path / "data" / "corpus" / "held_out.txt").unlink()
    run(only="table")  # a run is finished, and nothing more is needed
    results = tmp_path / "out" / "smoke"
    cell, step = read_json_lines(results / "two.jsonl")
    assert step["secs"] == 3.0
    assert step["step"] == "fine-tuning STS-B 2/16/2 seed 1"
    assert cell["arm"] == "BERT"
    assert cell["task"] == "STS-B"
    assert cell["value"] == 50.0
    assert cell["secs"] == 3.0
    page = (results / "two.md").read_text()
    assert "| BERT | – | 3.5 | 50.0 (1) | 85.8 |" in page

    no_tasks = write_data(tmp_path / "elsewhere", tasks=())
    with pytest.raises(InputError, match=r"--data_dir: lacks [^,]*/elsewhere/STS-B, which "):
        run(only="table", data_dir=str(no_tasks))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        pytest.param(
            {"data_dir": "nowhere"},
            "--data_dir: lacks nowhere/STS-B, nowhere/corpus/held_out*.txt, "
            "nowhere/corpus/train*.txt, which the experiment reads; add what is missing",
            id="absent data",
        ),
        pytest.param(
            {"name": "table3"},
            "table3.toml: nothing is left at --scale=smoke",
            id="nothing left",
        ),
        pytest.param(
            {"model": ["nowhere"]},
            "--model=nowhere: is no folder of a model",
            id="absent model",
        ),
        pytest.param(
            {"training_flags": ["--model=x"]},
            "--model=x: the experiment sets this flag itself",
            id="flag of the experiment",
        ),
    ],
)
def test_what_is_refused(run, changes, sentence, tmp_path):
    with pytest.raises(InputError) as raised:
        run(**changes)
    assert sentence in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_models_by_name(run, tmp_path):
    one = str(toy.make_bert_base_dir(tmp_path / "one"))
    two = str(toy.make_bert_base_dir(tmp_path / "x=two"))

    encoders = run_experiment.read_encoders([f"base={one}", f"large={two}"])
    assert encoders == {"base": one, "large": two}
    encoders = run_experiment.read_encoders([two])
    assert encoders == {"base": two}

    with pytest.raises(InputError, match="names base twice"):
        run_experiment.read_encoders([one, f"base={two}"])
    message = "no row of table1 starts from lrage; name one of base, large"
    with pytest.raises(InputError, match=message):
        run(name="table1", model=[one, f"lrage={two}"])
    message = "no row of table6 starts from base; leave it out"
    with pytest.raises(InputError, match=message):
        run(name="table6", model=[one])


def test_the_name_comes_first():
    ended = end_of("run_experiment", "--scale=smoke", "table5")
    assert "belongs to no flag" in ended.sentence


def read_json_lines(path: pathlib.Path) -> list[dict]:
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines]


def write_one_row(path: pathlib.Path):
    """Write the experiment of two rows without its second row and its task, with long training."""
    measure_only = TWO_ROWS.replace(', { task = "STS-B" }', "")
    measure_only = measure_only.replace(', "STS-B" = 85.8', "")
    second_row = measure_only.rindex("[[rows]]")
    flags = "num_train_steps = 600, log_every_steps = 200, save_checkpoints_steps = 100"
    path.write_text(f"{measure_only[:second_row]}pretraining = {{ {flags} }}\n")


def read_children(process: subprocess.Popen) -> str:
    """Read the numbers of the processes that the main thread of a process has started."""
    pid = process.pid
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return path.read_text()


def modification_times(paths) -> dict[pathlib.Path, int]:
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.long
def test_a_killed_experiment_goes_on_where_it_was(tmp_path):
    """A second run beside it is refused."""
    data = write_data(tmp_path / "data", tasks=())
    experiment = tmp_path / "one.toml"
    write_one_row(experiment)
    options = {
        "scale": "smoke",
        "data_dir": str(data),
        "output_dir": str(tmp_path / "out"),
    }
    flags = [str(experiment), *flag_list(**options)]
    results = tmp_path / "out" / "smoke"
    steps = results / "steps"

    # Start the experiment, and kill it and its training after a checkpoint.
    process = subprocess.Popen(
        [sys.executable, *command_line("run_experiment"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for(
        lambda: list(steps.glob("pretraining-*/output/model.ckpt-200.index")),
        process,
        within_secs=400,
    )
    with pytest.raises(InputError, match="works in it; wait for its end"):
        run_experiment.run(ExperimentOptions(name=flags[0], **options))
    training = int(read_children(process))
    process.kill()
    process.communicate()
    os.kill(training, signal.SIGKILL)

    finished = modification_times(steps.glob("*/result.json"))
    names = set()
    for path in finished:
        name, _hash = path.parent.name.rsplit("-", 1)
        names.add(name)
    assert len(finished) == 3
    assert names == {"records-held-out", "records-train", "vocabulary-400"}

    # The same command runs the other two steps.
    again = run_script("run_experiment", *flags)
    assert "3 of 5 steps are finished already" in again.stderr
    assert modification_times(finished) == finished
    (result,) = steps.glob("pretraining-*/result.json")
    assert json.loads(result.read_text())["is_resumed"]
    log = (result.parent / "log.txt").read_text()
    assert log.count("***** Running training *****") == 2
    assert (result.parent / "output" / "model.ckpt-600.index").exists()

    row, *_ = read_json_lines(results / "one.jsonl")
    perplexity = row["value"]
    assert 1 < perplexity < 400  # words of the vocabulary
    page = (results / "one.md").read_text()
    assert f"| BERT | {perplexity:.2f} (1) | 3.5 |" in page


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, object]:
    """The flags that name data, models and the output of all experiments, which share steps."""
    folder = tmp_path_factory.mktemp("experiments")
    base = toy.make_bert_base_dir(folder / "base", num_hidden_layers=2)  # table 7 reads the first
    large = toy.make_bert_base_dir(folder / "large")
    return {
        "model": f"base={base},large={large}",
        "data_dir": write_data(folder / "data"),
        "output_dir": folder / "out",
    }


def select_models(names: str, rows: list[dict]) -> str:
    """Select of --model=NAME=FOLDER,... the models from which a row of an experiment starts."""
    encoders = {row.get("encoder") for row in rows}
    selected = []
    for model in names.split(","):
        name, _folder = model.split("=", 1)
        if name in encoders:
            selected.append(model)
    return ",".join(selected)


def read_cells(page: str, row: str) -> list[float]:
    """Read the numbers of a row of the page that are the mean of one run, which " (1)" says."""
    pattern = rf"^\| {re.escape(row)} \|(.*)\|$"
    match = re.search(pattern, page, re.MULTILINE)
    values = []
    for cell in match[1].split("|"):
        if cell.endswith(" (1) "):
            number = cell.removesuffix(" (1) ")
            values.append(float(number))
    return values


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("table1", ["CoLA", "STS-B"]),
        ("table2", ["EM", "F1"]),
        ("table3", ["EM", "F1"]),
        ("table4", ["CODAH for SWAG"]),
        ("table5", ["BLiMP", "STS-B for MNLI-m", "CoLA for QNLI", "SQuAD"]),
        ("table6", ["LM (perplexity)", "BLiMP", "STS-B for MNLI-m", "CoLA for MRPC"]),
        ("table7", ["WNUT-17 for Dev F1", "WNUT-17 for Test F1"]),
        (
            "table8",
            [
                "BLiMP",
                "STS-B for MNLI",
                "WNUT-17 for NER, fine-tuned",
                "WNUT-17 for NER, feature-based",
            ],
        ),
        (
            "figure5",
            [
                "STS-B for MNLI at 20 %",
                "STS-B for MNLI at 40 %",
                "STS-B for MNLI at 60 %",
                "STS-B for MNLI at 80 %",
                "STS-B for MNLI at 100 %",
                "BLiMP at 20 %",
                "BLiMP at 40 %",
                "BLiMP at 60 %",
                "BLiMP at 80 %",
                "BLiMP at 100 %",
            ],
        ),
    ],
)
def test_an_experiment_of_the_paper(places, name, columns):
    """Every cell has the result that its run has written; the rows are those of the declaration."""
    declaration = (TABLES / f"{name}.toml").read_text()
    declared_rows = tomllib.loads(declaration)["rows"]
    # There is no TriviaQA.
    rows = [row["label"] for row in declared_rows if "first_task" not in row]

    models = select_models(places["model"], declared_rows)
    flags = flag_list(scale="smoke", **(places | {"model": models}))
    run_script("run_experiment", name, *flags, timeout_secs=1800)

    output = places["output_dir"] / "smoke"
    lines = read_json_lines(output / f"{name}.jsonl")
    results = [line for line in lines if "step" not in line]
    cells = [(result["arm"], result["column"]) for result in results]
    assert cells == list(itertools.product(rows, columns))
    for result in results:
        folder = output / result["folder"]
        assert (folder / "result.json").exists()

    page = (output / f"{name}.md").read_text()
    # The last digit that the page shows of each column.
    roundings = []
    for column in columns:
        has_two_places = column.startswith(("BLiMP", "LM (perplexity)"))
        roundings.append(0.01 if has_two_places else 0.1)
    for row in rows:
        values = [result["value"] for result in results if result["arm"] == row]
        differences = np.subtract(read_cells(page, row), values)
        np.testing.assert_array_less(np.abs(differences), roundings)
