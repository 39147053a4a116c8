"""What exported models answer."""

import pathlib
from collections.abc import Mapping

import numpy as np

from official_bert.data.records import read_records


def answers(version: pathlib.Path, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a signature of the SavedModel in a folder."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(version)).signatures[signature]
    found = serve(**{name: tf.constant(values) for name, values in inputs.items()})
    return {name: values.numpy() for name, values in found.items()}


def answers_to_records(version: pathlib.Path, record_file: pathlib.Path) -> dict[str, np.ndarray]:
    """The outputs of `serving_examples` for all records of a file in one request."""
    records = [data for _, data in read_records(str(record_file))]
    return answers(version, "serving_examples", {"examples": np.array(records, object)})
