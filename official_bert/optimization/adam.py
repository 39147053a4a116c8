"""Adam with decoupled weight decay, the optimizer of the original.

The optimizer is a tf.Module of plain variables under the original's names, so that a TF1 program
can read its checkpoints. It runs in replica context, on gradients that are already reduced and
clipped.
"""

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from official_bert.checkpoints.names import AVERAGE

EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")
CLIP_NORM = 1.0
# Variables whose names begin with the same scopes are updated in one launch. The groups of all
# layers have the same shapes, so that XLA compiles one layer, whatever the number of layers.
_DEPTH_OF_A_GROUP = 3  # such as bert/encoder/layer_0


def dense_gradients(gradients: list) -> list:
    """Converts gradients, including those of embedding lookups, to dense tensors; None stays None.

    The gradient of a lookup has one row for each occurrence of an id. The norm of these rows is not
    the norm of the gradient.
    """
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


def clip_by_global_norm(gradients: list, clip_norm: float = CLIP_NORM, norm=None) -> list:
    """Scales dense gradients, or None, so that their common norm, `norm` if it is known, is at
    most `clip_norm`.
    """
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, norm)
    return clipped


def has_xla() -> bool:
    """Whether XLA compiles single functions on this machine.

    TensorFlow's package for TPUs does not: it lacks XLA for the CPU, and a TPU compiles its whole
    program anyway.
    """
    return not tf.config.list_physical_devices("TPU_SYSTEM")


