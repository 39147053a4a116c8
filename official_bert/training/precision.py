"""Mixed precision: the types that a model computes in, and the scaling of the loss that float16
needs.

The matrix products and the activations between them have the 16-bit type; weights, moments, the
reduction of gradients, softmax, layer norms, losses and logits are float32.
"""

import contextlib
from collections.abc import Callable

import keras
import tensorflow as tf
from absl import logging

from official_bert.io.errors import Diverged, InputError
from official_bert.io.processor import instruction_sets
from official_bert.options.shared import AUTO, BFLOAT16, FLOAT16, FLOAT32
from official_bert.training import distribution
from official_bert.training.distribution import device_kind
from official_bert.training.workers import Workers

DTYPE_KEY = "dtype"  # in the start line of run_log.py
# Flags of Linux; the name of the instructions.
_CPU_SIGNS = {"amx_bf16": "AMX", "avx512_bf16": "AVX512_BF16"}
_GPU_CAPABILITY = 8, 0  # of the first NVIDIA GPUs that multiply bfloat16

FIRST_SCALE = 2.0**15
LEAST_SCALE = 1.0
GROWTH_UPDATES = 2000  # in a row without an overflow, after which the scale is doubled
# The key of the number of updates made, in the sums of a step that may skip some.
UPDATES = "updates"
TENSORBOARD_ONLY = ("loss_scale", "skipped_updates")  # logged when an update is skipped

_POLICIES = {FLOAT32: "float32", BFLOAT16: "mixed_bfloat16", FLOAT16: "mixed_float16"}
_STORING_POLICIES = {FLOAT32: "float32", BFLOAT16: "bfloat16"}


def choose(dtype: str, strategy: tf.distribute.Strategy) -> tuple[str, dict[str, object]]:
    """Chooses the type of the matrix products.

    Args:
        dtype: the value of --dtype.
        strategy: the devices.

    Returns:
        The type, and values for the start line of run_log.py.
    """
    if dtype == AUTO:
        reason = reason_for_bfloat16(strategy)
        # The workers of a run compute in one type: the chief's.
        if Workers(strategy).broadcast_from_chief(int(reason is not None)):
            dtype, reason = BFLOAT16, reason or "the chief computes in it"
        else:
            dtype, reason = FLOAT32, "the devices do not multiply bfloat16"
        logging.info("--dtype=auto: %s, since %s", dtype, reason)
        return dtype, {DTYPE_KEY: dtype}
    if dtype == BFLOAT16 and reason_for_bfloat16(strategy) is None:
        logging.warning(
            "--dtype=bfloat16: the devices are not known to multiply it, and then float32 is "
            "faster and more exact; give --dtype=auto"
        )
    return dtype, {}


def reason_for_bfloat16(strategy: tf.distribute.Strategy) -> str | None:
    """Returns why the devices are fast with bfloat16, as a part of a sentence.

    The result is None if they are not known to be.

    Args:
        strategy: the devices.
    """
    kind = device_kind(strategy)
    if kind == "TPU":
        return "a TPU multiplies it"
    if kind == "GPU":
        capabilities = []
        for gpu in tf.config.list_physical_devices("GPU"):
            details = tf.config.experimental.get_device_details(gpu)
            capabilities.append(details.get("compute_capability", (0, 0)))
        return "the GPU multiplies it" if min(capabilities) >= _GPU_CAPABILITY else None
    instructions = instruction_sets()
    for flag, name in _CPU_SIGNS.items():
        if flag in instructions:
            return f"the processor has {name}"
    return None


def computing_in(dtype: str) -> contextlib.AbstractContextManager[None]:
    """A context in which models are built that compute in a type; their weights are float32.

    Args:
        dtype: a value of --dtype but auto.
    """
    return _under_policy(_POLICIES[dtype])


def stored_in(dtype: str) -> contextlib.AbstractContextManager[None]:
    """A context in which models are built whose kernels and tables also have the type.

    Args:
        dtype: FLOAT32 or BFLOAT16.
    """
    return _under_policy(_STORING_POLICIES[dtype])


@contextlib.contextmanager
def _under_policy(policy: str):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def check_dtype(dtype: str, strategy: tf.distribute.Strategy) -> None:
    """Refuses a type that the devices cannot compute in.

    Args:
        dtype: the value of --dtype.
        strategy: the devices.

    Raises:
        InputError: a TPU has no float16.
    """
    if dtype == FLOAT16 and distribution.is_tpu(strategy):
        raise InputError("--dtype=float16: a TPU does not multiply it; give --dtype=bfloat16")


class LossScale:
    """Dynamic loss scaling (Micikevicius et al., 2018, section 3.2).

    float16 has no number between 0 and 6e-8, where many gradients are. So the loss is multiplied by
    a scale before the backward pass, and the gradients are divided by it afterwards. If one of them
    overflows, the update is skipped and the scale halved. After GROWTH_UPDATES updates in a row the
    scale is doubled.

    Attributes:
        state: the variables that are saved with a checkpoint, by name.
        num_skipped: the number of updates that this run has skipped.
    """

    def __init__(self):
        """Makes the variables, in the scope of the current strategy."""
        self._scale = tf.Variable(FIRST_SCALE, trainable=False, dtype=tf.float32, name="loss_scale")
        self._num_good = tf.Variable(
            0, trainable=False, dtype=tf.int64, name="updates_at_loss_scale"
        )
        self.state = {"loss_scale": self._scale, "updates_at_loss_scale": self._num_good}
        self.num_skipped = 0

    @property
    def value(self) -> tf.Tensor:
        """The scale, float32[], a power of two."""
        return tf.convert_to_tensor(self._scale)

    def adjust(self, is_applied: tf.Tensor) -> None:
        """Adjusts the scale to an update, in replica context.

        Args:
            is_applied: bool[], whether the update was made; the same on all replicas.
        """
        num_good = tf.where(is_applied, self._num_good + 1, 0)
        is_grown = num_good >= GROWTH_UPDATES
        grown = tf.where(is_grown, self._scale * 2.0, self._scale)
        self._scale.assign(tf.where(is_applied, grown, self._scale * 0.5))
        self._num_good.assign(tf.where(is_grown, tf.zeros_like(num_good), num_good))

    def restore(self, read: Callable[[str], float | None]) -> None:
        """Restores the variables.

        Args:
            read: returns a saved value by its name in `state`, or None.
        """
        for name, variable in self.state.items():
            saved = read(name)
            if saved is not None:
                variable.assign(saved)

    def metrics(self) -> dict[str, float]:
        """Returns the scale and the number of skipped updates, for a report."""
        return {"loss_scale": float(self.value), "skipped_updates": self.num_skipped}

    def count_skipped(self, num_skipped: int) -> None:
        """Counts and logs the updates that a call into TensorFlow has skipped.

        Args:
            num_skipped: the number of these updates.

        Raises:
            Diverged: the scale is below LEAST_SCALE, so the overflow is not the scale's.
        """
        if not num_skipped:
            return
        self.num_skipped += num_skipped
        scale = float(self.value)
        logging.info(
            "Overflow in float16: %d updates skipped; the loss scale is now %g", num_skipped, scale
        )
        if scale < LEAST_SCALE:
            raise Diverged(
                f"float16 overflows whatever the loss scale is, which has sunk to {scale:g}; lower "
                "--learning_rate, lengthen its warm-up, or give --dtype=bfloat16 or float32 (the "
                "last checkpoint is valid)"
            )
