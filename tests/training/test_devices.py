"""The line about the devices, and the warning of a GPU that TensorFlow does not see, on made-up machines."""

import pytest
import tensorflow as tf

from official_bert.training import distribution as devices
from tests.training.test_distribution import in_a_process


@pytest.fixture
def machine(monkeypatch):
    """Sets up a machine: the program and the device files by which a GPU is known."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def has(program=None, files=()):
        monkeypatch.setattr(devices.shutil, "which", {"nvidia-smi": program}.get)
        monkeypatch.setattr(devices.glob, "glob", {"/dev/nvidia[0-9]*": list(files)}.get)

    has()
    return has


def test_a_gpu_is_known_by_its_program_or_its_files(machine, monkeypatch):
    assert devices.gpu_sign() is None
    machine(files=["/dev/nvidia1", "/dev/nvidia0"])
    assert devices.gpu_sign() == "/dev/nvidia0"
    machine(program="/usr/bin/nvidia-smi")
    assert devices.gpu_sign() == "/usr/bin/nvidia-smi"
    for value, sign in (("0,1", "/usr/bin/nvidia-smi"), ("-1", None), ("", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert devices.gpu_sign() == sign


def test_a_gpu_that_tensorflow_does_not_see_is_warned_of_once(machine, monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    devices.log_devices()
    line = "Devices: /device:CPU:0; strategy one_device, number of replicas 1"
    assert caplog.messages == [line]
    machine(files=["/dev/nvidia0"])
    devices.log_devices()
    first, second, warning = caplog.messages
    assert first == second == line
    assert warning.startswith("TensorFlow sees no GPU, although /dev/nvidia0 is there, and runs on the CPU")
    assert 'pip install "tensorflow[and-cuda]>=2.20,<2.22"' in warning


def test_the_first_gpu_is_used_and_nothing_warned_of(machine, monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    machine(program="/usr/bin/nvidia-smi")
    gpus = [tf.config.LogicalDevice(f"/device:GPU:{number}", "GPU") for number in range(2)]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus if kind == "GPU" else [])
    devices.log_devices()
    assert caplog.messages == ["Devices: /device:GPU:0; strategy one_device, number of replicas 1"]


def test_every_replica_is_named():
    log = in_a_process(distribution_strategy="mirrored", num_devices=2)["log"]
    assert "Devices: /device:CPU:0, /device:CPU:1; strategy mirrored, number of replicas 2" in log
