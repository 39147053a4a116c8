"""The environment of TensorFlow: which variables a command sets, and on which machines."""

import dataclasses
import os

import pytest

from official_bert.cli import commands, tensorflow_environment
from official_bert.cli.tensorflow_environment import ONEDNN, XLA_FLAGS
from official_bert.io import processor
from official_bert.options.fine_tuning import ClassificationOptions
from official_bert.options.running import LaunchOptions
from tests.scripts import run_interpreter

AVX2 = "fpu avx avx2 fma"
PREDICTION = ClassificationOptions(output_dir="model", task_name="cola", do_predict=True)
TRAINING = dataclasses.replace(PREDICTION, do_train=True)


def restore_after_test(monkeypatch, name: str, value: str | None):
    """Sets or deletes a variable that the tested code may set."""
    monkeypatch.setenv(name, value or "")
    if value is None:
        monkeypatch.delenv(name)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns the variable after the run of a command on a processor with some instructions."""

    def execute(instructions, options=TRAINING, value=None):
        info = tmp_path / "cpuinfo"
        info.write_text(f"processor\t: 0\nmodel name\t: X avx2\nflags\t\t: {instructions}\n")
        monkeypatch.setattr(processor, "CPU_INFO", info)
        restore_after_test(monkeypatch, ONEDNN, value)
        seen = []
        monkeypatch.setattr(
            commands,
            "load",
            lambda name: lambda options: seen.append(os.environ.get(ONEDNN)),
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


@pytest.fixture
def tuning_flags(monkeypatch, tmp_path):
    """Returns the flags of XLA after the start of a command on a machine with or without a GPU."""

    def execute(options, has_gpu=True, flags=None):
        device = tmp_path / "nvidiactl"
        device.touch() if has_gpu else device.unlink(missing_ok=True)
        monkeypatch.setattr(tensorflow_environment, "NVIDIA_DEVICE", device)
        restore_after_test(monkeypatch, XLA_FLAGS, flags)
        monkeypatch.setattr(commands, "load", lambda name: lambda options: None)
        commands.execute("predict", options)
        return os.environ.get(XLA_FLAGS)

    return execute


COMPILED = dataclasses.replace(TRAINING, jit_compile=True)
IN_OUTPUT = f"--xla_gpu_per_fusion_autotune_cache_dir={os.path.abspath('model')}/xla_autotuning"


def test_a_compiled_training_on_a_gpu_keeps_what_xla_finds_in_its_folder(tuning_flags):
    assert tuning_flags(COMPILED) == IN_OUTPUT
    assert tuning_flags(COMPILED, flags="--xla_dump_to=x") == f"--xla_dump_to=x {IN_OUTPUT}"


def test_a_folder_that_the_user_names_stays(tuning_flags):
    flags = "--xla_gpu_per_fusion_autotune_cache_dir=/cache"
    assert tuning_flags(COMPILED, flags=flags) == flags


def test_other_trainings_leave_the_flags_of_xla_alone(tuning_flags):
    assert tuning_flags(TRAINING) is None
    assert tuning_flags(COMPILED, has_gpu=False) is None
    assert tuning_flags(dataclasses.replace(COMPILED, output_dir="gs://b/model")) is None
    assert tuning_flags(dataclasses.replace(COMPILED, do_train=False)) is None


_COMPILES = """
import tensorflow as tf
print(tf.function(lambda x: x + 1, jit_compile=True)(tf.constant(1)).numpy())
"""


def test_tensorflow_knows_the_flag(monkeypatch, tmp_path):
    """XLA ends the process if it does not know a flag."""
    monkeypatch.setenv(XLA_FLAGS, f"--xla_gpu_per_fusion_autotune_cache_dir={tmp_path}")
    assert run_interpreter("-c", _COMPILES).stdout == "2\n"
