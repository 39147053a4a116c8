"""With OFFICIAL_BERT_TUNE_HEAP=1, steps on the CPU touch no fresh memory.

The heap keeps what is freed, unless a user's own settings of the allocator say otherwise.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from official_bert.io.errors import InputError
from official_bert.training import cpu_heap
from tests.shared import ROOT

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is on Linux")
LARGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")

# A step frees tensors of 0.5 to 32 MiB, in two threads; the first ones fill the heap.
FAULTS_OF_STEPS = """
import ctypes, json, resource, sys
import tensorflow as tf
from official_bert.options.shared import DistributionOptions
from official_bert.training import cpu_heap, distribution

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
print(json.dumps({"faults": faults, "advised_kb": sum(advised), "kept": cpu_heap.tune(),
                  "sum": float(last)}))
"""


def clean_environment() -> dict[str, str]:
    settings = (*cpu_heap.ALLOCATOR_SETTINGS, cpu_heap.SWITCH)
    return {name: value for name, value in os.environ.items() if not name.startswith(settings)}


def measured(what: str, **environment) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS_OF_STEPS, what],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env=clean_environment() | environment,
        timeout=300,
    )
    return json.loads(done.stdout.splitlines()[-1])


@ON_LINUX
@pytest.mark.long
def test_steps_touch_no_fresh_memory():
    # OneDNN keeps large tensors itself.
    on_eigen = {"CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    tuned = measured("strategy", OFFICIAL_BERT_TUNE_HEAP="1", **on_eigen)
    usual = measured("strategy", **on_eigen)
    assert tuned["kept"]
    assert not usual["kept"]
    expected_sum = 2 * (4 + 16 + 64 + 256) * (1 << 15)
    assert tuned["sum"] == expected_sum
    assert usual["sum"] == expected_sum
    assert usual["faults"] > 10 * (4 << 20) // 4096  # the largest tensor alone has 8,192 pages
    # On a busy machine one large tensor more may be kept, 8,192 pages.
    assert tuned["faults"] < usual["faults"] / 5
    if LARGE_PAGES.exists():
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2048
        assert tuned["advised_kb"] > 0.99 * half  # also after malloc_trim
        assert usual["advised_kb"] == 0


@ON_LINUX
def test_a_users_own_settings_of_the_allocator_win():
    tuned = measured(
        "strategy",
        OFFICIAL_BERT_TUNE_HEAP="1",
        GLIBC_TUNABLES="glibc.malloc.tcache_count=0",
    )
    assert not tuned["kept"]
    assert tuned["advised_kb"] == 0


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_changes_by_default(monkeypatch, value):
    class Untouched:
        def __getattr__(self, name):
            raise AssertionError(f"{name} of the C library is called")

    monkeypatch.setattr(cpu_heap.ctypes, "CDLL", lambda _: Untouched())
    monkeypatch.delenv(cpu_heap.SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(cpu_heap.SWITCH, value)
    assert not cpu_heap.tune.__wrapped__()


def test_another_value_of_the_switch_is_refused(monkeypatch):
    monkeypatch.setenv(cpu_heap.SWITCH, "yes")
    with pytest.raises(InputError, match="OFFICIAL_BERT_TUNE_HEAP=yes: must be 0 or 1"):
        cpu_heap.tune.__wrapped__()
