"""The training steps as a TPU gets them: one trace with fixed shapes, and words looked up by
one-hot products.

XLA compiles them on the CPU.
"""

import importlib
import json
import pathlib
import re

import pytest
import tensorflow as tf

from official_bert.fine_tuning.pretrain import pretrain
from official_bert.modeling import cpu_layers
from official_bert.options.training import PretrainingOptions
from official_bert.training import distribution, trainer
from official_bert.training.step import TrainingStep
from tests import fine_tuning_runs, toy
from tests.commands.pretraining_run import flags_of, write_records
from tests.scripts import run_python
from tests.shared import ROOT, in_test_long

LOOPS = {"iterations_per_loop": 3}  # device loops of one, three and one updates
# How HLO writes the size of a dimension that is known at run time only, as in f32[<=8].
BOUNDED_DYNAMIC = "<="


def hlo(function, *arguments) -> str:
    """The HLO that XLA makes of a function for these arguments."""
    compiled = tf.function(function, jit_compile=True, autograph=False)
    return compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")


def pretraining(folder, **flags):
    """Five updates of run_pretraining.py with 8 examples of 24 tokens."""
    model = toy.make_bert_base_dir(folder / "model")
    records = write_records(folder / "records.tfrecord")
    flags |= LOOPS | flags_of(model, folder / "out", num_train_steps=5, input_file=None)
    flags = {
        name: str(value) if isinstance(value, pathlib.Path) else value
        for name, value in flags.items()
    }
    pretrain(PretrainingOptions(input_file=[records], **flags))


def classification(folder, **flags):
    """Five updates of run_classifier.py with 4 examples, which have different lengths and are
    padded to 48 tokens.
    """
    options = fine_tuning_runs.prepared(folder, "classification")
    fine_tuning_runs.run("classification", options, folder / "out", do_train=True, **LOOPS, **flags)


@pytest.mark.parametrize(
    ("train", "num_tokens", "jit_compile"),
    [
        # XLA makes the HLO of its step in any case, and compiles loops in test_step.py.
        (pretraining, 8 * 24, False),
        *in_test_long((pretraining, 8 * 24, True), (classification, 4 * 48, True)),
    ],
)
def test_a_step_is_traced_once_and_has_fixed_shapes(
    tmp_path, monkeypatch, train, num_tokens, jit_compile
):
    traced = []

    class NotedStep(TrainingStep):
        def update(self, features):
            traced.append(
                (self, {name: (value.shape, value.dtype) for name, value in features.items()})
            )
            return super().update(features)

    monkeypatch.setattr(distribution, "is_tpu", lambda strategy: True)
    monkeypatch.setattr(trainer, "TrainingStep", NotedStep)
    train(tmp_path, jit_compile=jit_compile)
    ((step, specs),) = traced
    assert int(step.optimizer.global_step) == 5
    compiled = hlo(
        step.update,
        {name: tf.zeros(shape, dtype) for name, (shape, dtype) in specs.items()},
    )
    assert BOUNDED_DYNAMIC not in compiled
    rows, width = next(v.shape for v in step.variables if "word_embeddings" in v.name)
    assert f"dot(f32[{num_tokens},{rows}]" in compiled
    assert f"gather(f32[{rows},{width}]" not in compiled


def test_a_shape_that_is_not_fixed_is_seen():
    compiled = hlo(
        lambda x: tf.boolean_mask(x, x > 0.0),
        tf.constant([1.0, -1.0]),
    )
    assert BOUNDED_DYNAMIC in compiled


@pytest.fixture
def tpu_compile(monkeypatch):
    """The benchmark that compiles the step for TPUs."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("tpu_compile")


def test_the_step_that_is_compiled_in_bfloat16_is_that_of_a_tpu(tpu_compile, monkeypatch):
    for name in ("activated", "merged", "attention_weights"):  # what only CPUs compute
        monkeypatch.setattr(cpu_layers, name, None)
    text = tpu_compile.lowered(tpu_compile.Step.parse("tiny:128:8:bfloat16"), stage="hlo")
    widest = re.findall(r"= (\w+)\[\d+,\d+\]\S* dot\((\w+)\[1024,512\]", text)
    assert set(widest) == {("bf16", "bf16")}, "the products behind the intermediate layers"


@pytest.mark.needs_extra("libtpu")
def test_the_tpu_compiler_accepts_the_step_in_bfloat16(tmp_path, tpu_compile):
    step = tpu_compile.Step.parse("tiny:128:8:bfloat16")
    assert step.dtype == "bfloat16"
    assert step.recompute_layers is False
    module = tmp_path / "module.hlo.pb"
    module.write_bytes(tpu_compile.lowered(step))
    row = tpu_compile.compiled_for_tpu(module, "v5e:2x2")
    assert row["fits"]
    assert row["device"] == "TPU v5 lite"


# The coordinator of a slice of two hosts with two cores each: CPUs of two TensorFlow servers. The
# strategy is a fake with the devices of TPUStrategy, and its way to distribute values.
OF_TWO_HOSTS = """
import json, os, socket, subprocess, sys, traceback, types
import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.tpu_strategy import TPUExtended
from official_bert import BertConfig
from official_bert.data.pretraining.masks import DynamicMasks
from official_bert.features import pretraining_features
from official_bert.fine_tuning import pretrain
from official_bert.io.errors import InputError
from official_bert.tasks.pretraining.task import RecordSet
from official_bert.training import distribution
from tests.commands.pretraining_run import PREDICTIONS, SEQ

