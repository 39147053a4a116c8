"""The training steps as a TPU gets them: one trace with fixed shapes, and words looked up by one-hot products.

XLA compiles them on the CPU.
"""

import pathlib

import pytest
import tensorflow as tf

from official_bert.fine_tuning.pretrain import pretrain
from official_bert.options.training import PretrainingOptions
from official_bert.training import distribution, trainer
from official_bert.training.step import TrainingStep
from tests import fine_tuning_runs, toy
from tests.commands.pretraining_run import flags_of, write_records

ON_TPU = {"jit_compile": True, "iterations_per_loop": 3}  # device loops of one, three and one updates
BOUNDED_DYNAMIC = "<="  # how HLO writes the size of a dimension that is known at run time only, as in f32[<=8]


def hlo(function, *arguments) -> str:
    """The HLO that XLA makes of a function for these arguments."""
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")


def pretraining(folder):
    """Five updates of run_pretraining.py with 8 examples of 24 tokens."""
    model = toy.make_bert_base_dir(folder / "model")
    records = write_records(folder / "records.tfrecord")
    flags = flags_of(model, folder / "out", num_train_steps=5, input_file=None)
    flags = {name: str(value) if isinstance(value, pathlib.Path) else value for name, value in flags.items()}
    pretrain(PretrainingOptions(input_file=[records], **flags, **ON_TPU))


def classification(folder):
    """Five updates of run_classifier.py with 4 examples, which have different lengths and are padded to 48 tokens."""
    options = fine_tuning_runs.prepared(folder, "classification")
    fine_tuning_runs.run("classification", options, folder / "out", do_train=True, **ON_TPU)


@pytest.mark.parametrize(("train", "num_tokens"), [(pretraining, 8 * 24), (classification, 4 * 48)])
def test_a_step_is_traced_once_and_has_fixed_shapes(tmp_path, monkeypatch, train, num_tokens):
    traced = []

    class NotedStep(TrainingStep):
        def update(self, features):
            traced.append((self, {name: (value.shape, value.dtype) for name, value in features.items()}))
            return super().update(features)

    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: True)
    monkeypatch.setattr(trainer, "TrainingStep", NotedStep)
    train(tmp_path)
    ((step, specs),) = traced
    assert int(step.optimizer.global_step) == 5
    compiled = hlo(step.update, {name: tf.zeros(shape, dtype) for name, (shape, dtype) in specs.items()})
    assert BOUNDED_DYNAMIC not in compiled
    rows, width = next(v.shape for v in step.variables if "word_embeddings" in v.name)
    assert f"dot(f32[{num_tokens},{rows}]" in compiled
    assert f"gather(f32[{rows},{width}]" not in compiled


def test_a_shape_that_is_not_fixed_is_seen():
    assert BOUNDED_DYNAMIC in hlo(lambda x: tf.boolean_mask(x, x > 0.0), tf.constant([1.0, -1.0]))
