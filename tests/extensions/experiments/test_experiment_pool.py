"""Tests of the order in which benchmarks/experiment_pool.py starts the steps of experiments, and
of how it ends.
"""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from benchmarks import experiment_pool
from official_bert.extensions.experiments.declarations import (
    find_scale,
    read_catalogue,
    read_experiment,
)
from official_bert.extensions.experiments.plan import make_plan
from official_bert.extensions.experiments.steps import order_steps
from tests.experiment_data import write_data
from tests.scripts import run_interpreter, wait_for
from tests.shared import ROOT

SCRIPT = ROOT / "benchmarks/experiment_pool.py"


@pytest.fixture(scope="module")
def steps():
    catalogue = read_catalogue(str(experiment_pool.TABLES))
    scale = find_scale("desk_recipe", catalogue)
    plans = [
        make_plan(read_experiment(name, catalogue), scale, catalogue)
        for name in ("table5", "table8")
    ]
    return order_steps(step for plan in plans for step in plan.steps)


@pytest.mark.parametrize("order", ["stage", "seed"])
def test_each_step_starts_once_and_after_those_that_it_needs(steps, order):
    ordered = experiment_pool.sort_steps(steps, order)
    assert sorted(step.name for step in ordered) == sorted(step.name for step in steps)
    for index, step in enumerate(ordered):
        assert set(step.inputs()) <= set(ordered[:index])


def test_all_pretrainings_start_first_and_feature_based_runs_last(steps):
    kinds = [step.kind for step in experiment_pool.sort_steps(steps, "stage")]
    num_pretrainings = kinds.count("pretraining")
    assert num_pretrainings == 16  # eight models with two seeds
    assert kinds[: num_pretrainings + 2] == ["vocabulary", "records"] + ["pretraining"] * 16
    features = ["feature_layers" in dict(step.flags) for step in steps]
    ordered = experiment_pool.sort_steps(steps, "stage")
    last = ordered[-sum(features) :]
    assert sum(features) == 12  # six rows with two seeds
    assert all("feature_layers" in dict(step.flags) for step in last)


def test_a_seed_is_complete_before_the_next_one_begins(steps):
    ordered = experiment_pool.sort_steps(steps, "seed")
    seeds = [step.seed for step in ordered if step.seed is not None]
    assert seeds == sorted(seeds)
    assert set(seeds) == {1, 2}


def test_only_some_seeds_run_with_all_that_they_need(steps):
    second = experiment_pool.with_seeds(steps, experiment_pool.parse_seeds("2"))
    assert {step.seed for step in second} == {None, 2}
    assert {step.kind for step in second} >= {"vocabulary", "records", "pretraining", "fine-tuning"}
    assert {step for step in steps if step.seed == 2} <= set(second)
    assert experiment_pool.with_seeds(steps, []) == steps


def count_processes_of(folder: pathlib.Path) -> int:
    """Returns the number of processes whose command lines name a folder."""
    number = 0
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = pathlib.Path("/proc", process, "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        number += str(folder).encode() in words
    return number


@pytest.mark.skipif(sys.platform != "linux", reason="the processes are listed in /proc")
def test_sigterm_ends_the_running_steps_too(tmp_path):
    data, output = write_data(tmp_path / "data"), tmp_path / "output"
    flags = ["--scale=smoke", f"--data_dir={data}", f"--output_dir={output}", "--num_parallel=2"]
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "table6", *flags], stderr=subprocess.PIPE, text=True
    )
    with process:
        # A step that writes its log is a program of its own, and no copy of the pool.
        wait_for(lambda: any(log.stat().st_size for log in output.rglob("log.txt")), process)
        wait_for(lambda: count_processes_of(data) > 1, process)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert log.endswith(
        "experiment_pool.py: terminated; files that were not complete are deleted\n"
    )
    assert count_processes_of(data) == 0


def test_missing_data_end_in_one_sentence(tmp_path):
    finished = run_interpreter(
        str(SCRIPT), "table6", "--scale=smoke", f"--data_dir={tmp_path}/no", status=1
    )
    sentence = finished.stderr.splitlines()[-1]
    assert "experiment_pool.py: " in sentence
    assert f"{tmp_path}/no" in sentence
