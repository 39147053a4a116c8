"""oneDNN for trainings: on which processors and for which commands it is switched on."""

import dataclasses
import os

import pytest

from official_bert.cli import commands, onednn
from official_bert.io import processor
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.options.running import LaunchOptions

AVX2 = "fpu avx avx2 fma"
PREDICTION = ClassificationOptions(output_dir="model", task_name="cola", do_predict=True)
TRAINING = dataclasses.replace(PREDICTION, do_train=True)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns the variable after the run of a command on a processor with some instructions."""

    def execute(instructions, options=TRAINING, value=None):
        info = tmp_path / "cpuinfo"
        info.write_text(f"processor\t: 0\nmodel name\t: X avx2\nflags\t\t: {instructions}\n")
        monkeypatch.setattr(processor, "CPU_INFO", info)
        monkeypatch.delenv(onednn.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(onednn.VARIABLE, value)
        seen = []
        monkeypatch.setattr(
            commands,
            "load",
            lambda name: lambda options: seen.append(os.environ.get(onednn.VARIABLE)),
        )
        commands.execute("predict", options)
        return seen.pop()

    return execute


def test_a_training_on_a_processor_with_avx2_uses_onednn(run):
    assert run(AVX2) == "1"


@pytest.mark.parametrize("instructions", [f"{AVX2} avx512f", "fpu avx"])
def test_other_processors_keep_the_choice_of_tensorflow(run, instructions):
    assert run(instructions) is None


@pytest.mark.parametrize("options", [PREDICTION, LaunchOptions(num_workers=1)])
def test_commands_that_do_not_train_keep_the_choice_of_tensorflow(run, options):
    assert run(AVX2, options) is None


def test_a_value_of_the_environment_stays(run):
    assert run(AVX2, value="0") == "0"


def test_other_systems_have_no_list_of_instructions(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "CPU_INFO", tmp_path / "missing")
    assert processor.instruction_sets() == frozenset()
