"""Training a part of a model: frozen layers, LoRA, redrawn layers, learning rates by layer."""

import os
import re
from collections.abc import Callable
from typing import ClassVar

import keras

from official_bert import catalog
from official_bert.config import BertConfig
from official_bert.extensions.adaptation.lora import enable_lora, write_adapters
from official_bert.extensions.adaptation.options import AdaptationOptions
from official_bert.fine_tuning.plugin import TrainingPlugin
from official_bert.io.errors import InputError
from official_bert.options.fine_tuning import FineTuningOptions
from official_bert.tasks.base import TrainableTask
from official_bert.training.plan import WeightPlan
from official_bert.training.trainer import Trainer

ADAPTERS_NAME = "adapters.safetensors"  # The weights that a training with LoRA changes.
_EMBEDDINGS = "bert/embeddings/"
_ENCODER = "bert/"


class AdaptationPlugin(TrainingPlugin):
    """Trains the part of a model that the flags choose."""

    output_files: ClassVar[tuple[str, ...]] = (ADAPTERS_NAME,)

    def __init__(self, options: FineTuningOptions, config: BertConfig, task: TrainableTask):
        """Reads the flags of the extension.

        Args:
            options: the flags of the run.
            config: the configuration of the model.
            task: the task.

        Raises:
            InputError: the flags do not fit each other or the model.
        """
        self._flags = catalog.options_part(options, AdaptationOptions)
        self._options = options
        self._config = config
        check_flags(self._flags, config)

    def weight_plan(self) -> WeightPlan:
        """Return the frozen and redrawn weights, and the factors of their learning rates."""
        num_layers = self._config.num_hidden_layers
        return WeightPlan(
            frozen=frozen_weights(self._flags),
            redrawn=redrawn_weights(self._flags, num_layers),
            rate_factor=rate_factor(self._flags.layer_wise_lr_decay, num_layers),
        )

    def adapt_model(self, model: keras.Model) -> keras.Model:
        """Add the adapters of --lora_rank to a model that will be trained."""
        if self._flags.lora_rank and self._options.do_train:
            enable_lora(model, self._flags.lora_rank, self._flags.freeze_layers or 0)
        return model

    def finish(self, trainer: Trainer) -> None:
        """Write the adapters, and the other weights that were trained."""
        if self._flags.lora_rank:
            path = os.path.join(trainer.options.output_dir, ADAPTERS_NAME)
            write_adapters(path, trainer.trained)


def check_flags(flags: AdaptationOptions, config: BertConfig) -> None:
    """Reject values that are too large for the model, and flags that exclude each other.

    Args:
        flags: the flags of the extension.
        config: the configuration of the model.

    Raises:
        InputError: a value is too large, or two flags exclude each other.
    """
    num_layers = config.num_hidden_layers
    rank = flags.lora_rank
    frozen = flags.freeze_layers or 0
    redrawn = flags.reinit_layers
    for name, number in (("freeze_layers", frozen), ("reinit_layers", redrawn or 0)):
        if number > num_layers:
            raise InputError(
                f"--{name}={number}: is more than the number of layers, {num_layers}; give at "
                "most that"
            )
    if rank and rank > config.hidden_size:
        raise InputError(
            f"--lora_rank={rank}: is more than the hidden size, {config.hidden_size}; give at "
            "most that"
        )
    if redrawn is None:
        return
    if rank:
        raise InputError(
            f"--reinit_layers={redrawn}: what it draws would stay random, since "
            f"--lora_rank={rank} does not train it; give one of the two"
        )
    if frozen + redrawn > num_layers:
        raise InputError(
            f"--reinit_layers={redrawn}: some of what it draws would stay random, since "
            f"--freeze_layers={frozen} does not train it; give fewer"
        )


def frozen_weights(flags: AdaptationOptions) -> tuple[str, ...]:
    """Return the name prefixes of the frozen weights.

    The adapters of LoRA are trained although their names begin so.

    Args:
        flags: the flags of the extension.

    Returns:
        The prefixes.
    """
    prefixes = [f"bert/encoder/layer_{layer}/" for layer in range(flags.freeze_layers or 0)]
    if flags.freeze_layers is not None:
        prefixes.append(_EMBEDDINGS)
    if flags.lora_rank:
        prefixes.append(_ENCODER)
    return tuple(prefixes)


def redrawn_weights(flags: AdaptationOptions, num_layers: int) -> tuple[str, ...]:
    """Return the name prefixes of the weights that --reinit_layers replaces by random ones.

    Args:
        flags: the flags of the extension.
        num_layers: the number of layers of the encoder.

    Returns:
        The prefixes.
    """
    if flags.reinit_layers is None:
        return ()
    layers = range(num_layers - flags.reinit_layers, num_layers)
    prefixes = [f"bert/encoder/layer_{layer}/" for layer in layers]
    return (*prefixes, "bert/pooler/")


def rate_factor(decay: float, num_layers: int) -> Callable[[str], float]:
    """Return a function from the name of a weight to the factor of its learning rate.

    It is decay^(L - l) in layer l of L. The embeddings are layer 0; weights above the layers have
    the factor 1.

    Args:
        decay: the factor from a layer to the layer below it.
        num_layers: L.

    Returns:
        The function.
    """

    def compute_factor(name: str) -> float:
        depth = num_layers
        layer = re.match(r"bert/encoder/layer_(\d+)/", name)
        if name.startswith(_EMBEDDINGS):
            depth = 0
        elif layer:
            depth = int(layer[1]) + 1
        return decay ** (num_layers - depth)

    return compute_factor
