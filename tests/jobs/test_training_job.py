"""How long the loops of a run are, and how words are looked up: by the strategy, whatever the flags say."""

import types

import pytest

from official_bert.config import BertConfig
from official_bert.jobs.fine_tuning import FineTuning
from official_bert.jobs.training_job import TrainingJob
from official_bert.options.classification import ClassificationOptions
from official_bert.tasks.classification.glue import ColaProcessor
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.training import distribution
from tests import toy


@pytest.mark.parametrize(
    ("is_tpu", "flags", "steps_per_loop", "log_every_steps"),
    [
        (False, {"steps_per_loop": 10, "log_every_steps": 100}, 10, 100),
        (False, {"steps_per_loop": 300, "log_every_steps": 100}, 100, 100),  # a loop ends at a log point
        (False, {"steps_per_loop": 300, "log_every_steps": 500}, 250, 500),  # and at a checkpoint
        (
            True,
            {"iterations_per_loop": 200, "log_every_steps": 100},
            200,
            200,
        ),  # on TPU it is the other way round
        (True, {"iterations_per_loop": 200, "log_every_steps": 300}, 200, 400),
        (True, {"iterations_per_loop": 1000, "log_every_steps": 100}, 250, 1000),
    ],
)
def test_loops(monkeypatch, is_tpu, flags, steps_per_loop, log_every_steps):
    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: is_tpu)
    options = ClassificationOptions(
        task_name="", data_dir="", output_dir="", vocab_file="", bert_config_file="",
        save_checkpoints_steps=250, **flags,
    )  # fmt: skip
    job = types.SimpleNamespace(options=options, strategy=None, num_train_steps=5000)
    job.log_every_steps = TrainingJob.log_every_steps.fget(job)
    assert job.log_every_steps == log_every_steps
    assert TrainingJob.steps_per_loop.fget(job) == steps_per_loop


@pytest.mark.parametrize("is_tpu", [True, False])
def test_words_are_looked_up_as_the_strategy_wants(monkeypatch, tmp_path, is_tpu):
    """--use_tpu with another strategy changes nothing, and --distribution_strategy=tpu needs no --use_tpu."""

    class Built(Exception):
        pass

    class Task(ClassificationTask):
        def build_model(self, config, use_one_hot_embeddings):
            assert use_one_hot_embeddings is is_tpu
            raise Built

    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: is_tpu)
    options = ClassificationOptions(
        task_name="CoLA", data_dir="", output_dir=str(tmp_path), vocab_file="", bert_config_file="",
        use_tpu=not is_tpu, do_eval=True,
    )  # fmt: skip
    strategy = distribution.tf.distribute.get_strategy()
    with pytest.raises(Built):
        FineTuning(options, BertConfig.from_dict(toy.BERT_CONFIG), strategy, Task(ColaProcessor()), {}, "")
