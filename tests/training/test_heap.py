"""Steps on the CPU touch no fresh memory once the heap keeps what is freed, and the user's own settings win."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from official_bert.training import memory
from tests.shared import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is on Linux")
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
    return {name: value for name, value in os.environ.items() if not name.startswith(memory.SETTINGS)}


def measured(what: str, **environment) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS_OF_STEPS, what],
        stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=clean_environment() | environment, timeout=300,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def test_steps_touch_no_fresh_memory():
    on_eigen = {"CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}  # oneDNN keeps large tensors itself
    found = measured("strategy", **on_eigen)
    usual = measured("none", MALLOC_ARENA_MAX="8", **on_eigen)
    assert found["kept"]
    assert found["sum"] == usual["sum"] == 2 * (4 + 16 + 64 + 256) * (1 << 15)
    assert usual["faults"] > 10 * (4 << 20) // 4096  # the largest tensor alone has 8,192 pages
    assert found["faults"] < usual["faults"] / 50
    if LARGE_PAGES.exists():
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2048
        assert found["advised_kb"] > 0.99 * half  # also after malloc_trim
        assert usual["advised_kb"] == 0


def test_a_users_own_settings_of_the_allocator_win():
    found = measured("strategy", GLIBC_TUNABLES="glibc.malloc.tcache_count=0")
    assert not found["kept"]
    assert found["advised_kb"] == 0
