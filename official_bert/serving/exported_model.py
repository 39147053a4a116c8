"""Opens an export: its record, vocabulary and labels, and its signatures, which a runtime computes.

In: the folder of a version, or the folder of all versions. Out: `OpenedExport`, a function from
arrays by name to arrays by name. The core opens SavedModels. Extensions open the files of other
runtimes by the hook `export_runtimes`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import catalog
from official_bert.data.model_inputs import check_vocabulary
from official_bert.io import files, reading
from official_bert.io.errors import InputError, brief
from official_bert.io.reading import field, has_type
from official_bert.model_dir import (
    LABELS_NAME,
    make_no_model_error,
    read_labels,
    summarize_labels,
)
from official_bert.options.fine_tuning import AUTO, SquadServing
from official_bert.tokenization import FullTokenizer

DEFAULT = "serving_default"
TEXT_SIGNATURE = "serving_text"
# The name of our own default signature in an export whose `serving_default` is an Estimator's.
TENSOR_SIGNATURE = "serving_tensors"
RECORD_FILE = "assets.extra/export.json"
CONFIG_FILE = "assets.extra/bert_config.json"
VOCAB_FILE = "assets/vocab.txt"
_LARGEST_VERSION = 2**63 - 1  # TensorFlow Serving reads no larger one
# The settings that every record has, and their types.
_SETTINGS = {
    "export_text": bool,
    "max_seq_length": int,
    "do_lower_case": bool,
    "strip_accents": bool,
}
_LABEL_OUTPUTS = {"label", "labels", "tags"}  # the strings of these outputs are labels
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"


class Record(NamedTuple):
    """The content of an export's record file.

    Attributes:
        task_name: the name of the task.
        family: the family of the task.
        settings: what a client needs, by flag name.
        flags: the flags of the export, with which it can be repeated.
        versions: name of a package -> its version.
        labels: the number of labels, and the SHA-256 digest of labels.txt; None without labels.
        checkpoint: the metadata of the checkpoint, and the digest of the weights; None in a record
            of a model that is not exported.
        converted: converters, dtype, signatures, digests and metrics of files that are not a
            SavedModel; None without such files.
    """

    task_name: str
    family: str
    settings: dict[str, Any]
    flags: dict[str, Any]
    versions: dict[str, str]
    labels: dict[str, Any] | None = None
    checkpoint: dict[str, Any] | None = None
    converted: dict[str, Any] | None = None

    @classmethod
    def read(cls, version: str) -> Self:
        """Reads the record of a version.

        Args:
            version: the folder of the version.

        Raises:
            InputError: the record is missing, or a field is missing or has another type.
        """
        path = os.path.join(version, RECORD_FILE)
        if not files.exists(path):
            raise InputError(
                f"{path}: is missing, and with it how text is read; export the model again with "
                "official-bert export_saved_model, or several heads with export_heads"
            )
        return cls.from_content(reading.read_json(path), path)

    @classmethod
    def from_content(cls, content: Any, source: str) -> Self:
        """Reads a record from JSON values.

        Args:
            content: the values.
            source: the file of the values, for errors.

        Raises:
            InputError: a field is missing or has another type.
        """
        kinds = {
            "task_name": str,
            "family": str,
            "settings": dict,
            "flags": dict,
            "versions": dict,
        }
        for name in ("labels", "checkpoint", "converted"):
            if has_type(content, dict) and content.get(name):
                kinds[name] = dict
        values = {}
        for name, kind in kinds.items():
            values[name] = field(content, name, kind, source)
        record = cls(**values)
        _check_settings(record.settings, f"{source}: settings")
        return record


def _check_settings(settings: dict[str, Any], source: str):
    """Checks the types of the settings that every client needs, and of those of SQuAD.

    A flag of official-bert predict can replace each setting of SQuAD, so each must be a value that
    the flag accepts.
    """
    for name, kind in _SETTINGS.items():
        if name != "strip_accents" or settings.get(name) is not None:
            field(settings, name, kind, source)
    settings.setdefault("strip_accents", None)
    if settings["max_seq_length"] < 1:
        raise InputError(f"{source}: max_seq_length must be positive; export the model again")
    for squad_field in dataclasses.fields(SquadServing):
        kind = squad_field.type
        value = settings.get(squad_field.name)
        assert isinstance(kind, type), "the module of SquadServing does not postpone annotations"
        # A threshold may be infinite.
        is_threshold = kind is float and (value == AUTO or isinstance(value, float))
        if value is None or is_threshold:
            continue
        is_negative = isinstance(value, int) and kind is int and value < 0
        if not has_type(value, kind) or is_negative:
            raise InputError(
                f"{source}: {squad_field.name} is {value!r}, which the flag does not accept; "
                "export it again"
            )


def list_versions(export_dir: str) -> list[int]:
    """Returns the numbers of the versions in a folder, in ascending order.

    Args:
        export_dir: the path of the folder.
    """
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(export_dir))
    numbers = (int(name) for name in names if name.isascii() and name.isdigit())
    return sorted(number for number in numbers if number < _LARGEST_VERSION)


def set_threads(num_threads: int | None) -> None:
    """Sets the number of threads of TensorFlow, which is fixed after its first operation.

    Args:
        num_threads: the number of threads of an operation; None changes nothing.

    Raises:
        InputError: TensorFlow has run an operation with another number of threads.
    """
    if num_threads is None:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(num_threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError:
        if tf.config.threading.get_intra_op_parallelism_threads() != num_threads:
            raise InputError(
                f"num_threads={num_threads}: TensorFlow runs already with other threads; open the "
                "model earlier"
            ) from None


def call_function(
    function: Callable,
    inputs: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Calls a function of TensorFlow.

    Args:
        function: a function from tensors by name to a dictionary of tensors.
        inputs: the arrays by name.

    Returns:
        The outputs, as arrays by name.
    """
    tensors = {name: tf.constant(values) for name, values in inputs.items()}
    outputs = function(**tensors)
    return {name: value.numpy() for name, value in outputs.items()}


