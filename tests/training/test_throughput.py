"""Counts of tokens and operations, and the peak of the devices."""

import dataclasses
import json
import time

import numpy as np
import pytest
import tensorflow as tf

from official_bert.errors import InputError
from official_bert.options.reporting import ReportingOptions
from official_bert.training import throughput
from official_bert.training.throughput import WorkCounter, measured_peak_flops, peak_flops

ONE = tf.distribute.get_strategy()


class TwoReplicas:
    """Stands for a strategy of two replicas, whose values are lists of two."""

    num_replicas_in_sync = 2

    @staticmethod
    def experimental_local_results(value):
        return value


def test_stacked_batches_are_counted_by_their_steps():
    work = WorkCounter(
        ONE, lambda sequences, length, predictions: 1000 * sequences + 10 * length + predictions
    )
    drawn = {
        "input_ids": tf.zeros([10, 4, 32], tf.int32),
        "masked_lm_positions": tf.zeros([10, 4, 5], tf.int32),
    }
    work.add(drawn, 3)  # the other seven are never read
    assert (work.tokens, work.flops) == (3 * 4 * 32, 3 * (4000 + 320 + 5))


def test_batches_of_their_own_lengths_and_choices_on_two_replicas():
    work = WorkCounter(TwoReplicas, lambda sequences, length, predictions: 1000 * sequences + length)
    batches = [{"input_ids": [tf.zeros([1, 4, 3, length], tf.int32)] * 2} for length in (8, 24)]
    work.add(batches, 2)
    assert (work.tokens, work.flops) == (2 * 4 * 3 * (8 + 24), 2 * 24000 + 8 + 24)


def test_the_peak_is_given_measured_or_taken_from_an_earlier_run(tmp_path, monkeypatch):
    measured = iter([5e9, 6e9, 7e9])
    monkeypatch.setattr(throughput, "measured_peak_flops", lambda strategy, dtype: next(measured))

    def peak(dtype="float32", **flags):
        return peak_flops(ReportingOptions(**flags), str(tmp_path), ONE, dtype)

    assert peak() is None
    assert peak(peak_flops=1e12) == 1e12
    with pytest.raises(InputError, match="--peak_flops and --measure_peak_flops: give one of them"):
        peak(peak_flops=1e12, measure_peak_flops=True)
    assert peak(measure_peak_flops=True) == 5e9
    devices = [device.name for device in tf.config.list_logical_devices()]
    record = {
        "devices": devices,
        "num_replicas": 1,
        "flags": {"dtype": "float32"},
        "measured_peak_flops": 5e9,
    }
    others = [
        record | {"devices": ["/device:GPU:0"], "measured_peak_flops": 1.0},
        record | {"num_replicas": 2, "measured_peak_flops": 2.0},
        {name: value for name, value in record.items() if name != "measured_peak_flops"},
        {"flags": {}},
    ]
    lines = [json.dumps(one) for one in (record, *others)]
    (tmp_path / "runs.jsonl").write_text("\n".join([*lines, "damaged"]) + "\n")
    assert peak(measure_peak_flops=True) == 5e9
    assert peak("bfloat16", measure_peak_flops=True) == 6e9


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_measurement_gives_the_rate_of_products(dtype, monkeypatch):
    """With a clock that stands still but for 0.25 s a call, the rate is known: two products of 2 * 64^3 each."""
    secs = iter(range(1000))
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: 0.25 * next(secs))
    assert measured_peak_flops(ONE, dtype, secs=1.0, size=64) == pytest.approx(2 * 2 * 64**3 / 0.25)


def test_the_products_are_really_made():
    """TensorFlow computes products of constants once; the rate was then hundreds of times that of numpy."""
    matrix = np.ones([512, 512], np.float32)
    start_secs = time.perf_counter()
    for _ in range(4):
        matrix @ matrix
    numpys = 4 * 2 * 512**3 / (time.perf_counter() - start_secs)
    rate = measured_peak_flops(ONE, "float32", secs=0.2, size=512)
    print(f"{rate:.3g} FLOP/s, numpy {numpys:.3g}")
    assert numpys / 50 < rate < 50 * numpys


def test_the_flags_have_no_default_measurement():
    assert dataclasses.asdict(ReportingOptions()) == {"peak_flops": None, "measure_peak_flops": False}
