"""Writes the folders that transformers saved when the outputs were recorded."""

import json
import pathlib
from collections.abc import Mapping

import numpy as np
import safetensors.numpy

from tests import toy
from tests.extensions.distilbert.record_outputs import make_config, make_weight


def make_tensors(name: str, recorded: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of a class by their names."""
    tensors = {}
    for line in recorded[f"{name}.shapes"]:
        path, *shape = json.loads(line)
        tensors[path] = make_weight(path, shape)
    return tensors


def write_folder(
    folder: pathlib.Path,
    name: str,
    tensors: Mapping[str, np.ndarray],
    **fields,
) -> pathlib.Path:
    """Write the folder of a model with these weights and further fields of config.json."""
    folder.mkdir(parents=True)
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(dict(tensors), path, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(make_config(name) | fields))
    tokenizer_config = {
        "do_lower_case": True,
        "model_max_length": 128,
        "tokenizer_class": "DistilBertTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    toy.write_vocabulary(folder)
    return folder
