"""Reads the weights of a training's checkpoint as they are used.

Averages replace the weights, and the kernels contain the products of LoRA's matrices. Only a
training that resumes needs the parts themselves.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from official_bert.checkpoints import names, tf1
from official_bert.io.errors import InputError


class WeightsInUse(tf1.Tf1Checkpoint):
    """A TF1 checkpoint whose kernels contain the adapters, and whose weights are averages."""

    def __init__(self, prefix: str):
        """Opens a checkpoint.

        Args:
            prefix: the prefix of its files.
        """
        super().__init__(prefix)
        self._stored = self.shapes
        parts = {*names.ADAPTERS, names.AVERAGE}
        self.shapes = {
            name: shape
            for name, shape in self._stored.items()
            if not parts & set(name.split("/")[-2:])
        }

    def read(self, name: str) -> np.ndarray:
        """Reads a weight by its TF1 name."""
        value = self.read_base(name)
        adapters = self.read_adapters(name)
        if not adapters:
            return value
        a, b = adapters
        return value + a @ b  # without a factor, as in Keras' enable_lora

    def read_base(self, name: str) -> np.ndarray:
        """Reads the average of a weight, or else the weight, without its adapters.

        Args:
            name: the TF1 name of the weight.
        """
        average = f"{name}/{names.AVERAGE}"
        return super().read(average if average in self._stored else name)

    def read_adapters(self, name: str) -> list[np.ndarray]:
        """Reads the two matrices of LoRA of a weight; none if it has no adapters.

        Args:
            name: the TF1 name of the weight.
        """
        adapters = names.list_adapters(name)
        if not self._stored.keys() & set(adapters):
            return []
        return [self.read_base(adapter) for adapter in adapters]


def find_adapter_rank(shapes: Mapping[str, Sequence[int]]) -> int | None:
    """Returns the rank of the adapters among variables; None if there are none.

    Args:
        shapes: name -> shape of each variable.
    """
    suffix = f"/{names.ADAPTERS[0]}"
    ranks = (shape[1] for name, shape in shapes.items() if name.endswith(suffix))
    return next(ranks, None)


def check_can_resume(checkpoint: tf1.Tf1Checkpoint, variables: Mapping[str, Any]) -> None:
    """Checks that a training and the checkpoint that it resumes from have the same parts.

    Args:
        checkpoint: the checkpoint.
        variables: the variables of the run by TF1 name.

    Raises:
        InputError: the adapters have different ranks, or only one of the two has averages.
    """
    run_rank = find_adapter_rank({name: variable.shape for name, variable in variables.items()})
    checkpoint_rank = find_adapter_rank(checkpoint.shapes)
    if run_rank != checkpoint_rank:
        raise InputError(
            f"{checkpoint.path}: was trained {_format_rank(checkpoint_rank)}, and cannot resume "
            f"{_format_rank(run_rank)}; pass the same rank, or name another folder"
        )
    run_averages = _list_averages(variables)
    checkpoint_averages = _list_averages(checkpoint.shapes)
    if run_averages - checkpoint_averages:
        raise InputError(
            f"{checkpoint.path}: has no averages of its weights, since it was trained without "
            "--ema_decay; leave the flag out, or give another --output_dir"
        )
    if checkpoint_averages - run_averages:
        raise InputError(
            f"{checkpoint.path}: has averages of its weights, which would be lost, since it was "
            "trained with --ema_decay; give the flag again, or another --output_dir"
        )


def _format_rank(rank: int | None) -> str:
    return f"with --lora_rank={rank}" if rank else "without --lora_rank"


def _list_averages(variable_names: Iterable[str]) -> set[str]:
    return {name for name in variable_names if name.endswith(f"/{names.AVERAGE}")}
