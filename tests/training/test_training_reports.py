"""The loss at the end of a training, and what its progress line, log of figures and summary say."""

import json
import types

import pytest
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.io.errors import Diverged
from official_bert.optimization import AdamWeightDecayOptimizer
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.training.reporting import TrainingReports
from official_bert.training.run_log import read_train_log
from official_bert.training.step import GRADIENT_NORM
from tests import toy


def test_the_final_loss_is_that_of_the_last_tenth():
    """It is counted in whole progress lines: a line of one update alone would be noise."""

    def final_loss(*lines):
        return TrainingReports.final_loss(types.SimpleNamespace(_losses=list(lines), _num_train_steps=100))

    assert final_loss() is None
    assert final_loss((10, 4.0), (40, 3.0), (49, 2.0), (1, 9.0)) == (pytest.approx((49 * 2.0 + 9.0) / 50), 50)
    assert final_loss((80, 3.0), (20, 1.0)) == (1.0, 20)
    assert final_loss((5, 6.0)) == (6.0, 5)  # a run that went on from step 95


@pytest.mark.parametrize("error", [None, Diverged("the loss is nan")])
def test_a_run_that_went_on_reports_its_own_updates(tmp_path, error):
    optimizer = AdamWeightDecayOptimizer(0.25)
    optimizer.global_step.assign(30)
    options = ClassificationOptions(
        task_name="CoLA", data_dir="", output_dir=str(tmp_path), train_batch_size=4
    )
    reports = TrainingReports(
        options,
        tf.distribute.get_strategy(),
        BertConfig.from_dict(toy.BERT_CONFIG),
        optimizer,
        None,
        40,
        0,
        None,
    )

    def make_updates(batches, num_steps):
        optimizer.global_step.assign_add(num_steps)
        return {"loss": 0.0}

    run_steps = reports.watching(make_updates)
    run_steps({"input_ids": tf.zeros([5, 4, 16], tf.int32)}, 5)
    reports.report(35, 5, {GRADIENT_NORM: 10.0}, {"loss": 1.5, "accuracy": 0.5}, unshown=())
    if error is None:
        run_steps({"input_ids": tf.zeros([5, 4, 16], tf.int32)}, 5)
        reports.report(40, 5, {GRADIENT_NORM: 5.0}, {"loss": 0.5, "accuracy": 0.75}, unshown=())
    reports.summarise("a checkpoint", error)

    rows = read_train_log(str(tmp_path / "train_log.jsonl"))
    expected = [(35, 1.5, 0.5, 0.25, 2.0), (40, 0.5, 0.75, 0.25, 1.0)][: 1 if error else 2]
    names = ("step", "loss", "accuracy", "learning_rate", GRADIENT_NORM)
    assert [tuple(row[name] for name in names) for row in rows] == expected
    (line,) = (tmp_path / "run_summaries.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert found["ended"] == ("Diverged" if error else "finished")
    assert found["updates"] == (5 if error else 10)
    assert found["last_step"] == (35 if error else 40)
    assert found["final_loss"] == (1.5 if error else 0.5)
    assert found["last_checkpoint"] == "a checkpoint"
