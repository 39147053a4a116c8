"""Each strategy is tested in a process of its own, because two strategies in one process
conflict.
"""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import ChoiceOptions
from official_bert.options.shared import DistributionOptions
from official_bert.training import distribution
from official_bert.training.distribution import check_divides, make_strategy, strategy_name
from tests.scripts import run_python

# Splits [2 steps, 8 examples, ...] over the replicas and prints what each of them sees of the
# second step.
PROGRAM = """
import json
import sys
import numpy as np
import tensorflow as tf
from absl import logging
from official_bert.options.shared import DistributionOptions
from official_bert.training.distribution import make_strategy, split_over_replicas

logging.set_verbosity(logging.INFO)
strategy = make_strategy(DistributionOptions(**json.loads(sys.argv[1])))
batch = {"x": np.arange(48).reshape(2, 8, 3), "y": tf.reshape(tf.range(16), [2, 8])}
parts = split_over_replicas(strategy, batch)

@tf.function
def run(parts, step):
    each = strategy.run(lambda parts: (parts["x"][step], parts["y"][step]), args=(parts,))
    return tf.nest.map_structure(strategy.experimental_local_results, each)

x, y = run(parts, 1)
print(json.dumps({
    "strategy": type(strategy).__name__,
    "x": [value.numpy().tolist() for value in x],
    "y": [value.numpy().tolist() for value in y],
}))
"""


def in_a_process(**options) -> dict:
    finished = run_python("-c", PROGRAM, json.dumps(options))
    return json.loads(finished.stdout.splitlines()[-1]) | {"log": finished.stderr}


def test_mirrored_over_logical_cpus():
    found = in_a_process(distribution_strategy="mirrored", num_devices=4)
    assert found["strategy"] == "MirroredStrategy"
    second_step = np.arange(48).reshape(2, 8, 3)[1]
    assert found["x"] == second_step.reshape(4, 2, 3).tolist()
    assert found["y"] == np.arange(8, 16).reshape(4, 2).tolist()
    assert (
        "--num_devices=4: TensorFlow sees no GPU; the CPU is split into 4 devices" in found["log"]
    )
    devices = ", ".join(f"/device:CPU:{number}" for number in range(4))
    assert f"Devices: {devices}; strategy mirrored, number of replicas 4" in found["log"]


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({}, "one_device"),
        ({"use_tpu": True}, "tpu"),
        ({"use_tpu": True, "distribution_strategy": "mirrored"}, "mirrored"),
        ({"distribution_strategy": "tpu"}, "tpu"),
    ],
)
def test_the_strategy_asked_for(options, name):
    assert strategy_name(DistributionOptions(**options)) == name


class FakeTpu:
    """A fake of TensorFlow's resolver, connection and strategy that records the order of the
    calls.
    """

    def __init__(self, monkeypatch, num_cores):
        self.calls = []
        self.num_replicas_in_sync = num_cores
        monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", self.resolver)
        monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", self.noting("connect"))
        monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", self.noting("initialize"))
        monkeypatch.setattr(tf.distribute, "TPUStrategy", self.strategy)

    def resolver(self, **arguments):
        self.calls.append(arguments)
        return "resolver"

    def noting(self, name):
        return lambda resolver: self.calls.append((name, resolver))

    def strategy(self, resolver):
        self.calls.append(("strategy", resolver))
        return self


def test_tpu_from_the_original_flags(monkeypatch):
    tpu = FakeTpu(monkeypatch, num_cores=8)
    options = DistributionOptions(
        use_tpu=True,
        tpu_name="node-1",
        tpu_zone="us-central1-b",
        gcp_project="p",
    )
    assert make_strategy(options) is tpu
    # The runs of a search ask again, with whatever else their scripts are told: it is not set up
    # twice.
    one_of_many = {**dataclasses.asdict(options), "search": "restarts=2", "output_dir": "run-2"}
    assert make_strategy(ChoiceOptions(vocab_file="v", bert_config_file="c", **one_of_many)) is tpu
    assert tpu.calls == [
        {"tpu": "node-1", "zone": "us-central1-b", "project": "p"},
        ("connect", "resolver"),
        ("initialize", "resolver"),
        ("strategy", "resolver"),
    ]
    make_strategy(DistributionOptions(use_tpu=True, master="grpc://10.0.0.2:8470"))
    assert tpu.calls[4] == {"tpu": "grpc://10.0.0.2:8470", "zone": None, "project": None}


def test_another_number_of_cores_is_refused(monkeypatch):
    FakeTpu(monkeypatch, num_cores=4)
    with pytest.raises(
        InputError,
        match="--num_tpu_cores=8, but node-1 has 4 cores; give --num_tpu_cores=4",
    ):
        make_strategy(DistributionOptions(use_tpu=True, tpu_name="node-1"))


