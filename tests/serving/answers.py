"""What exported models answer."""

import pathlib
from collections.abc import Mapping

import numpy as np

from official_bert.data.records import read_records

_REQUEST = 64


def answers(version: pathlib.Path, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a signature of the SavedModel in a folder, for requests of at most 64 examples."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(version)).signatures[signature]
    num_examples = len(next(iter(inputs.values())))
    parts = [
        serve(**{name: tf.constant(values[start : start + _REQUEST]) for name, values in inputs.items()})
        for start in range(0, num_examples, _REQUEST)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def answers_to_records(version: pathlib.Path, record_file: pathlib.Path) -> dict[str, np.ndarray]:
    """The outputs of `serving_examples` for the records of a file, in their order."""
    records = [data for _, data in read_records(str(record_file))]
    return answers(version, "serving_examples", {"examples": np.array(records, object)})
