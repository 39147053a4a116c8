"""Adam with decoupled weight decay, the optimizer of the original.

The optimizer is a tf.Module of plain variables under the original's names, so that a TF1 program
can read its checkpoints. It runs in replica context, on gradients that are already reduced.
"""

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official_bert.checkpoints.names import AVERAGE

EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")
CLIP_NORM = 1.0
# Variables whose names begin with the same scopes are updated in one launch. The groups of all
# layers have the same shapes, so that XLA compiles one layer, whatever the number of layers.
_GROUP_DEPTH = 3  # such as bert/encoder/layer_0
# Variables with fewer elements are updated as one long vector, since XLA takes 0.06 s to compile a
# kernel for each variable. Larger ones are not worth the copies into the vector and out of it.
_MIN_GROUPED_SIZE = 2**14


class AdamConstants(NamedTuple):
    """The numbers of an update that all weights share.

    Attributes:
        beta_1: the decay rate of the first moment.
        beta_2: the decay rate of the second moment.
        epsilon: a constant that is added outside the square root.
        step: the number of this update, float[], from 1, for the bias correction; None for none.
        gradient_scale: the factor of all gradients, float[]; None for 1.
    """

    beta_1: float
    beta_2: float
    epsilon: float
    step: tf.Tensor | None = None
    gradient_scale: tf.Tensor | None = None


class Moments(NamedTuple):
    """The averages of a weight's gradients, floats of its shape.

    Attributes:
        m: the first moment, the average of the gradients.
        v: the second moment, the average of their squares; None in an optimizer with one moment.
    """

    m: tf.Tensor
    v: Any = None


def dense_gradients(gradients: list) -> list:
    """Converts gradients to dense tensors.

    The gradient of an embedding lookup has one row for each occurrence of an id. The norm of these
    rows is not the norm of the gradient.

    Args:
        gradients: tensors, sparse gradients, or None, which stays None.
    """
    dense = []
    for gradient in gradients:
        if gradient is not None:
            gradient = tf.convert_to_tensor(gradient)
        dense.append(gradient)
    return dense


def clip_by_global_norm(
    gradients: list,
    clip_norm: float = CLIP_NORM,
    norm: tf.Tensor | None = None,
) -> list:
    """Scales gradients so that their common norm is at most `clip_norm`.

    Args:
        gradients: dense gradients, or None.
        clip_norm: the largest norm.
        norm: the common norm, float[]; None to compute it.
    """
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, norm)
    return clipped


def clip_scale(norm: tf.Tensor, clip_norm: float = CLIP_NORM) -> tf.Tensor:
    """Returns the factor with which `clip_by_global_norm` multiplies gradients, float[].

    The optimizer multiplies by it in its pass over the weights, which saves a pass over memory.

    Args:
        norm: the common norm of the gradients, float[]. The factor of one that is not finite is
            NaN.
        clip_norm: the largest norm.
    """
    scale = clip_norm / tf.maximum(norm, clip_norm)
    return tf.where(tf.math.is_finite(norm), scale, math.nan)


def has_xla() -> bool:
    """Returns whether XLA compiles single functions on this machine.

    TensorFlow's package for TPUs does not: it lacks XLA for the CPU, and a TPU compiles its whole
    program anyway.
    """
    return not tf.config.list_physical_devices("TPU_SYSTEM")


