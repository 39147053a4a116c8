"""Which weights a fine-tuning changes and how far: frozen layers, LoRA, layers drawn anew,
learning rates by layer.
"""

import re
from collections.abc import Callable

import keras

from official_bert.config import BertConfig
from official_bert.io.errors import InputError
from official_bert.modeling.lora import enable_lora
from official_bert.options.fine_tuning import FineTuningOptions

_EMBEDDINGS, _ENCODER = "bert/embeddings/", "bert/"


def check(options: FineTuningOptions, config: BertConfig):
    """Refuses values that the model is too small for, and flags that exclude one another."""
    count, size, rank = config.num_hidden_layers, config.hidden_size, options.lora_rank
    frozen, redrawn = options.freeze_layers or 0, options.reinit_layers
    most = "give at most that"
    faults = {
        f"--freeze_layers={frozen}: is more than the number of layers, {count}; {most}": frozen
        > count,
        f"--reinit_layers={redrawn}: is more than the number of layers, {count}; {most}": (
            redrawn or 0
        )
        > count,
        f"--lora_rank={rank}: is more than the hidden size, {size}; {most}": (rank or 0) > size,
        f"--reinit_layers={redrawn}: what it draws would stay random, since --lora_rank={rank} "
        "does not train it; give "
        "one of the two": rank and redrawn is not None,
        f"--reinit_layers={redrawn}: some of what it draws would stay random, since "
        f"--freeze_layers={frozen} does not "
        "train it; give fewer": redrawn is not None and frozen + redrawn > count,
    }
    if found := [sentence for sentence, is_fault in faults.items() if is_fault]:
        raise InputError(found[0])


def adapted(model: keras.Model, options: FineTuningOptions) -> keras.Model:
    """Returns a new model after LoRA is enabled, if a training asks for it."""
    if options.lora_rank and options.do_train:
        enable_lora(model, options.lora_rank, options.freeze_layers or 0)
    return model


def frozen_weights(options: FineTuningOptions) -> tuple[str, ...]:
    """Returns the name prefixes of the weights that stay as they are; LoRA's matrices are
    trained all the same.
    """
    frozen = [f"bert/encoder/layer_{layer}/" for layer in range(options.freeze_layers or 0)]
    frozen += [] if options.freeze_layers is None else [_EMBEDDINGS]
    return (*frozen, _ENCODER) if options.lora_rank else tuple(frozen)


def redrawn_weights(options: FineTuningOptions, config: BertConfig) -> tuple[str, ...]:
    """Returns the name prefixes of the weights that --reinit_layers draws anew."""
    if options.reinit_layers is None:
        return ()
    count = config.num_hidden_layers
    return (
        *(f"bert/encoder/layer_{count - one}/" for one in range(1, options.reinit_layers + 1)),
        "bert/pooler/",
    )


def rate_factor(options: FineTuningOptions, config: BertConfig) -> Callable[[str], float]:
    """Returns a function from the name of a weight to the factor of its learning rate, decay^(L -
    l) in layer l of L.

    The embeddings are layer 0; what lies above the layers has the factor 1.
    """

    def factor(name: str) -> float:
        layer = re.match(r"bert/encoder/layer_(\d+)/", name)
        depth = (
            int(layer[1]) + 1
            if layer
            else 0
            if name.startswith(_EMBEDDINGS)
            else config.num_hidden_layers
        )
        return options.layer_wise_lr_decay ** (config.num_hidden_layers - depth)

    return factor
