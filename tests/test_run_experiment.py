"""run_experiment.py as a process: a kill in the middle of a training, and each table of the paper at its smallest."""

import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

from tests import toy
from tests.experiment_data import TWO_ROWS, write_data
from tests.scripts import flag_list, run_script
from tests.shared import ROOT

# Two rows with a measure alone: the test runs no fine-tuning.
MEASURE = TWO_ROWS.replace(', { task = "STS-B" }', "").replace(', "STS-B" = 85.8', "")


def test_the_name_comes_first_and_is_needed():
    assert "name one before the flags" in run_script("run_experiment.py", status=1).stderr
    assert "belongs to no flag" in run_script("run_experiment.py", "--scale=smoke", "table5", status=1).stderr
    text = run_script("run_experiment.py", "--help", status=1).stdout
    assert f"\nusage: {ROOT / 'run_experiment.py'} NAME --flag=value ...\n\nNAME: The experiment, " in text


def test_a_killed_experiment_goes_on_where_it_was(tmp_path):
    """Also after kill -9 of the script alone, whose training goes on without it."""
    data = write_data(tmp_path / "data", tasks=())
    toy.write_vocabulary(data)
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    scales = tmp_path / "experiments" / "scales.toml"
    text = scales.read_text()
    for old, new in (
        ("vocab_size = 400", f'vocab_size = {len(toy.VOCABULARY)}, vocab_file = "vocab.txt"'),
        ("num_train_steps = 10\n", "num_train_steps = 1200\nlog_every_steps = 400\n"),
        ("save_checkpoints_steps = 2\n", "save_checkpoints_steps = 200\n"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    scales.write_text(text)
    one_row = MEASURE[: MEASURE.rindex("[[rows]]")]
    (tmp_path / "one.toml").write_text(one_row)
    flags = [
        str(tmp_path / "one.toml"),
        *flag_list(
            scale="smoke",
            data_dir=data,
            output_dir=tmp_path / "out",
            experiments_dir=tmp_path / "experiments",
        ),
    ]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run_experiment.py"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    steps = tmp_path / "out" / "smoke" / "steps"
    deadline = time.monotonic() + 400
    while not list(steps.glob("pretraining-*/output/model.ckpt-200.index")):
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < deadline, "no checkpoint after 400 s"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    finished = {path: os.stat(path).st_mtime_ns for path in steps.glob("*/result.json")}
    assert sorted(path.parent.name.rsplit("-", 1)[0] for path in finished) == [
        "records-held-out",
        "records-train",
    ]
    again = run_script("run_experiment.py", *flags)
    assert "2 of 4 steps are finished already" in again.stderr
    assert {path: os.stat(path).st_mtime_ns for path in finished} == finished
    (result,) = steps.glob("pretraining-*/result.json")
    assert json.loads(result.read_text())["is_resumed"]
    logged = (result.parent / "log.txt").read_text()
    assert logged.count("***** Running training *****") == 2
    assert (result.parent / "output" / "model.ckpt-1200.index").exists()

    (line,) = (tmp_path / "out" / "smoke" / "one.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert (row["arm"], row["metric"], row["seed"]) == ("BERT", "perplexity", 1)
    assert 1 < row["value"] < len(toy.VOCABULARY)
    assert f"| BERT | {row['value']:.2f} (1) | 3.5 |" in (tmp_path / "out" / "smoke" / "one.md").read_text()
    assert "4 of 4 steps are finished already" in run_script("run_experiment.py", *flags).stderr


@pytest.mark.long
def test_sigterm_ends_the_children(tmp_path):
    (tmp_path / "two.toml").write_text(TWO_ROWS)
    data = write_data(tmp_path / "data", tasks=("STS-B",))
    command = [sys.executable, str(ROOT / "run_experiment.py"), str(tmp_path / "two.toml")]
    command += flag_list(scale="smoke", data_dir=data, output_dir=tmp_path / "out")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    steps = tmp_path / "out" / "smoke" / "steps"
    deadline = time.monotonic() + 300
    while not list(steps.glob("pretraining-*/log.txt")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert "the same command goes on where it was" in stderr
    (running,) = steps.glob("pretraining-*/.running")
    number = int(running.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, object]:
    """The flags that name data, models and the output of all experiments, which share steps."""
    folder = tmp_path_factory.mktemp("experiments")
    base = toy.make_bert_base_dir(folder / "base", num_hidden_layers=4)  # the last four are features
    large = toy.make_bert_base_dir(folder / "large")
    models = {"encoder": f"base={base},large={large}", "num_parallel": 2}
    return models | {"data_dir": write_data(folder / "data"), "output_dir": folder / "out"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("table1", ["CoLA", "STS-B"]),
        ("table2", ["EM", "F1"]),
        ("table3", ["EM", "F1"]),
        ("table4", ["CODAH for SWAG"]),
        ("table5", ["STS-B for MNLI-m", "CoLA for QNLI", "SQuAD"]),
        ("table6", ["LM (perplexity)", "STS-B for MNLI-m", "CoLA for MRPC"]),
        ("table7", ["WNUT-17 for Dev F1", "WNUT-17 for Test F1"]),
        (
            "table8",
            ["STS-B for MNLI", "WNUT-17 for NER, fine-tuned", "WNUT-17 for NER, feature-based"],
        ),
        ("figure5", [f"STS-B for MNLI at {share} %" for share in (20, 40, 60, 80, 100)]),
    ],
)
def test_an_experiment_of_the_paper(places, name, columns):
    """Every cell has the result that its run has written; the rows are those of the declaration."""
    declared = tomllib.loads((ROOT / "experiments" / f"{name}.toml").read_text())["rows"]
    rows = [row for row in declared if "first_task" not in row]  # there is no TriviaQA
    run_script("run_experiment.py", name, *flag_list(scale="smoke", **places), timeout_secs=1800)
    output = places["output_dir"] / "smoke"
    head, body = first_table((output / f"{name}.md").read_text())
    shown = [index for index, heading in enumerate(head) if index and not heading.startswith("paper, ")]
    assert [head[index] for index in shown] == columns
    assert [line[0] for line in body] == [row["label"] for row in rows]
    found = {}
    for line in (output / f"{name}.jsonl").read_text().splitlines():
        result = json.loads(line)
        assert np.isfinite(result["value"])
        assert (output / result["folder"] / "result.json").exists()
        found.setdefault(result["arm"], []).append(result["value"])
    for line in body:
        values = [re.fullmatch(r"(-?[0-9.]+) \(1\)", line[index])[1] for index in shown]
        assert list(map(float, values)) == pytest.approx(found[line[0]], abs=0.051)  # it has one digit
    assert (output / f"{name}.png").exists() == (importlib.util.find_spec("matplotlib") is not None)


def first_table(page: str) -> tuple[list[str], list[list[str]]]:
    """The head and the body of the first table of a Markdown page."""
    lines = itertools.takewhile(
        lambda line: line.startswith("|"),
        itertools.dropwhile(lambda line: line[:1] != "|", page.splitlines()),
    )
    head, _, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return head, body