def compiled_by_xla(function: Callable) -> Callable:
    """Returns a function compiled by XLA, without AutoGraph.

    Where XLA is missing, the function runs unchanged.

    Args:
        function: a function of tensors.
    """
    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def call(*arguments: Any):
        run = compiled if has_xla() else function
        return run(*arguments)

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
        position: float32[], a further argument of the schedule; None for none.
        slots: the optimizer slots by name, such as `<name>/adam_m`, for each variable and each of
            `slot_names`.

    Example:
        ```python
        import tensorflow as tf
        from official_bert import AdamWeightDecayOptimizer

        weight = tf.Variable([1.0, -2.0], name="weight")
        optimizer = AdamWeightDecayOptimizer(learning_rate=0.1, weight_decay_rate=0.01)
        optimizer.build([("weight", weight)])
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight**2)
        optimizer.apply_gradients([(tape.gradient(loss, weight), weight)])
        weight.numpy()  # [0.683, -1.682]
        ```
    """

    # The names in checkpoints/names.py. An optimizer with one moment, such as Lion, has the first.
    slot_names = ("adam_m", "adam_v")

    def __init__(  # noqa: PLR0913 - the original's arguments
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
            beta_1: the decay rate of the first moment.
            beta_2: the decay rate of the second moment.
            epsilon: a constant that is added outside the square root.
            exclude_from_weight_decay: regular expressions; variables whose names contain a match
                are not decayed. None for no exclusions.
            name: the name of the optimizer.
            bias_correction: whether the moments are divided by 1 - beta^t.
            ema_decay: the decay rate of the averages of the variables; None for no averages.
        """
        super().__init__(name=name)
        self.ema_decay = ema_decay
        self.bias_correction = bias_correction
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = tuple(exclude_from_weight_decay or ())
        self.global_step = tf.Variable(
            0,
            dtype=tf.int64,
            trainable=False,
            name="global_step",
        )
        self.position: tf.Variable | None = None
        self.slots: dict[str, tf.Variable] = {}
        self._names: list[str] = []
        self._weights: list[tf.Variable] = []
        self._rate_factors: list[float] = []

    def build(
        self,
        named_variables: Iterable[tuple[str, tf.Variable]],
        rate_factor: Callable[[str], float] | None = None,
    ) -> None:
        """Makes the slots of variables, in the scope of the current strategy.

        Args:
            named_variables: pairs of a TF1 name and a variable.
            rate_factor: a function from a name to the factor of the variable's learning rate; None
                for 1 everywhere.
        """
        slot_names = [*self.slot_names]
        if self.ema_decay is not None:
            slot_names.append(AVERAGE)
        for name, variable in named_variables:
            factor = rate_factor(name) if rate_factor else 1.0
            self._names.append(name)
            self._weights.append(variable)
            self._rate_factors.append(factor)
            for slot in slot_names:
                full = f"{name}/{slot}"
                zeros = tf.zeros(variable.shape, tf.float32)
                self.slots[full] = tf.Variable(
                    zeros,
                    trainable=False,
                    name=full,
                )

    def start_averages(self) -> None:
        """Gives each average the current value of its weight."""
        for weight, average in self._averages():
            average.assign(tf.convert_to_tensor(weight))

    def use_averages(self) -> None:
        """Gives each weight the value of its average."""
        for weight, average in self._averages():
            weight.assign(tf.convert_to_tensor(average))

    @contextlib.contextmanager
    def using_averages(self) -> Iterator[None]:
        """A context in which each weight has the value of its average."""
        weights = [weight for weight, _ in self._averages()]
        values = [tf.convert_to_tensor(weight) for weight in weights]
        self.use_averages()
        try:
            yield
        finally:
            for weight, value in zip(weights, values, strict=True):
                weight.assign(value)

    def _averages(self) -> Iterator[tuple[tf.Variable, tf.Variable]]:
        """Yields each weight with its average; none without `ema_decay`."""
        for name, weight in zip(self._names, self._weights, strict=True):
            if self.ema_decay is not None:
                yield weight, self.slots[f"{name}/{AVERAGE}"]

    def current_rate(self) -> tf.Tensor:
        """Returns the learning rate of the next update, float32[]."""
        rate = self.learning_rate
        if callable(rate):
            position = () if self.position is None else (self.position,)
            rate = rate(self.global_step, *position)
        return tf.convert_to_tensor(rate, tf.float32)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[tf.Tensor | None, tf.Variable]],
        is_applied: tf.Tensor | None = None,
        gradient_scale: tf.Tensor | None = None,
    ) -> None:
        """Updates every variable that has a gradient.

        A variable without a gradient stays unchanged and is not decayed.

        Args:
            grads_and_vars: dense float32 gradients with their variables, in the order of `build`.
            is_applied: bool[], whether the update is made at all. If not, weights, slots and
                `global_step` stay as they are, whatever the gradients. None means that it is made.
            gradient_scale: the factor of all gradients, float[], such as that of `clip_scale`; None
                for 1.

        Raises:
            ValueError: the variables are not those of `build`.
        """
        pairs = list(grads_and_vars)
        variable_ids = [id(variable) for _, variable in pairs]
        weight_ids = [id(weight) for weight in self._weights]
        if variable_ids != weight_ids:
            raise ValueError("apply_gradients takes the variables of build, in its order")
        groups: dict[tuple, list] = {}
        rows = zip(self._names, self._rate_factors, pairs, strict=True)
        for name, factor, (gradient, weight) in rows:
            if gradient is not None:
                is_in_vector = self._is_in_vector(name, weight)
                scopes = [] if is_in_vector else name.split("/")[:_GROUP_DEPTH]
                group = groups.setdefault((factor, is_in_vector, *scopes), [])
                group.append((name, weight, gradient))
        rate = self.current_rate()
        constants = self._constants(gradient_scale)
        for (factor, is_in_vector, *_), group in groups.items():
            group_rate = rate if factor == 1.0 else factor * rate
            update = self._update_vector if is_in_vector else self._update_group
            update(group, group_rate, constants, is_applied)
        num_updates = 1 if is_applied is None else tf.cast(is_applied, tf.int64)
        self.global_step.assign_add(num_updates)

    def _update_group(
        self,
        group: list,
        rate: tf.Tensor,
        constants: AdamConstants,
        is_applied: tf.Tensor | None,
    ):
        """Updates variables, which are triples of a name, a weight and its gradient."""
        names, weights, gradients = zip(*group, strict=True)
        variables = [self._local_variables(name, weight) for name, weight, _ in group]
        rules = tuple(self._rule(name) for name in names)
        decays = [tf.constant(self._decay(name)) for name in names]
        arguments = (
            rules,
            variables,
            list(gradients),
            rate,
            decays,
            constants,
        )
        if is_applied is None:
            _assign_new_values(*arguments)
            new_weights = weights
        else:
            new_values = _new_values(*arguments)
            flat_variables = tf.nest.flatten(variables)
            flat_values = tf.nest.flatten(new_values)
            for variable, value in zip(flat_variables, flat_values, strict=True):
                _assign_if(is_applied, variable, value)
            new_weights = [new_weight for new_weight, *_ in new_values]
        if self.ema_decay is not None:
            self._update_averages(names, new_weights, is_applied)

    def _is_in_vector(self, name: str, weight: tf.Variable) -> bool:
        """Returns whether a variable is updated as a part of one long vector.

        Its rule has to treat each element alone, as that of Adam does.
        """
        is_elementwise = self._rule(name) is updated
        return has_xla() and is_elementwise and weight.shape.num_elements() < _MIN_GROUPED_SIZE

    def _update_vector(
        self,
        group: list,
        rate: tf.Tensor,
        constants: AdamConstants,
        is_applied: tf.Tensor | None,
    ):
        """Does the same as `_update_group` for small variables, in the same bits."""
        names, weights, gradients = zip(*group, strict=True)
        rows = [self._local_variables(name, weight) for name, weight, _ in group]
        columns = list(zip(*rows, strict=True))  # the weights, the first moments, the second ones
        sizes = [weight.shape.num_elements() for weight in weights]
        decays = np.array([self._decay(name) for name in names], np.float32)
        (new_vectors,) = _new_values(
            (updated,),
            [[_concatenate(column) for column in columns]],
            [_concatenate(gradients)],
            rate,
            [tf.constant(np.repeat(decays, sizes))],
            constants,
        )
        for column, vector in zip(columns, new_vectors, strict=True):
            for variable, part in zip(column, tf.split(vector, sizes), strict=True):
                shape = variable.shape
                value = part if shape.rank == 1 else tf.reshape(part, shape)
                _assign_if(is_applied, variable, value)
        if self.ema_decay is not None:
            self._update_averages(names, weights, is_applied)

    def _decay(self, name: str) -> float:
        """Returns the decay rate of a variable."""
        return self.weight_decay_rate if self.decays(name) else 0.0

    def _constants(self, gradient_scale: tf.Tensor | None) -> AdamConstants:
        """Returns the constants of the next update."""
        step = None
        if self.bias_correction:
            step = tf.cast(self.global_step + 1, tf.float32)
        return AdamConstants(
            self.beta_1,
            self.beta_2,
            self.epsilon,
            step,
            gradient_scale,
        )

    def _local_variables(self, name: str, weight: tf.Variable) -> list:
        """Returns this replica's parts of a weight and its slots, without the average."""
        slots = [self.slots[f"{name}/{slot}"] for slot in self.slot_names]
        return [_local_part(variable) for variable in (weight, *slots)]

    def _update_averages(
        self,
        names: Sequence[str],
        new_weights: Sequence,
        is_applied: tf.Tensor | None,
    ):
        step = tf.cast(self.global_step, tf.float32)
        decay = tf.minimum(self.ema_decay, (1.0 + step) / (10.0 + step))
        for name, weight in zip(names, new_weights, strict=True):
            average = self.slots[f"{name}/{AVERAGE}"]
            new_weight = tf.convert_to_tensor(weight)
            value = decay * average + (1.0 - decay) * new_weight
            _assign_if(is_applied, average, value)

    def _rule(self, name: str) -> Callable:
        """Returns the function that updates a variable, like `updated`.

        Another optimizer overrides this method.
        """
        return updated

    def decays(self, name: str) -> bool:
        """Returns whether weight decay applies to a variable.

        Args:
            name: the TF1 name of the variable.
        """
        return bool(self.weight_decay_rate) and is_decayed(name, self.exclude_from_weight_decay)


