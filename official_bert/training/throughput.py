"""What a training computes: its tokens and floating-point operations, and how many the devices could make.

In: the batches of a training. Out: counts, and the peak of the devices, against which the model FLOPs utilization (MFU)
is measured: the operations of the model a second, over the peak.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import tensorflow as tf
from absl import logging

from official_bert.errors import InputError
from official_bert.options.reporting import ReportingOptions
from official_bert.training import run_records, workers
from official_bert.training.devices import kind_of_device

PEAK_KEY, DTYPE_KEY = "measured_peak_flops", "dtype"  # in runs.jsonl
_MEASURING_SECS = 1.0
_SIZES = {"CPU": (1024, 2), "GPU": (8192, 16), "TPU": (8192, 16)}  # of a matrix, and products in one call


class WorkCounter:
    """Counts the work of a training from the shapes of its batches.

    Attributes:
        tokens: the number of positions of all sequences so far, padding included.
        flops: the number of floating-point operations so far.
    """

    def __init__(self, strategy: tf.distribute.Strategy, flops_of: Callable[[int, int, int], int]):
        """Starts at 0.

        Args:
            strategy: the strategy whose replicas share each batch.
            flops_of: the operations of an update, as a function of the number of its sequences, their padded length and
                the number of masked LM positions of each, 0 without such positions.
        """
        self._strategy, self._flops_of = strategy, flops_of
        self.tokens, self.flops = 0, 0

    def add(self, drawn: Mapping | list[Mapping], num_steps: int):
        """Counts the batches of a call into TensorFlow, in the form of `loop.Drawn`."""
        for batch, count in (
            [(drawn, num_steps)] if isinstance(drawn, Mapping) else [(one, 1) for one in drawn]
        ):
            _, per_replica, *choices, length = self._shape(batch["input_ids"])
            num_sequences = per_replica * self._strategy.num_replicas_in_sync
            for number in choices:
                num_sequences *= number
            positions = batch.get("masked_lm_positions")
            num_predictions = 0 if positions is None else self._shape(positions)[-1]
            self.tokens += count * num_sequences * length
            self.flops += count * self._flops_of(num_sequences, length, num_predictions)

    def _shape(self, value) -> list[int]:
        """Returns the shape of a feature on one replica."""
        return self._strategy.experimental_local_results(value)[0].shape.as_list()


def peak_flops(
    options: ReportingOptions, output_dir: str, strategy: tf.distribute.Strategy, dtype: str
) -> float | None:
    """Returns the operations a second that all replicas can make: given, measured now or earlier; None if not asked.

    Args:
        options: the flags.
        output_dir: the output folder of the run, which all workers read; its record may hold an earlier measurement on
            the same devices.
        strategy: the strategy of the replicas.
        dtype: the type of the products.

    Raises:
        InputError: the flags contradict each other.
    """
    if options.peak_flops and options.measure_peak_flops:
        raise InputError("--peak_flops and --measure_peak_flops: give one of them")
    if not options.measure_peak_flops:
        return options.peak_flops
    found, source = earlier_measurement(PEAK_KEY, output_dir, strategy, dtype), "an earlier run"
    if found is None:
        found, source = measured_peak_flops(strategy, dtype), "this run"
    logging.info("Peak of the matrix products in %s, measured by %s: %.4g FLOP/s", dtype, source, found)
    return found


def measured_peak_flops(
    strategy: tf.distribute.Strategy, dtype: str, secs: float = _MEASURING_SECS, size: int | None = None
) -> float:
    """Measures the rate of large matrix products, the best of about a second, on all replicas at the same time.

    Args:
        strategy: the strategy of the replicas.
        dtype: the type of the products.
        secs: how long to measure.
        size: the number of rows and columns of the matrices; None for one that fits the devices.
    """

    usual_size, num_products = _SIZES[kind_of_device(strategy)]
    size = size or usual_size
    with strategy.scope():  # a variable, because the products of constants would be computed once and for all
        variable = tf.Variable(tf.random.stateless_normal([size, size], [1, 2], stddev=size**-0.5))

    def products():
        x = matrix = tf.cast(variable, dtype)
        for _ in range(num_products):
            x = tf.matmul(x, matrix)
        return tf.cast(x[0, 0], tf.float32)

    @tf.function(autograph=False)
    def on_all():
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(products), axis=None)

    on_all().numpy()  # traces, and wakes the devices
    least_secs, end_secs = float("inf"), time.perf_counter() + secs
    while workers.is_true_of_any(strategy, time.perf_counter() < end_secs):
        start_secs = time.perf_counter()
        on_all().numpy()
        least_secs = min(least_secs, time.perf_counter() - start_secs)
    return strategy.num_replicas_in_sync * num_products * 2.0 * size**3 / least_secs


def earlier_measurement(
    key: str, output_dir: str, strategy: tf.distribute.Strategy, dtype: str
) -> float | None:
    """Returns the newest measurement of the run records with the same type, devices and replicas; None without one.

    Args:
        key: the measurement's key in a record.
        output_dir: the folder with the records.
        strategy: the strategy of the replicas.
        dtype: the type that the run computed in.
    """
    found = None
    devices = [device.name for device in tf.config.list_logical_devices()]
    for record in run_records.rows(os.path.join(output_dir, run_records.FILE)):
        try:
            same = record["devices"] == devices and record["num_replicas"] == strategy.num_replicas_in_sync
            if same and record.get(DTYPE_KEY, record["flags"]["dtype"]) == dtype:
                found = float(record.get(key) or 0) or found
        except (ValueError, TypeError, KeyError, AttributeError):  # a record of an older version
            continue
    return found
