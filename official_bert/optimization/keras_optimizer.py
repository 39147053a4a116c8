"""The optimizer of the original, with its gradient clipping, as a Keras optimizer for
`model.compile` and `fit`.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from official_bert.checkpoints import names
from official_bert.optimization.adam import (
    CLIP_NORM,
    EXCLUDED_FROM_DECAY,
    AdamConstants,
    Moments,
    dense_gradients,
    is_decayed,
    updated,
)
from official_bert.optimization.schedules import SCHEDULES, choose


def keras_optimizer(
    learning_rate: float,
    num_train_steps: int | None = None,
    num_warmup_steps: int = 0,
    weight_decay_rate: float = 0.01,
    lr_schedule: str = "linear",
    **arguments: Any,
) -> "KerasAdamWeightDecay":
    """Returns the optimizer that the scripts train with, for `model.compile(optimizer=...)`.

    Args:
        learning_rate: the rate that the warm-up leads to.
        num_train_steps: the number of updates; None for a constant rate without warm-up.
        num_warmup_steps: the number of updates of the warm-up.
        weight_decay_rate: the share of a variable that an update with learning rate 1 removes.
        lr_schedule: the learning rate after the warm-up, a key of SCHEDULES.
        **arguments: further arguments of KerasAdamWeightDecay, such as `beta_2`.

    Example:
        ```python
        import keras
        from official_bert import keras_optimizer

        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        optimizer = keras_optimizer(5e-5, num_train_steps=300, num_warmup_steps=30)
        model.compile(optimizer, "mse")
        ```
    """
    rate = learning_rate
    choose(SCHEDULES, "lr_schedule", lr_schedule)
    if num_train_steps is None and lr_schedule != "linear":
        raise ValueError(
            f"lr_schedule={lr_schedule!r} needs num_train_steps; give the number of updates"
        )
    if num_train_steps is not None:
        rate = KerasSchedule(learning_rate, num_train_steps, num_warmup_steps, lr_schedule)
    return KerasAdamWeightDecay(rate, weight_decay_rate=weight_decay_rate, **arguments)


# In .keras files it has the name that it had when there was one schedule.
@keras.saving.register_keras_serializable(package="official_bert", name="KerasWarmupLinearDecay")
class KerasSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """An entry of SCHEDULES as a Keras schedule; `step` is the number of updates already made."""

    def __init__(
        self,
        peak: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        lr_schedule: str = "linear",
    ):
        """Makes a schedule; the arguments are those of Schedule and its name."""
        super().__init__()
        self._lr_schedule = lr_schedule
        schedule = choose(SCHEDULES, "lr_schedule", lr_schedule)
        self._schedule = schedule(peak, num_train_steps, num_warmup_steps)

    def __call__(self, step: Any) -> tf.Tensor:
        return self._schedule(tf.convert_to_tensor(step))

    def get_config(self) -> dict:
        return dataclasses.asdict(self._schedule) | {"lr_schedule": self._lr_schedule}


@keras.saving.register_keras_serializable(package="official_bert")
class KerasAdamWeightDecay(keras.optimizers.Optimizer):
    """Adam without bias correction, and weight decay that is multiplied by the rate, on clipped
    gradients.

    The formula is that of AdamWeightDecayOptimizer. Gradients of embedding look-ups are made dense
    first: the norm of their rows is not the norm of the gradient. The variables' names decide about
    decay; those of models of this project are the names of the original, wherever in another model
    they are.
    """

    def __init__(  # noqa: PLR0913 - the original's arguments
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        weight_decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        exclude_from_weight_decay: Iterable[str] = EXCLUDED_FROM_DECAY,
        global_clipnorm: float | None = CLIP_NORM,
        name: str = "adam_weight_decay",
        **arguments: Any,
    ):
        """Makes an optimizer without variables; Keras builds it.

        Args:
            learning_rate: a number or a schedule of Keras.
            weight_decay_rate: the share of a variable that an update with learning rate 1 removes.
            beta_1: the decay rate of the first moment.
            beta_2: the decay rate of the second moment.
            epsilon: a constant that is added outside the square root.
            exclude_from_weight_decay: regular expressions; variables whose names contain a match
                are not decayed.
            global_clipnorm: the largest common norm of the gradients, which are scaled to it; None
                scales none.
            name: the name of the optimizer.
            **arguments: further arguments of keras.optimizers.Optimizer.
        """
        super().__init__(learning_rate, global_clipnorm=global_clipnorm, name=name, **arguments)
        self.weight_decay_rate = weight_decay_rate
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.excluded_from_decay = tuple(exclude_from_weight_decay)

    def build(self, variables: Any) -> None:
        """Makes the slots, and decides which variables are decayed.

        Args:
            variables: the variables to update. Only the first call has an effect.
        """
        if self.built:
            return
        super().build(variables)
        self._decays = []
        for variable in variables:
            name = names.from_path(variable.path)
            decays = is_decayed(name, self.excluded_from_decay)
            self._decays.append(self.weight_decay_rate if decays else 0.0)
        self._m, self._v = self.add_optimizer_variables(variables, ["adam_m", "adam_v"])

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Updates the variables once.

        Args:
            grads: the gradients; those of embedding look-ups are made dense.
            trainable_variables: the variables of the gradients; None for those of `build`.
        """
        super().apply(dense_gradients(list(grads)), trainable_variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable and its slots.

        Args:
            gradient: float like the variable.
            variable: a variable of Keras, or one of TensorFlow, which has no path.
            learning_rate: the rate of the update, float[].
        """
        index = self._get_variable_index(variable)
        m = self._m[index]
        v = self._v[index]
        weight, moments = updated(
            weight=ops.convert_to_tensor(variable),
            moments=Moments(ops.convert_to_tensor(m), ops.convert_to_tensor(v)),
            gradient=ops.cast(gradient, variable.dtype),
            rate=ops.cast(learning_rate, variable.dtype),
            decay=self._decays[index],
            constants=AdamConstants(self.beta_1, self.beta_2, self.epsilon),
        )
        self.assign(variable, weight)
        self.assign(m, moments.m)
        self.assign(v, moments.v)

    def get_config(self) -> dict:
        config = super().get_config()
        del config["weight_decay"]  # of Keras, which decays nothing here
        return config | {
            "weight_decay_rate": self.weight_decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": list(self.excluded_from_decay),
        }
