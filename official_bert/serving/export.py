"""Versions of a SavedModel in a folder that a server watches.

In: weights, signatures, and files to go with them. Out: export_dir/<version>/, complete as soon as it is there.
"""

import os
import uuid
from collections.abc import Callable, Mapping

import tensorflow as tf

from official_bert import files
from official_bert.errors import InputError

_gfile = tf.io.gfile
_TAKEN = (tf.errors.AlreadyExistsError, tf.errors.FailedPreconditionError)


class ExportedModel(tf.Module):
    """What an export holds beside its signatures: each weight that they read, once.

    A Keras model in its place would be a SavedModel that Python loads and TensorFlow Serving does not.
    """

    def __init__(
        self,
        signatures: Mapping[str, Callable],
        weights: Mapping[str, tf.Variable],
        resources: tf.Module | None = None,
    ):
        """Args:
        signatures: tf.functions with input signatures, by name.
        weights: of the model, by name.
        resources: holds what they use beside, tables of a tokenizer say.
        """
        super().__init__()
        self.resources = resources
        graphs = [signature.get_concrete_function().graph for signature in signatures.values()]
        read = {id(variable) for graph in graphs for variable in graph.variables}
        self.model_weights = {name: variable for name, variable in weights.items() if id(variable) in read}


def export_version(
    export_dir: str, model: tf.Module, signatures: Mapping[str, Callable], extra_files: Mapping[str, bytes]
) -> str:
    """Adds a version to a folder: the number behind the highest that is there.

    It is written under a name that no server takes for a version. Several exports at the same time get different
    numbers; what a killed one leaves under that name harms nobody.

    Args:
        export_dir: the folder, made if need be.
        model: holds the variables and other resources that the signatures use.
        signatures: tf.functions with input signatures, by name.
        extra_files: contents by path in the version's folder, such as "assets/vocab.txt".

    Returns:
        The version's folder.

    Raises:
        InputError: a folder where nothing can be written, or not all of it.
    """
    files.make_folder(export_dir)
    temporary = os.path.join(export_dir, f"unfinished-{uuid.uuid4().hex}")
    try:
        # As they were traced for ExportedModel; a tf.function would be traced once more.
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
                f"--export_dir={export_dir}: cannot be written ({reason}); make room or name another place"
            ) from error
        raise


def versions(export_dir: str) -> list[int]:
    """The versions in a folder, lowest first."""
    names = (name.rstrip("/") for name in _gfile.listdir(export_dir))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _published(temporary: str, export_dir: str) -> str:
    """Renames a finished version to the next free number."""
    while True:
        version = os.path.join(export_dir, str(max(versions(export_dir), default=0) + 1))
        try:
            _gfile.rename(temporary, version)
            return version
        except _TAKEN:  # by another export since the folder was read
            continue
