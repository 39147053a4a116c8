"""official-bert run_experiment: what it prints and refuses, a kill in the middle, and each table of
the paper at its smallest.
"""

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


@pytest.fixture
def run(tmp_path):
    """A function that runs the made-up experiment, with some changes of its options."""
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    write_data(tmp_path / "data")
    places = {"data_dir": str(tmp_path / "data"), "output_dir": str(tmp_path / "out")}
    given = {"name": str(tmp_path / "two.toml"), "scale": "smoke", **places}
    return lambda **changes: run_experiment.run(ExperimentOptions(**(given | changes)))


def test_it_only_prints_commands_for_a_shell_and_makes_nothing(run, capsys, tmp_path):
    run(only="commands")
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "# 9 of 9 commands are still to run, for 4 cells"
    commands = [shlex.split(line)[1] for line in lines if line.startswith("official-bert ")]
    rows = ["run_pretraining", "run_pretraining", "run_classifier"] * 2
    made = ["build_vocab", *["create_pretraining_data"] * 2]
    assert commands == made + rows
    assert not (tmp_path / "out").exists()


def test_a_report_of_what_is_finished(run, tmp_path, caplog, monkeypatch):
    run(only="table")
    assert "no run of these data and models is finished" in caplog.text

    def execute(steps, layout):
        step = next(step for step in steps if step.kind == "fine-tuning")
        os.makedirs(layout.output(step))
        (pathlib.Path(layout.output(step)) / "eval_results.txt").write_text("eval_spearman = 0.5\n")
        write_result(layout, step, 3.0, is_resumed=False)
        return []

    with monkeypatch.context() as patch:
        patch.setattr(run_experiment, "execute", execute)
        run()
    (tmp_path / "data" / "corpus" / "held_out.txt").unlink()
    run(only="table")  # a run is found, and nothing more is needed
    found, of_step = map(json.loads, (tmp_path / "out/smoke/two.jsonl").read_text().splitlines())
    assert (of_step["secs"], of_step["step"]) == (3.0, "fine-tuning STS-B 2/16/2 seed 1")
    assert (found["arm"], found["task"], found["value"], found["secs"]) == (
        "BERT",
        "STS-B",
        50.0,
        3.0,
    )
    assert "| BERT | – | 3.5 | 50.0 (1) | 85.8 |" in (tmp_path / "out/smoke/two.md").read_text()
    with pytest.raises(InputError, match="elsewhere/STS-B: no such file or folder, which "):
        run(only="table", data_dir=str(write_data(tmp_path / "elsewhere", tasks=())))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"data_dir": "nowhere"}, "nowhere/corpus/train*.txt: no such file or folder, which"),
        ({"name": "table3"}, "table3.toml: nothing is left at --scale=smoke"),
        ({"model": ["nowhere"]}, "--model=nowhere: is no folder of a model"),
        ({"training_flags": ["--model=x"]}, "--model=x: the experiment sets this flag itself"),
    ],
)
def test_what_is_refused(run, changes, sentence, tmp_path):
    with pytest.raises(InputError) as raised:
        run(**changes)
    assert sentence in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_models_by_name(run, tmp_path):
    one, two = (str(toy.make_bert_base_dir(tmp_path / name)) for name in ("one", "x=two"))
    assert run_experiment.read_encoders([f"base={one}", f"large={two}"]) == {
        "base": one,
        "large": two,
    }
    assert run_experiment.read_encoders([two]) == {"base": two}
    with pytest.raises(InputError, match="names base twice"):
        run_experiment.read_encoders([one, f"base={two}"])
    with pytest.raises(
        InputError, match="no row of table1 starts from lrage; name one of base, large"
    ):
        run(name="table1", model=[one, f"lrage={two}"])
    with pytest.raises(InputError, match="no row of table6 starts from base; leave it out"):
        run(name="table6", model=[one])


def test_the_name_comes_first():
    assert "belongs to no flag" in end_of("run_experiment", "--scale=smoke", "table5").sentence


