"""The peak of the memory; models that are no longer used leave it."""

import gc
import mmap
import pathlib
import re
import types
import weakref

import numpy as np
import pytest
import tensorflow as tf

from official_bert.config import BertConfig
from official_bert.modeling import BertClassifier
from official_bert.training import memory
from tests import toy


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
    """The operating system counts in kB what it calls the high-water mark of the resident
    memory.
    """
    before = memory.peak_memory()
    status = pathlib.Path("/proc/self/status").read_text()
    peak_kb = int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])
    resident_kb = int(re.search(r"VmRSS:\s*(\d+) kB", status)[1])
    assert before.keys() == {"memory_mb"}, "no GPU, no figure of one"
    assert before["memory_mb"] == pytest.approx(peak_kb * 1024 / 1e6, rel=0.02)
    new_kb = peak_kb - resident_kb + 160_000
    content = np.frombuffer(mmap.mmap(-1, new_kb * 1024), np.uint8)
    # One byte of each page is enough for the page to be there.
    content[:: mmap.PAGESIZE] = 1
    assert memory.peak_memory()["memory_mb"] > before["memory_mb"] + 100


def test_the_peak_of_gpus_is_that_of_the_fullest(monkeypatch):
    peaks = {"/device:GPU:0": 3_000_000, "/device:GPU:1": 5_500_000}
    devices = [types.SimpleNamespace(name=name) for name in peaks]
    monkeypatch.setattr(memory.tf.config, "list_logical_devices", lambda kind: devices)
    monkeypatch.setattr(
        memory.tf.config.experimental,
        "get_memory_info",
        lambda name: {"peak": peaks[name]},
    )
    assert memory.peak_memory()["gpu_memory_mb"] == 5.5
