"""The peak of the memory; models that are no longer used leave it; steps on the CPU touch no fresh
memory.

The heap keeps what is freed, unless a user's own settings say otherwise.
"""

import gc
import json
import mmap
import os
import pathlib
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.modeling import BertClassifier
from official_bert.training import memory
from tests import toy
from tests.shared import ROOT


def traced_model():
    """A model whose gelu has registered its gradient in a graph."""
    model = BertClassifier(BertConfig.from_dict(toy.BERT_CONFIG), 2)
    ids = tf.ones([1, 4], tf.int32)

    @tf.function
    def gradients(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model({"input_ids": ids, "input_mask": ids, "segment_ids": ids}))
        return tape.gradient(loss, [model.output_weights.value])

    gradients(ids)
    return weakref.ref(model.output_weights)


def test_the_weights_of_a_model_are_freed():
    weights = traced_model()
    gc.collect()
    memory.forget_models()
    gc.collect()
    assert weights() is None


def test_the_peak_is_that_of_the_process():
    """The operating system counts in kB what it calls the high-water mark of the resident memory."""
    before, status = memory.peak_memory(), pathlib.Path("/proc/self/status").read_text()
    peak_kb, resident_kb = (
        int(status.split(f"{name}:")[1].split()[0]) for name in ("VmHWM", "VmRSS")
    )
    assert before.keys() == {"memory_mb"}, "no GPU, no figure of one"
    assert before["memory_mb"] == pytest.approx(peak_kb * 1024 / 1e6, rel=0.02)
    pages = np.frombuffer(mmap.mmap(-1, (peak_kb - resident_kb + 160_000) * 1024), np.uint8)[
        :: mmap.PAGESIZE
    ]
    pages[:] = 1
    assert memory.peak_memory()["memory_mb"] > before["memory_mb"] + 100


def test_the_peak_of_gpus_is_that_of_the_fullest(monkeypatch):
    peaks = {"/device:GPU:0": 3_000_000, "/device:GPU:1": 5_500_000}
    devices = [types.SimpleNamespace(name=name) for name in peaks]
    monkeypatch.setattr(memory.tf.config, "list_logical_devices", lambda kind: devices)
    monkeypatch.setattr(
        memory.tf.config.experimental, "get_memory_info", lambda name: {"peak": peaks[name]}
    )
    assert memory.peak_memory()["gpu_memory_mb"] == 5.5


ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is on Linux")
LARGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")

# A step frees tensors of 0.5 to 32 MiB, in two threads; the first ones fill the heap.
FAULTS_OF_STEPS = """
import ctypes, json, resource, sys
import tensorflow as tf
from official_bert.options.shared import DistributionOptions
from official_bert.training import distribution; from official_bert.training import memory as heap

if sys.argv[1] == "strategy":
    distribution.make_strategy(DistributionOptions())

@tf.function
def step(x):
    parts = [tf.reduce_sum(tf.tile(x, [times]) + 1.0) for times in (4, 16, 64, 256)]
    return tf.add_n(parts)

x = tf.ones([1 << 15])
for _ in range(5):
    last = step(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    last = step(x)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
ctypes.CDLL(None).malloc_trim(0)
fields = open("/proc/self/smaps").read().split("VmFlags:")
advised = [int(part.split("Size:")[1].split()[0]) for part, flags in zip(fields, fields[1:])
           if "[heap]" in part and " hg " in flags.split("\\n")[0] + " "]
print(json.dumps({"faults": faults, "advised_kb": sum(advised), "kept": heap.keep_freed_memory(),
                  "sum": float(last)}))
"""


def clean_environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(memory.SETTINGS)
    }


def measured(what: str, **environment) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS_OF_STEPS, what],
        stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=clean_environment() | environment, timeout=300,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


@ON_LINUX
@pytest.mark.long
def test_steps_touch_no_fresh_memory():
    # OneDNN keeps large tensors itself.
    on_eigen = {"CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    found = measured("strategy", **on_eigen)
    usual = measured("none", MALLOC_ARENA_MAX="8", **on_eigen)
    assert found["kept"]
    assert found["sum"] == usual["sum"] == 2 * (4 + 16 + 64 + 256) * (1 << 15)
    assert usual["faults"] > 10 * (4 << 20) // 4096  # the largest tensor alone has 8,192 pages
    # On a busy machine one large tensor more may be kept, 8,192 pages.
    assert found["faults"] < usual["faults"] / 5
    if LARGE_PAGES.exists():
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2048
        assert found["advised_kb"] > 0.99 * half  # also after malloc_trim
        assert usual["advised_kb"] == 0


@ON_LINUX
def test_a_users_own_settings_of_the_allocator_win():
    found = measured("strategy", GLIBC_TUNABLES="glibc.malloc.tcache_count=0")
    assert not found["kept"]
    assert found["advised_kb"] == 0
