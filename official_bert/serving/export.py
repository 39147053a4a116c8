"""Writes versions of a SavedModel into a folder that a server watches.

In: weights, signatures, and files to add. Out: export_dir/<version>/, which appears only when it is complete.
"""

import os
import uuid
from collections.abc import Callable, Mapping

import tensorflow as tf

from official_bert.io import files, writing
from official_bert.io.errors import InputError

_gfile = tf.io.gfile
_LARGEST_VERSION = 2**63 - 1  # that TensorFlow Serving reads
_TAKEN = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)


class ExportedModel(tf.Module):
    """The variables of an export: each weight that the signatures read, once, and their other resources.

    A Keras model would become a SavedModel that Python can load and TensorFlow Serving cannot.
    """

    def __init__(
        self, signatures: Mapping[str, Callable], weights: Mapping[str, tf.Variable], resources: tf.Module | None = None
    ):
        """`resources` holds what the signatures need beside weights, such as the tables of a tokenizer."""
        super().__init__()
        self.resources = resources
        graphs = [signature.get_concrete_function().graph for signature in signatures.values()]
        read = {id(variable) for graph in graphs for variable in graph.variables}
        self.model_weights = {name: variable for name, variable in weights.items() if id(variable) in read}


def export_version(
    export_dir: str, model: tf.Module, signatures: Mapping[str, Callable], extra_files: Mapping[str, bytes]
) -> str:
    """Adds a version to a folder, with the number after the highest one there, and returns the folder of the version.

    The version is written under a temporary name that servers ignore. Exports that run at the same time get different
    numbers. What a killed export left is deleted.
    """
    files.make_folder(export_dir)
    writing.remove_left(export_dir, "version-*")
    temporary = writing.temporary_name(export_dir, f"version-{uuid.uuid4().hex}")
    try:
        # These traces exist since ExportedModel was made; a tf.function would be traced again.
        traced = {name: signature.get_concrete_function() for name, signature in signatures.items()}
        tf.saved_model.save(model, temporary, signatures=traced)
        for name, content in extra_files.items():
            path = os.path.join(temporary, name)
            _gfile.makedirs(os.path.dirname(path))
            with files.open_file(path, "wb") as file:
                file.write(content)
        return _published(temporary, export_dir)
    except BaseException as error:
        if _gfile.exists(temporary):
            _gfile.rmtree(temporary)
        if isinstance(error, (OSError, tf.errors.OpError)):
            reason = getattr(error, "strerror", None) or getattr(error, "message", error)
            raise InputError(
                f"--export_dir={export_dir}: cannot be written ({reason}); make room or name another folder"
            ) from error
        raise


def versions(export_dir: str) -> list[int]:
    """Returns the versions in a folder, lowest first."""
    names = (name.rstrip("/") for name in _gfile.listdir(export_dir))
    numbers = (int(name) for name in names if name.isascii() and name.isdigit())
    return sorted(number for number in numbers if number < _LARGEST_VERSION)


def _published(temporary: str, export_dir: str) -> str:
    """Renames a finished version to the next free number."""
    while True:
        version = os.path.join(export_dir, str(max(versions(export_dir), default=0) + 1))
        try:
            _gfile.rename(temporary, version)
            return version
        except _TAKEN:  # another export took the number after the folder was read
            continue