@pytest.mark.long
def test_a_killed_experiment_goes_on_where_it_was(tmp_path):
    """A second run beside it is refused."""
    data = write_data(tmp_path / "data", tasks=())
    measure = TWO_ROWS.replace(', { task = "STS-B" }', "").replace(', "STS-B" = 85.8', "")
    one_row = measure[: measure.rindex("[[rows]]")]
    more = "num_train_steps = 600, log_every_steps = 200, save_checkpoints_steps = 100"
    (tmp_path / "one.toml").write_text(f"{one_row}pretraining = {{ {more} }}\n")
    places = {"scale": "smoke", "data_dir": str(data), "output_dir": str(tmp_path / "out")}
    flags = [str(tmp_path / "one.toml"), *flag_list(**places)]
    steps = tmp_path / "out" / "smoke" / "steps"

    command = [sys.executable, *command_line("run_experiment"), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(
        lambda: list(steps.glob("pretraining-*/output/model.ckpt-200.index")),
        process,
        within_secs=400,
    )
    with pytest.raises(InputError, match="works in it; wait for its end"):
        run_experiment.run(ExperimentOptions(name=flags[0], **places))
    training = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    process.kill()
    process.communicate()
    os.kill(int(training), signal.SIGKILL)
    finished = {path: os.stat(path).st_mtime_ns for path in steps.glob("*/result.json")}
    names = sorted(path.parent.name.rsplit("-", 1)[0] for path in finished)
    assert names == ["records-held-out", "records-train", "vocabulary-400"]
    again = run_script("run_experiment", *flags)
    assert "3 of 5 steps are finished already" in again.stderr
    assert {path: os.stat(path).st_mtime_ns for path in finished} == finished
    (result,) = steps.glob("pretraining-*/result.json")
    assert json.loads(result.read_text())["is_resumed"]
    assert (result.parent / "log.txt").read_text().count("***** Running training *****") == 2
    assert (result.parent / "output" / "model.ckpt-600.index").exists()
    row = json.loads((tmp_path / "out" / "smoke" / "one.jsonl").read_text().splitlines()[0])
    assert 1 < row["value"] < 400  # words of the vocabulary
    assert (
        f"| BERT | {row['value']:.2f} (1) | 3.5 |"
        in (tmp_path / "out" / "smoke" / "one.md").read_text()
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, object]:
    """The flags that name data, models and the output of all experiments, which share steps."""
    folder = tmp_path_factory.mktemp("experiments")
    base = toy.make_bert_base_dir(folder / "base")
    large = toy.make_bert_base_dir(folder / "large")
    names = f"base={base},large={large}"
    return {"model": names, "data_dir": write_data(folder / "data"), "output_dir": folder / "out"}


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
        ("table8", ["BLiMP", "STS-B for MNLI", "WNUT-17 for NER, fine-tuned"]),
        (
            "figure5",
            [f"{one} at {20 * at} %" for one in ("STS-B for MNLI", "BLiMP") for at in range(1, 6)],
        ),
    ],
)
def test_an_experiment_of_the_paper(places, name, columns):
    """Every cell has the result that its run has written; the rows are those of the declaration."""
    declared = tomllib.loads((ROOT / "experiments" / f"{name}.toml").read_text())["rows"]
    rows = [row["label"] for row in declared if "first_task" not in row]  # there is no TriviaQA
    used = [
        one
        for one in places["model"].split(",")
        if one.split("=")[0] in {row.get("encoder") for row in declared}
    ]
    flags = places | {"model": ",".join(used)}
    run_script("run_experiment", name, *flag_list(scale="smoke", **flags), timeout_secs=1800)
    output = places["output_dir"] / "smoke"
    lines = [json.loads(line) for line in (output / f"{name}.jsonl").read_text().splitlines()]
    results = [line for line in lines if "step" not in line]
    found = [(result["arm"], result["column"]) for result in results]
    assert found == [(row, column) for row in rows for column in columns]
    assert all((output / result["folder"] / "result.json").exists() for result in results)
    page = (output / f"{name}.md").read_text()
    digits = [2 if column.startswith(("BLiMP", "LM (perplexity)")) else 1 for column in columns]
    for row in rows:
        values = [result["value"] for result in results if result["arm"] == row]
        cells = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", page, re.MULTILINE)[1].split("|")
        shown = [float(cell.removesuffix(" (1) ")) for cell in cells if cell.endswith(" (1) ")]
        rounding = [10.0**-places for places in digits]
        np.testing.assert_array_less(np.abs(np.subtract(shown, values)), rounding)