def compiled_by_xla(function: Callable) -> Callable:
    """Returns a function of tensors compiled by XLA, or as it is where XLA is missing, without
    AutoGraph.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments):
        return compiled(*arguments) if has_xla() else function(*arguments)

    return call


class AdamWeightDecayOptimizer(tf.Module):
    """The original's optimizer: Adam without bias correction, and weight decay that is multiplied
    by the rate.

        m' = b1 m + (1 - b1) g        v' = b2 v + (1 - b2) g^2
        w' = w - lr (m' / (sqrt(v') + epsilon) + decay w)

    With bias correction, m' and v' are divided by 1 - b1^t and 1 - b2^t in the second line, t
    counting the updates from 1 (Kingma and Ba, 2015). Without it an update is (1 - b1^t) / sqrt(1 -
    b2^t) times as long: 3.2 times at the first update, at most 6.6 times, at the 12th, and still
    3.2 times at the 100th, which is why warm-up matters.

    With `ema_decay` each variable has an average, the slot `ema` (Polyak and Juditsky, 1992;
    Tarvainen and Valpola, 2017), which after `t` earlier updates moves as that of TensorFlow's
    ExponentialMovingAverage:

        d = min(ema_decay, (1 + t) / (10 + t))        average' = d average + (1 - d) w'

    Attributes:
        global_step: int64[], the number of updates made. Its value before an update determines the
            update's rate.
        position: float32[], a variable that the schedule receives, too, if it is not None.
        slots: the optimizer slots by name, such as `<name>/adam_m`, for each variable and each of
            `slot_names`.
    """

    # Of checkpoints/names.py; an optimizer with one moment has the first.
    slot_names = ("adam_m", "adam_v")

    def __init__(
        self,
        learning_rate: float | Callable[[tf.Tensor], tf.Tensor],
        weight_decay_rate: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Iterable[str] | None = None,
        name: str = "AdamWeightDecayOptimizer",
        bias_correction: bool = False,
        ema_decay: float | None = None,
    ):
        """Makes an optimizer without variables; `build` adds them.

        Args:
            learning_rate: a number, or a function of the number of updates made so far.
            weight_decay_rate: the share of a variable that an update with learning rate 1 removes.
            beta_1, beta_2: the decay rates of the two moments.
            epsilon: a constant that is added outside the square root.
            exclude_from_weight_decay: regular expressions; variables whose names contain a match
                are not decayed.
            ema_decay: the decay rate of the averages of the variables; None for no averages.
        """
        super().__init__(name=name)
        self.ema_decay = ema_decay
        self.bias_correction = bias_correction
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay or ())
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self.position: tf.Variable | None = None
        self.slots: dict[str, tf.Variable] = {}
        self._names: list[str] = []
        self._weights: list[tf.Variable] = []
        self._rate_factors: list[float] = []

    def build(
        self,
        named_variables: Iterable[tuple[str, tf.Variable]],
        rate_factor: Callable[[str], float] | None = None,
    ):
        """Makes the slots of pairs of TF1 name and variable, in the scope of the current strategy.

        `rate_factor` returns the factor of the learning rate of the variable with a name; it is 1
        without it.
        """
        for name, variable in named_variables:
            self._names.append(name)
            self._weights.append(variable)
            self._rate_factors.append(rate_factor(name) if rate_factor else 1.0)
            for slot in (*self.slot_names, *([] if self.ema_decay is None else [AVERAGE])):
                full = f"{name}/{slot}"
                zeros = tf.zeros(variable.shape, tf.float32)
                self.slots[full] = tf.Variable(zeros, trainable=False, name=full)

    def start_averages(self):
        """Makes the weights as they are the first values of their averages."""
        for weight, average in self._averages():
            average.assign(tf.convert_to_tensor(weight))

    def use_averages(self):
        for weight, average in self._averages():
            weight.assign(tf.convert_to_tensor(average))

    @contextlib.contextmanager
    def using_averages(self) -> Iterator[None]:
        """Gives each weight the value of its average, and afterwards its own again."""
        own = [(weight, tf.convert_to_tensor(weight)) for weight, _ in self._averages()]
        self.use_averages()
        try:
            yield
        finally:
            for weight, value in own:
                weight.assign(value)

    def _averages(self) -> Iterator[tuple[tf.Variable, tf.Variable]]:
        """Yields each weight with its average; none without `ema_decay`."""
        for name, weight in zip(self._names, self._weights, strict=True):
            if self.ema_decay is not None:
                yield weight, self.slots[f"{name}/{AVERAGE}"]

    def current_rate(self) -> tf.Tensor:
        """Returns the learning rate of the next update, float32[]."""
        rate, position = self.learning_rate, () if self.position is None else (self.position,)
        return tf.convert_to_tensor(
            rate(self.global_step, *position) if callable(rate) else rate, tf.float32
        )

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[tf.Tensor | None, tf.Variable]],
        is_made: tf.Tensor | None = None,
    ):
        """Updates every variable that has a gradient; a variable without one stays unchanged and is
        not decayed.

        Args:
            grads_and_vars: dense float32 gradients with their variables, in the order of `build`.
            is_made: bool[], whether the update is made at all; if not, weights, slots and
                `global_step` stay as they are, whatever the gradients. None means that it is made.
        """
        pairs = list(grads_and_vars)
        if [id(variable) for _, variable in pairs] != [id(variable) for variable in self._weights]:
            raise ValueError("apply_gradients takes the variables of build, in its order")
        groups: dict[tuple, list] = {}
        for name, factor, (gradient, weight) in zip(
            self._names, self._rate_factors, pairs, strict=True
        ):
            if gradient is not None:
                key = factor, *name.split("/")[:_DEPTH_OF_A_GROUP]
                groups.setdefault(key, []).append((name, weight, gradient))
        rate = self.current_rate()
        for (factor, *_), group in groups.items():
            self._update_group(group, rate if factor == 1.0 else factor * rate, is_made)
        self.global_step.assign_add(1 if is_made is None else tf.cast(is_made, tf.int64))

    def _update_group(self, group, rate, is_made):
        names, weights, gradients = zip(*group, strict=True)
        variables = [
            [
                _of_this_replica(each)
                for each in (weight, *(self.slots[f"{name}/{slot}"] for slot in self.slot_names))
            ]
            for name, weight in zip(names, weights, strict=True)
        ]
        rules = tuple(self._rule(name) for name in names)
        decays = [
            tf.constant(self.weight_decay_rate if self.decays(name) else 0.0) for name in names
        ]
        constants = self.beta_1, self.beta_2, self.epsilon
        step = tf.cast(self.global_step + 1, tf.float32) if self.bias_correction else None
        arguments = rules, variables, list(gradients), rate, decays, constants, step
        if is_made is None:
            _assign_new_values(*arguments)
            new_weights = weights
        else:
            new_values = _new_values(*arguments)
            for variable, new in zip(
                tf.nest.flatten(variables), tf.nest.flatten(new_values), strict=True
            ):
                _assign_if(is_made, variable, new)
            new_weights = [new_weight for new_weight, *_ in new_values]
        if self.ema_decay is not None:
            step = tf.cast(self.global_step, tf.float32)
            share = tf.minimum(self.ema_decay, (1.0 + step) / (10.0 + step))
            for name, weight in zip(names, new_weights, strict=True):
                average = self.slots[f"{name}/{AVERAGE}"]
                _assign_if(
                    is_made, average, share * average + (1.0 - share) * tf.convert_to_tensor(weight)
                )

    def _rule(self, name: str) -> Callable:
        """Returns what makes the update of a variable, a function as `updated`; another
        optimizer overrides it.
        """
        return updated

    def decays(self, name: str) -> bool:
        """Tells whether weight decay applies to the variable with this name."""
        return bool(self.weight_decay_rate) and is_decayed(name, self.exclude_from_weight_decay)


def is_decayed(name: str, excluded: Iterable[str]) -> bool:
    """Tells whether the name of a variable contains no match of the regular expressions of an
    exclusion.
    """
    return not any(re.search(pattern, name) for pattern in excluded)


def updated(
    weight, m, v, gradient, rate, decay, beta_1: float, beta_2: float, epsilon: float, step=None
):
    """Returns the weight and its slots after the update: floats of one shape, as they and the
    gradient are.

    rate and decay: float[]. step: float[], counted from 1, for the bias correction, or None.
    """
    direction, m, v = adam_direction(m, v, gradient, beta_1, beta_2, epsilon, step)
    return weight - rate * (direction + decay * weight), m, v


def adam_direction(m, v, gradient, beta_1: float, beta_2: float, epsilon: float, step=None):
    """Returns the direction of Adam's step, and both moments after it; the arguments are those
    of `updated`.
    """
    m = beta_1 * m + (1.0 - beta_1) * gradient
    v = beta_2 * v + (1.0 - beta_2) * tf.square(gradient)
    if step is None:
        return m / (tf.sqrt(v) + epsilon), m, v
    corrected_m = m / (1.0 - tf.pow(beta_1, step))
    corrected_v = v / (1.0 - tf.pow(beta_2, step))
    return corrected_m / (tf.sqrt(corrected_v) + epsilon), m, v


def _assign_if(is_made, variable, new):
    """Gives a variable its new value in an update that is made; None means that it is."""
    # `where` instead of `cond`, which could not stand round the collective operations of the
    # update.
    variable.assign(
        new if is_made is None else tf.where(is_made, new, tf.convert_to_tensor(variable))
    )


def _of_this_replica(variable):
    """Returns this replica's part of a mirrored variable, of which a compiled function would
    take the first one's.
    """
    if not has_xla():
        return variable
    parts = tf.distribute.get_strategy().experimental_local_results(variable)
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return parts[tf.get_static_value(replica) % len(parts)]


def _group_updated(rules, variables, gradients, rate, decays, constants, step):
    return [
        rule(*map(tf.convert_to_tensor, of_weight), gradient, rate, decay, *constants, step)
        for rule, of_weight, gradient, decay in zip(
            rules, variables, gradients, decays, strict=True
        )
    ]


# XLA makes one pass over memory out of a dozen.
_new_values = compiled_by_xla(_group_updated)


@compiled_by_xla
def _assign_new_values(rules, variables, *arguments):
    """Updates each weight and its slots in place. A choice by `is_made` in here would change how
    XLA rounds.
    """
    new_values = _group_updated(rules, variables, *arguments)
    for variable, new in zip(tf.nest.flatten(variables), tf.nest.flatten(new_values), strict=True):
        variable.assign(new)
