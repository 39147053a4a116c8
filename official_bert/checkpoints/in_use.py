"""The weights of a training's checkpoint as they are used: averages in place of weights, LoRA's
products in kernels.

Only a training that goes on needs the parts themselves.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from official_bert.checkpoints import names, tf1
from official_bert.io.errors import InputError


class WeightsInUse(tf1.Tf1Checkpoint):
    """A TF1 checkpoint that has no adapters, because its kernels contain them, and whose weights
    are averages.
    """

    def __init__(self, prefix: str):
        super().__init__(prefix)
        self._stored = self.shapes
        parts = {*names.ADAPTERS, names.AVERAGE}
        self.shapes = {
            name: shape
            for name, shape in self._stored.items()
            if not parts & set(name.split("/")[-2:])
        }

    def read(self, name: str) -> np.ndarray:
        value, adapters = self._averaged(name), names.list_adapters(name)
        if not self._stored.keys() & set(adapters):
            return value
        a, b = map(self._averaged, adapters)
        return value + a @ b  # without a factor, as Keras' enable_lora adds it

    def _averaged(self, name: str) -> np.ndarray:
        average = f"{name}/{names.AVERAGE}"
        return super().read(average if average in self._stored else name)


def find_adapter_rank(shapes: Mapping[str, Sequence[int]]) -> int | None:
    """Returns the rank of the adapters among variables, by their names and shapes; None if there
    are none.
    """
    return next(
        (shape[1] for name, shape in shapes.items() if name.endswith(f"/{names.ADAPTERS[0]}")), None
    )


def check_can_resume(checkpoint: tf1.Tf1Checkpoint, variables: Mapping):
    """Refuses to go on from a checkpoint with other adapters than its own, or where only one of
    both has averages.
    """
    ours, theirs = (
        find_adapter_rank({name: variable.shape for name, variable in variables.items()}),
        find_adapter_rank(checkpoint.shapes),
    )
    if ours != theirs:
        now, before = (
            f"with --lora_rank={rank}" if rank else "without --lora_rank" for rank in (ours, theirs)
        )
        raise InputError(
            f"{checkpoint.path}: was trained {before}, and cannot go on {now}; keep to that, or "
            "give another folder"
        )
    averages = [
        {name for name in found if name.endswith(f"/{names.AVERAGE}")}
        for found in (variables, checkpoint.shapes)
    ]
    if averages[0] - averages[1]:
        raise InputError(
            f"{checkpoint.path}: has no averages of its weights, since it was trained without "
            "--ema_decay; leave the flag out, or give another --output_dir"
        )
    if averages[1] - averages[0]:
        raise InputError(
            f"{checkpoint.path}: has averages of its weights, which would be lost, since it was "
            "trained with --ema_decay; give the flag again, or another --output_dir"
        )
