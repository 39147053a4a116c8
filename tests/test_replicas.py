"""Fine-tuning on several replicas: training, evaluation and prediction give the numbers of one device.

The sets end in a batch that is not full and that the replicas do not divide.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest

from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.modeling import heads
from official_bert.training import run_log
from tests import fine_tuning_runs
from tests.commands.pretraining_run import checkpoint_values
from tests.hostile.rows import edit_json
from tests.shared import ROOT, in_test_long
from tests.training_state import assert_close

BATCH_SIZE = 8  # of 14 examples


def run_described(family: str, described: str):
    """A run of which the options are given as JSON; the subprocess calls it before TensorFlow has done anything.

    Replicas draw dropout masks of their own, so that of the heads is left out, too.
    """
    heads.CLASSIFIER_DROPOUT = 0.0
    kind = fine_tuning_runs.FAMILIES[family]
    kind.run(kind.options(**json.loads(described)))


def predictions(path: pathlib.Path) -> np.ndarray | str:
    """Numbers of a table of scores, else the text."""
    if path.suffix == ".tsv":
        return np.loadtxt(path, ndmin=2)
    return path.read_text()


@pytest.mark.parametrize(
    ("family", "count", "flags"),
    [
        ("classification", 2, {}),
        ("squad", 2, {"num_accumulation_steps": 2, "recompute_layers": True}),
        *in_test_long(
            ("classification", 4, {}),
            ("squad", 4, {}),
            *[(family, count, {}) for family in ("choice", "tagging", "regression", "multi-label") for count in (2, 4)],
        ),
    ],
)
def test_replicas_train_evaluate_and_predict_as_one_device(tmp_path, monkeypatch, family, count, flags):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    options = run_of_family(tmp_path, family)
    run_on_replicas(tmp_path, family, options, count, **flags)
    assert_same_results(family, tmp_path / "one", tmp_path / "several", count)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "config", "flags"),
    [
        ("classification", {"attention_direction": "left_to_right"}, {"num_bilstm_layers": 1}),
        ("tagging", {}, {"feature_layers": "weighted_sum_of_all"}),
    ],
)
def test_replicas_train_the_papers_variants_as_one_device(tmp_path, monkeypatch, family, config, flags):
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    options = run_of_family(tmp_path, family, config, **flags)
    run_on_replicas(tmp_path, family, options, 2)
    assert_same_results(family, tmp_path / "one", tmp_path / "several", 2)


def run_on_replicas(tmp_path: pathlib.Path, family: str, options, count: int, **flags):
    """Makes a run again on several replicas, in a process of its own, into tmp_path/several."""
    mirrored = {"distribution_strategy": "mirrored", "num_devices": count, **flags}
    described = json.dumps(dataclasses.asdict(options) | mirrored | {"output_dir": str(tmp_path / "several")})
    program = f"from tests.test_replicas import run_described; run_described({family!r}, {described!r})"
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parts_of_batches_of_any_length_train_as_whole_batches(tmp_path, monkeypatch, dtype):
    """On one device, where a step is compiled for every length at once."""
    monkeypatch.setattr(heads, "CLASSIFIER_DROPOUT", 0.0)
    options = run_of_family(tmp_path, "classification", dtype=dtype)
    fine_tuning_runs.run("classification", options, tmp_path / "parts", num_accumulation_steps=2)
    weights = [checkpoint_values(latest_checkpoint(str(tmp_path / name))) for name in ("parts", "one")]
    if dtype == "float32":
        assert_close(*weights, weights=5e-6, first_moments=1e-6)
        return
    first = checkpoint_values(options.init_checkpoint)
    for name, before in first.items():
        apart, moved = (np.linalg.norm(weights[1][name] - each) for each in (weights[0][name], before))
        assert apart <= 0.3 * moved + 1e-6, name


def run_of_family(tmp_path: pathlib.Path, family: str, config: Mapping = MappingProxyType({}), **changes):
    """Trains, evaluates and predicts on one device into tmp_path/one, and returns the options of that run."""
    options = fine_tuning_runs.prepared(tmp_path, family)
    edit_json(pathlib.Path(options.bert_config_file), **config)
    given = {"train_batch_size": 4, "learning_rate": 1e-4, "predict_batch_size": BATCH_SIZE}
    given |= {"do_train": True, "do_predict": True}
    if family != "squad":
        given |= {"do_eval": True, "eval_batch_size": BATCH_SIZE}
    options = dataclasses.replace(options, **given | changes, output_dir=str(tmp_path / "one"))
    fine_tuning_runs.FAMILIES[family].run(options)
    return options


def assert_same_results(family: str, one: pathlib.Path, several: pathlib.Path, num_replicas: int):
    """The run on several replicas has the results, the predictions and the weights of that on one device."""
    figures = fine_tuning_runs.figures(several)
    assert figures == pytest.approx(fine_tuning_runs.figures(one), abs=1e-5)
    name = fine_tuning_runs.FAMILIES[family].predictions
    found, wanted = predictions(several / name), predictions(one / name)
    if isinstance(wanted, np.ndarray):
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    else:
        assert found == wanted
    weights = {folder: checkpoint_values(latest_checkpoint(str(folder))) for folder in (one, several)}
    assert_close(weights[several], weights[one], weights=5e-6, first_moments=1e-6)
    records = run_log.read(str(several), run_log.START)
    assert [record["num_replicas"] for record in records] == [num_replicas]
    print(f"{family}: {len(figures)} figures, the predictions and {len(weights[one])} tensors agree")
