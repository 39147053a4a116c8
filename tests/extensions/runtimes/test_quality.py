"""--max_loss refuses what measures nothing: a dev set that is too small, a metric of 0; and says
so before the work.
"""

import types

import numpy as np
import pytest

from official_bert import catalog
from official_bert.extensions.runtimes import quality
from official_bert.extensions.runtimes.options import INT8, FormatOptions
from official_bert.io.errors import InputError
from official_bert.serving import conversion
from official_bert.serving import model as serving_model
from official_bert.tasks.base import Task


def export_options(folder, **flags):
    return catalog.options_class("export_saved_model")(
        export_dir=str(folder / "exports"), **{"dtype": INT8, "max_loss": 0.01} | flags
    )


def format_flags(**flags) -> FormatOptions:
    return FormatOptions(**{"dtype": INT8, "max_loss": 0.01} | flags)


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    monkeypatch.setattr(conversion, "check_packages", lambda name: None)


class Labels(Task):
    """A task with a dev set of some examples."""

    main_metric = "eval_accuracy"

    def __init__(self, num_examples: int):
        self._num_examples = num_examples

    def read(self, data_files, set_name):
        return {"": list(range(self._num_examples))}

    def encode(self, examples, tokenizer, max_seq_length, set_name):
        return types.SimpleNamespace(lengths=np.ones(len(examples)))


Labels.__abstractmethods__ = frozenset()


@pytest.mark.parametrize(
    ("max_loss", "num_examples", "needed"),
    [
        (0.01, 2, 100),
        (0.01, 99, 100),
        (0.01, 100, None),
        (0.5, 1, 2),
        (0.5, 2, None),
        (0.0, 99, 100),
        (0.0, 100, None),
    ],
)
def test_one_example_must_not_be_more_than_the_loss(max_loss, num_examples, needed):
    built = types.SimpleNamespace(
        task=Labels(num_examples), task_name="labels", max_seq_length=8, tokenizer=None
    )

    def read():
        return quality.read_dev_metric(built, format_flags(max_loss=max_loss)).encoded

    if needed is None:
        assert len(read().lengths) == num_examples
        return
    with pytest.raises(
        InputError, match=rf"has {num_examples} examples, .* give at least {needed} examples"
    ):
        read()


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_nothing_is_lost_of_nothing(value):
    with pytest.raises(
        InputError, match=r"eval_accuracy is (0|nan) in float32, of which nothing can be lost"
    ):
        quality.check_measurable(0.01, "eval_accuracy", value)
    quality.check_measurable(0.01, "eval_accuracy", 0.1)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({}, "--max_loss: is measured on a development set; give its --dev_file"),
        ({"dev_file": "absent"}, "absent: no such file or folder"),
        ({"data_dir": "absent"}, "absent: no such file or folder"),
        ({"dev_file": "dev*"}, r"--dev_file: no file matches 'dev\*'"),
        ({"max_loss": None}, "exports: is a file; name a folder"),
    ],
)
def test_flags_are_refused_before_the_model_is_built(tmp_path, monkeypatch, flags, sentence):
    monkeypatch.chdir(tmp_path)
    if flags.get("max_loss", 0) is None:
        (tmp_path / "exports").touch()
    with pytest.raises(InputError, match=sentence):
        serving_model.export(export_options(tmp_path, export_format=["litert"], **flags))