SERVER = '''
import json, sys
import tensorflow as tf
config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
server = tf.distribute.Server(json.loads(sys.argv[1]), "worker", int(sys.argv[2]), config=config)
print("ready", flush=True)
server.join()
'''
with socket.create_server(("localhost", 0)) as one, socket.create_server(("localhost", 0)) as other:
    cluster = {"worker": [f"localhost:{server.getsockname()[1]}" for server in (one, other)]}
servers = [
    subprocess.Popen([sys.executable, "-c", SERVER, json.dumps(cluster), str(index)], stdout=subprocess.PIPE)
    for index in (0, 1)
]
files, config_file = sys.argv[1:3], sys.argv[3]

def said(call, *arguments):
    try:
        return call(*arguments)
    except InputError as error:
        return str(error)

try:
    assert [server.stdout.readline() for server in servers] == [b"ready\\n"] * 2, "a server has ended"
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster), job_name="coordinator")
    tf.random.set_seed(3)
    devices = [f"/job:worker/replica:0/task:{host}/device:CPU:{core}" for host in (0, 1) for core in (0, 1)]
    extended = types.SimpleNamespace(
        worker_devices=devices, _num_replicas_in_sync=4, _in_multi_worker_mode=lambda: False
    )
    strategy = types.SimpleNamespace(
        num_replicas_in_sync=4,
        extended=extended,
        experimental_local_results=lambda value: value.values,
        experimental_distribute_values_from_function=lambda function:
            TPUExtended._experimental_distribute_values_from_function(extended, function),
    )
    distribution.is_tpu = lambda _: True
    config, features = BertConfig.from_json_file(config_file), pretraining_features(SEQ, PREDICTIONS)
    options = types.SimpleNamespace(train_batch_size=8, file_order="own")
    trainer = types.SimpleNamespace(
        strategy=strategy,
        workers=types.SimpleNamespace(index=0, count=1),  # one process drives both hosts
        config=config,
        seed=5,
    )
    batches = pretrain.record_batches(options, trainer, RecordSet(files, features))
    read = tf.function(batches.next_batch, autograph=False)

    def ids(batch):
        return batch["input_ids"].values

    first = ids(read())
    places, _ = [value.device for value in first], np.stack(first)  # a host has read what has arrived here
    path = batches.state.write(sys.argv[4])
    found = [np.stack(ids(read())).tolist() for _ in range(3)]
    batches.state.read(path).assert_existing_objects_matched()
    again = [np.stack(ids(read())).tolist() for _ in range(3)]
    expected = []
    for file in files:
        local = iter(RecordSet([file], features).training(config, 4, 5, False)[0])
        expected.append([next(local)["input_ids"].numpy() for _ in range(4)][1:])
    expected = [np.concatenate(step).reshape(4, 2, -1).tolist() for step in zip(*expected)]
    print(json.dumps({
        "hosts": distribution.replica_hosts(strategy), "places": places, "as alone": found == expected,
        "again": again == found,
        "sets": len({json.dumps(part) for step in found for part in step}),
        "few": said(pretrain.record_batches, options, trainer, RecordSet(files[:1], features)),
        "masks": said(pretrain.record_batches, options, trainer, RecordSet(files, features, masks=DynamicMasks)),
    }), flush=True)
    status = 0
except BaseException:
    traceback.print_exc()
    status = 1
for server in servers:
    server.kill()
os._exit(status)  # the usual end would wait for servers that are gone
"""


@pytest.mark.long
def test_each_host_of_a_slice_reads_its_own_files_and_a_run_goes_on_exactly(tmp_path):
    model = toy.make_bert_base_dir(tmp_path / "model")
    files = [write_records(tmp_path / f"{index}.tfrecord", 64, seed=index) for index in (1, 2)]
    ran = run_python("-c", OF_TWO_HOSTS, *files, model / "bert_config.json", tmp_path / "state")
    found = json.loads(ran.stdout.splitlines()[-1])
    hosts = [f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in (0, 1)]
    assert found["hosts"] == [hosts[0], hosts[0], hosts[1], hosts[1]]
    assert found["places"] == found["hosts"], "the records lie on the host of their replica"
    assert found["as alone"], "each host reads its files as a process of its own would"
    assert found["again"], "the restored iterators go on with the next batch"
    assert found["sets"] == 12, "no two replicas and steps have the same records"
    assert "1 input files are too few for 2 hosts" in found["few"]
    assert found["masks"].startswith(
        "--dynamic_masking: the hosts of a TPU slice that read files of their own cannot"
    )