def test_a_tpu_without_a_name_or_an_answer_is_refused(monkeypatch):
    with pytest.raises(InputError, match="--tpu_name: not given"):
        make_strategy(DistributionOptions(use_tpu=True))

    FakeTpu(monkeypatch, num_cores=8)

    def absent(resolver):
        raise tf.errors.NotFoundError(None, None, "TPUs not found in the cluster. And more.")

    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", absent)
    with pytest.raises(
        InputError,
        match=r"--tpu_name=a: no TPU system answers there \(TPUs not found in the cluster\); .*"
        "that PJRT_DEVICE and the other variables of docs/tpu.md are set, .*tpu_host.py runs on",
    ):
        make_strategy(DistributionOptions(use_tpu=True, tpu_name="a"))


@pytest.mark.parametrize(
    ("batch_size", "num_replicas", "more", "sentence"),
    [
        (30, 4, {}, "--train_batch_size=30 cannot be shared evenly by 4 replicas"),
        (
            20,
            2,
            {"num_micro_batches": 4},
            "--train_batch_size=20 cannot be computed by 2 replicas in --num_acc.*=4 eq",
        ),
    ],
)
def test_batches_that_cannot_be_shared_are_refused(batch_size, num_replicas, more, sentence):
    check_divides(8 * num_replicas, num_replicas, "train_batch_size", **more)
    with pytest.raises(InputError, match=sentence):
        check_divides(batch_size, num_replicas, "train_batch_size", **more)


def test_more_gpus_than_there_are_or_are_used_are_refused(monkeypatch, caplog):
    make_strategy(DistributionOptions(use_tpu=True, distribution_strategy="one_device"))
    assert (
        "--use_tpu has no effect, since --distribution_strategy=one_device is given" in caplog.text
    )
    with pytest.raises(
        InputError,
        match="--num_devices=1: only goes with --distribution_strategy=mirrored",
    ):
        make_strategy(DistributionOptions(num_devices=1))
    with pytest.raises(
        InputError,
        match="--collective=ring: only goes with --distribution_strategy=multi_worker_mirr",
    ):
        make_strategy(DistributionOptions(collective="ring", distribution_strategy="mirrored"))
    make_strategy(DistributionOptions(all_reduce_dtype="bfloat16"))
    assert "--all_reduce_dtype=bfloat16 has no effect on a single device" in caplog.text
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda kind: ["a GPU"] if kind == "GPU" else ["a CPU"],
    )
    with pytest.raises(
        InputError,
        match="--num_devices=2: TensorFlow sees only 1 GPUs; give at most that",
    ):
        make_strategy(DistributionOptions(distribution_strategy="mirrored", num_devices=2))


@pytest.mark.parametrize(
    ("devices", "flag", "chosen"),
    [
        ((), "auto", "RING"),
        (("GPU",), "auto", "NCCL"),
        (("GPU",), "nccl", "NCCL"),
        (("GPU",), "ring", "RING"),
        ((), "nccl", None),
    ],
)
def test_gpus_of_several_processes_use_nccl(monkeypatch, caplog, devices, flag, chosen):
    caplog.set_level("INFO", logger="absl")
    monkeypatch.setenv(
        "TF_CONFIG",
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}',
    )
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [kind] * (kind in devices))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", lambda _, options: options)
    options = DistributionOptions(distribution_strategy="multi_worker_mirrored", collective=flag)
    if chosen is None:
        with pytest.raises(
            InputError,
            match="--collective=nccl: TensorFlow sees no GPU, which NCCL needs; give --coll",
        ):
            distribution.make_multi_worker(options)
        return
    assert distribution.make_multi_worker(options).implementation.value == chosen
    assert f"Collective operations of the workers: {chosen.lower()}" in caplog.messages


@pytest.fixture
def machine(monkeypatch):
    """Sets up a machine: the program and the device files by which a GPU is known."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def has(program=None, files=()):
        monkeypatch.setattr(distribution.shutil, "which", {"nvidia-smi": program}.get)
        monkeypatch.setattr(distribution.glob, "glob", {"/dev/nvidia[0-9]*": list(files)}.get)

    has()
    return has


def test_a_gpu_is_known_by_its_program_or_its_files(machine, monkeypatch):
    assert distribution.gpu_sign() is None
    machine(files=["/dev/nvidia1", "/dev/nvidia0"])
    assert distribution.gpu_sign() == "/dev/nvidia0"
    machine(program="/usr/bin/nvidia-smi")
    assert distribution.gpu_sign() == "/usr/bin/nvidia-smi"
    for value, sign in (("0,1", "/usr/bin/nvidia-smi"), ("-1", None), ("", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert distribution.gpu_sign() == sign


def test_a_gpu_that_tensorflow_does_not_see_is_warned_of_once(machine, monkeypatch, caplog):
    caplog.set_level("INFO", logger="absl")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])
    distribution.log_devices()
    line = "Devices: /device:CPU:0; strategy one_device, number of replicas 1"
    assert caplog.messages == [line]
    machine(files=["/dev/nvidia0"])
    distribution.log_devices()
    first, second, warning = caplog.messages
    assert first == second == line
    assert warning.startswith(
        "TensorFlow sees no GPU, although /dev/nvidia0 is there, and runs on the CPU"
    )
    assert 'pip install "tensorflow[and-cuda]>=2.20,<2.22"' in warning
