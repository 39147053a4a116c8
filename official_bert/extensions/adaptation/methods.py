"""The methods of this extension for models: `load_adapters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras


def load_adapters(model: keras.Model, path: str) -> None:
    """Add the adapters of a training with --lora_rank to a base model.

    The adapters of another training with the same rank may follow, and replace them.

        model = official_bert.BertClassifier.from_pretrained(base_folder, num_outputs=2)
        model.load_adapters("output/adapters.safetensors")

    Args:
        model: the model.
        path: the file adapters.safetensors in the --output_dir of the training.

    Raises:
        InputError: the file has no adapters, or the model is of another task or size.
    """
    from official_bert.extensions.adaptation import lora

    lora.load_adapters(model, path)


def model_methods() -> Mapping[str, Callable]:
    """Return the methods of all models, by name."""
    return {"load_adapters": load_adapters}