class Runtime(Protocol):
    """The signatures of a version, computed by one runtime.

    Attributes:
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        rank: rank of the inputs of `serving_default`.
        errors: the exceptions that a call may raise.
        labels: the labels that the graph contains, or None.
        num_outputs: the number of outputs that the graph has, or None.
        vocab_size: the number of rows of the graph's table of word embeddings, or None.
    """

    inputs: Mapping[str, Sequence[str]]
    outputs: Collection[str]
    rank: int
    errors: tuple[type[Exception], ...]
    labels: list[str] | None
    num_outputs: int | None
    vocab_size: int | None

    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""
        ...


class Opening(NamedTuple):
    """The settings with which an export is opened.

    Attributes:
        num_threads: number of threads to compute with; None for all processors.
        batch_size: number of examples of a call.
        settings: the settings that extensions add to official_bert.Predictor, by name.
    """

    num_threads: int | None
    batch_size: int
    settings: Mapping[str, Any]


class ExportRuntimes:
    """Opens the files of an extension's runtimes. The hook `export_runtimes` returns an instance of
    a subclass.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """The names of files. A folder with one of them is a version of an export."""
        return ()

    def open(self, export: OpenedExport, opening: Opening) -> Runtime | None:
        """Opens a version, or returns None to let others open it.

        Args:
            export: the version, whose record and files have been read.
            opening: the settings with which it is opened.
        """
        return None

    def check_trained(self, model_dir: str, settings: Mapping[str, Any]) -> None:
        """Checks the settings of an extension for a trained model that is not an export.

        Args:
            model_dir: the folder of the model.
            settings: the settings that extensions add to official_bert.Predictor, by name.

        Raises:
            InputError: a setting is only for exports.
        """


def make_export_runtimes() -> list[ExportRuntimes]:
    """Makes the `ExportRuntimes` of all extensions."""
    return [hook() for hook in catalog.hooks("export_runtimes")]


def check_trained(model_dir: str, settings: Mapping[str, Any]) -> None:
    """Checks the settings of all extensions for a trained model that is not an export.

    Args:
        model_dir: the folder of the model.
        settings: the settings that extensions add to official_bert.Predictor, by name.

    Raises:
        InputError: a setting is only for exports.
    """
    for runtimes in make_export_runtimes():
        runtimes.check_trained(model_dir, settings)


class SavedModelRuntime:
    """The signatures of a SavedModel, computed by TensorFlow. It is a `Runtime`.

    Attributes:
        functions: name of a signature -> the function of TensorFlow.
    """

    FILE = "saved_model.pb"
    errors: tuple[type[Exception], ...] = (tf.errors.OpError,)

    def __init__(self, path: str, num_threads: int | None = None):
        """Loads a SavedModel.

        Args:
            path: the folder of the SavedModel.
            num_threads: number of threads to compute with; by default all processors.
        """
        set_threads(num_threads)
        with _silence_warnings():
            model = tf.saved_model.load(path)
        self.functions = dict(model.signatures)
        # An Estimator's signature is called serving_default, so that ours has another name.
        if TENSOR_SIGNATURE in self.functions:
            self.functions[DEFAULT] = self.functions.pop(TENSOR_SIGNATURE)
        self.inputs: Mapping[str, Sequence[str]] = {
            name: tuple(function.structured_input_signature[1])
            for name, function in self.functions.items()
        }
        default = self.functions[DEFAULT]
        first_input = next(iter(default.structured_input_signature[1].values()))
        self.rank: int = first_input.shape.rank
        outputs = default.structured_outputs
        self.outputs: Collection[str] = set(outputs)
        self.num_outputs: int | None = None
        if "probabilities" in outputs:
            shape = outputs["probabilities"].shape
            self.num_outputs = shape[-1] if shape.rank else None
        embeddings = getattr(model, "model_weights", {}).get(_WORD_EMBEDDINGS)
        self.vocab_size: int | None = None
        if embeddings is not None:
            self.vocab_size = embeddings.shape[0]
        self.labels: list[str] | None = None
        if hasattr(model, "labels"):
            self.labels = [label.decode() for label in model.labels().numpy()]

    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        return call_function(self.functions[signature], inputs)


def open_runtime(
    runtime: Callable[[str, int | None], Runtime], path: str, num_threads: int | None, what: str
) -> Runtime:
    """Opens the files of a version by the class of a runtime.

    Args:
        runtime: the class, called with the path and the number of threads.
        path: the path of the files.
        num_threads: number of threads to compute with; None for all processors.
        what: the name of the files' format, for the error.

    Raises:
        InputError: the files are no complete `what`.
    """
    try:
        return runtime(path, num_threads)
    except InputError:
        raise
    except Exception as error:  # a corrupt file can end in any error of the loader
        raise InputError(
            f"{path}: is no complete {what} ({brief(error)}); export it again"
        ) from error


class OpenedExport:
    """A loaded version of an export with the files that it contains; a call runs a signature.

    Attributes:
        path: the folder of the version.
        record: the content of its record file.
        tokenizer: the tokenizer of the model.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        labels: the labels in the order of the outputs; None if the task has none.
    """

    inputs: Mapping[str, Sequence[str]]
    outputs: Collection[str]

    def __init__(
        self,
        model_dir: str,
        num_threads: int | None = None,
        batch_size: int = 32,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ):
        """Loads a version of an export, or of a folder of versions the newest.

        Args:
            model_dir: the folder.
            num_threads: number of threads to compute with; by default all processors.
            batch_size: number of examples of a call.
            settings: settings of extensions, by name.

        Raises:
            InputError: there is no export, or its files are corrupt or contradict one another.
        """
        self.path = _find_version(model_dir)
        self.record = Record.read(self.path)
        record_settings = self.record.settings
        labels_file = os.path.join(self.path, "assets.extra", LABELS_NAME)
        self.labels = read_labels(labels_file) if files.exists(labels_file) else None
        vocab_file = os.path.join(self.path, VOCAB_FILE)
        self.tokenizer = FullTokenizer(
            vocab_file,
            record_settings["do_lower_case"],
            strip_accents=record_settings["strip_accents"],
        )
        if record_settings["export_text"]:
            _check_pieces(vocab_file)
        self._runtime = self._open(Opening(num_threads, batch_size, settings))
        self.inputs = self._runtime.inputs
        self.outputs = self._runtime.outputs
        if self._runtime.vocab_size is not None:
            check_vocabulary(self.tokenizer, self._runtime.vocab_size, vocab_file)
        self._check_graph(labels_file)

    def __call__(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Runs a signature.

        Args:
            signature: the name of the signature.
            inputs: the arrays by name. Those that the signature does not have are ignored.

        Returns:
            The outputs, as arrays by name.

        Raises:
            InputError: the runtime refuses the inputs.
        """
        arrays = {name: np.asarray(inputs[name]) for name in self.inputs[signature]}
        try:
            return self._runtime(signature, arrays)
        except self._runtime.errors as error:
            raise InputError(f"{self.path}: the prediction failed ({brief(error)})") from error

    @property
    def functions(self) -> Mapping[str, Callable]:
        """Name of a signature -> the function of TensorFlow; empty for other runtimes."""
        return getattr(self._runtime, "functions", {})

    def open_saved_model(self, num_threads: int | None) -> Runtime:
        """Loads the SavedModel of the version.

        Args:
            num_threads: number of threads to compute with; None for all processors.
        """
        return open_runtime(SavedModelRuntime, self.path, num_threads, what="SavedModel")

    def _open(self, opening: Opening) -> Runtime:
        for runtimes in make_export_runtimes():
            if runtime := runtimes.open(self, opening):
                return runtime
        return self.open_saved_model(opening.num_threads)

    def _check_graph(self, labels_file: str):
        """Checks the record and the labels against the graph."""
        graph = self._runtime
        reads_text = self.record.settings["export_text"]
        if reads_text != (TEXT_SIGNATURE in self.inputs):
            raise InputError(
                f"{os.path.join(self.path, RECORD_FILE)}: export_text is {reads_text}, but the "
                f"model's signatures are {', '.join(self.inputs)}; put the export's own file back"
            )
        if self.labels is None:
            if _LABEL_OUTPUTS & set(self.outputs):
                raise InputError(
                    f"{labels_file}: no such file, but the model answers labels; put it back"
                )
            return
        if graph.labels is not None and self.labels != graph.labels:
            graph_labels = ", ".join(graph.labels)
            raise InputError(
                f"{labels_file}: the model's labels are {graph_labels}; put the export's own "
                "file back"
            )
        if self.record.labels not in (None, summarize_labels(self.labels)):
            raise InputError(
                f"{labels_file}: {RECORD_FILE} was written with other labels; put the export's own "
                "files back"
            )
        if graph.num_outputs not in (None, len(self.labels)):
            raise InputError(
                f"{labels_file}: has {len(self.labels)} labels, but the model has "
                f"{graph.num_outputs} outputs; put the export's own file back"
            )