def is_decayed(name: str, excluded: Iterable[str]) -> bool:
    """Returns whether the name of a variable contains no match of an exclusion.

    Args:
        name: the TF1 name of the variable.
        excluded: regular expressions.
    """
    return not any(re.search(pattern, name) for pattern in excluded)


def updated(
    weight: tf.Tensor,
    moments: Moments,
    gradient: tf.Tensor,
    rate: tf.Tensor,
    decay: tf.Tensor | float,
    constants: AdamConstants,
) -> tuple[tf.Tensor, Moments]:
    """Returns a weight and its moments after an update of Adam.

    Args:
        weight: float of any shape.
        moments: its moments before the update.
        gradient: float of this shape.
        rate: the learning rate, float[].
        decay: the weight decay rate, float[].
        constants: the constants of the optimizer.
    """
    direction, moments = adam_direction(moments, gradient, constants)
    step = direction + decay * weight
    return weight - rate * step, moments


def adam_direction(
    moments: Moments,
    gradient: tf.Tensor,
    constants: AdamConstants,
) -> tuple[tf.Tensor, Moments]:
    """Returns the direction of Adam's step, and both moments after it.

    Args:
        moments: the moments of the weight before the update.
        gradient: the gradient of the weight.
        constants: the constants of the optimizer.
    """
    beta_1, beta_2, epsilon, step, _ = constants
    m = beta_1 * moments.m + (1.0 - beta_1) * gradient
    v = beta_2 * moments.v + (1.0 - beta_2) * tf.square(gradient)
    moments = Moments(m, v)
    if step is None:
        return m / (tf.sqrt(v) + epsilon), moments
    corrected_m = m / (1.0 - tf.pow(beta_1, step))
    corrected_v = v / (1.0 - tf.pow(beta_2, step))
    return corrected_m / (tf.sqrt(corrected_v) + epsilon), moments


def _concatenate(tensors: Sequence) -> tf.Tensor:
    """Returns the elements of tensors or variables as one vector."""
    one_axis = tf.constant([-1])
    vectors = [
        tensor if tensor.shape.rank == 1 else tf.reshape(tensor, one_axis) for tensor in tensors
    ]
    return tf.concat(vectors, axis=0)


def _assign_if(is_applied: tf.Tensor | None, variable: tf.Variable, value: tf.Tensor):
    """Gives a variable a value in an update that is made; None means that it is made."""
    if is_applied is not None:
        # `where` instead of `cond`, because a `cond` cannot contain the collective operations of
        # the update.
        value = tf.where(is_applied, value, tf.convert_to_tensor(variable))
    variable.assign(value)


def _local_part(variable: tf.Variable) -> tf.Variable:
    """Returns this replica's part of a mirrored variable.

    A compiled function would read the first replica's part of it.
    """
    if not has_xla():
        return variable
    strategy = tf.distribute.get_strategy()
    parts = strategy.experimental_local_results(variable)
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    index = tf.get_static_value(replica) % len(parts)
    return parts[index]


def _group_updated(
    rules: Sequence[Callable],
    variables: Sequence[Sequence[tf.Variable]],
    gradients: Sequence[tf.Tensor],
    rate: tf.Tensor,
    decays: Sequence[tf.Tensor],
    constants: AdamConstants,
) -> list[list[tf.Tensor]]:
    """Returns the new values of the variables of a group, by the rule of each weight."""
    new_values = []
    for rule, parts, gradient, decay in zip(rules, variables, gradients, decays, strict=True):
        weight, *slots = [tf.convert_to_tensor(part) for part in parts]
        if constants.gradient_scale is not None:
            gradient = gradient * constants.gradient_scale
        weight, moments = rule(
            weight,
            Moments(*slots),
            gradient,
            rate,
            decay,
            constants,
        )
        new_values.append([weight, *moments[: len(slots)]])
    return new_values


# XLA makes one pass over memory out of a dozen.
_new_values = compiled_by_xla(_group_updated)


@compiled_by_xla
def _assign_new_values(
    rules: Sequence[Callable],
    variables: Sequence[Sequence[tf.Variable]],
    *arguments: Any,
):
    """Updates each weight and its slots in place.

    A choice by `is_applied` in this function would change how XLA rounds.
    """
    new_values = _group_updated(rules, variables, *arguments)
    flat_variables = tf.nest.flatten(variables)
    flat_values = tf.nest.flatten(new_values)
    for variable, new in zip(flat_variables, flat_values, strict=True):
        variable.assign(new)