def _check_pieces(vocab_file: str):
    """Refuses a vocabulary with a repeated piece, which no lookup table can have."""
    earlier_pieces = set()
    for number, piece in enumerate(reading.read_lines(vocab_file), 1):
        if piece in earlier_pieces:
            raise InputError(
                f"{vocab_file}: line {number}: repeats {piece!r}; put the export's own file back"
            )
        earlier_pieces.add(piece)


def is_export(model_dir: str) -> bool:
    """Returns whether a path is a version of an export, or a folder of versions.

    Args:
        model_dir: the path.
    """
    if _is_version(model_dir):
        return True
    return files.is_folder(model_dir) and bool(list_versions(model_dir))


def _is_version(folder: str) -> bool:
    names = {SavedModelRuntime.FILE}
    for runtimes in make_export_runtimes():
        names.update(runtimes.files)
    return any(files.exists(os.path.join(folder, name)) for name in sorted(names))


def _find_version(model_dir: str) -> str:
    """Returns the folder of a version: the path itself, or else the newest version in it."""
    if not is_export(model_dir):
        raise make_no_model_error(model_dir)
    if _is_version(model_dir):
        return model_dir
    newest_version = list_versions(model_dir)[-1]
    return os.path.join(model_dir, str(newest_version))


@contextlib.contextmanager
def _silence_warnings():
    """Suppresses TensorFlow's warnings that an export has no gradients, which no export needs."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
