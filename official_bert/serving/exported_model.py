"""Opens an export: its record, vocabulary and labels, and its signatures, which a runtime computes.

In: the folder of a version, or of versions. Out: `OpenedExport`, a function from arrays by name to
arrays by name. The core opens SavedModels; extensions open files of other runtimes by the hook
`export_runtimes`.
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
from official_bert.io.reading import field, is_of_kind
from official_bert.model_dir import LABELS_NAME, read_labels, summarize_labels
from official_bert.options.fine_tuning import AUTO, SquadServing
from official_bert.tokenization import FullTokenizer

DEFAULT = "serving_default"
TENSOR_SIGNATURE = "serving_tensors"  # the name of our serving_default where that is an Estimator's
RECORD_FILE, CONFIG_FILE, VOCAB_FILE = (
    "assets.extra/export.json",
    "assets.extra/bert_config.json",
    "assets/vocab.txt",
)
_LARGEST_VERSION = 2**63 - 1  # that TensorFlow Serving reads
_SETTINGS = {
    "export_text": bool,
    "max_seq_length": int,
    "do_lower_case": bool,
    "strip_accents": bool,
}
_LABEL_OUTPUTS = {"label", "labels", "tags"}  # outputs whose strings are labels
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"


class Record(NamedTuple):
    """The content of an export's record file; the last three may be None."""

    task_name: str
    family: str
    settings: dict[str, Any]  # by flag name, what a client needs
    flags: dict[str, Any]  # to repeat the export
    versions: dict[str, str]  # of packages
    # Their number, and the SHA-256 digest of labels.txt; None without labels.
    labels: dict[str, Any] | None = None
    # The facts of a TrainedModel, and the digest of the weights.
    checkpoint: dict[str, Any] | None = None
    # Of what is no SavedModel: converters, dtype, signatures, digests, metrics.
    converted: dict[str, Any] | None = None

    @classmethod
    def read(cls, version: str) -> Self:
        path = os.path.join(version, RECORD_FILE)
        if not files.exists(path):
            raise InputError(
                f"{path}: is missing, and with it how text is read; export the model with "
                "official-bert export_saved_model"
            )
        content = reading.read_json(path)
        kinds = {"task_name": str, "family": str, "settings": dict, "flags": dict, "versions": dict}
        later = "labels", "checkpoint", "converted"
        kinds |= {name: dict for name in later if is_of_kind(content, dict) and content.get(name)}
        record = cls(**{name: field(content, name, kind, path) for name, kind in kinds.items()})
        _check_settings(record.settings, f"{path}: settings")
        return record


def _check_settings(settings: dict[str, Any], where: str):
    """Checks the types of the settings that every client needs, and of those that the flags of
    official-bert predict replace.
    """
    for name, kind in _SETTINGS.items():
        if name != "strip_accents" or settings.get(name) is not None:
            field(settings, name, kind, where)
    settings.setdefault("strip_accents", None)
    if settings["max_seq_length"] < 1:
        raise InputError(f"{where}: max_seq_length must be positive; export the model anew")
    for rule in dataclasses.fields(SquadServing):
        value, kind = settings.get(rule.name), rule.type
        # May be infinite.
        if value is None or (kind is float and (value == AUTO or isinstance(value, float))):
            continue
        if not is_of_kind(value, kind) or (kind is int and value < 0):
            raise InputError(
                f"{where}: {rule.name} is {value!r}, which the flag does not accept; export it anew"
            )


def list_versions(export_dir: str) -> list[int]:
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(export_dir))
    numbers = (int(name) for name in names if name.isascii() and name.isdigit())
    return sorted(number for number in numbers if number < _LARGEST_VERSION)


def set_threads(num_threads: int | None):
    """Sets the threads of TensorFlow, which it takes before its first operation only."""
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


def call_function(function: Callable, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Calls a function of TensorFlow with arrays by name."""
    outputs = function(**{name: tf.constant(values) for name, values in inputs.items()})
    return {name: value.numpy() for name, value in outputs.items()}


class Runtime(Protocol):
    """The signatures of a version, by one runtime.

    Attributes:
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        rank: rank of the inputs of `serving_default`.
        errors: what a call may raise.
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

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature on arrays by name."""


class Opening(NamedTuple):
    """How an export is opened.

    Attributes:
        num_threads: number of threads to compute with; None for all processors.
        batch_size: number of examples that the model will be given at once.
        settings: the settings that extensions add to official_bert.Predictor, by name.
    """

    num_threads: int | None
    batch_size: int
    settings: Mapping[str, Any]


class ExportRuntimes:
    """What an extension opens, beyond SavedModels. Its hook `export_runtimes` returns a subclass's
    instance.
    """

    @property
    def files(self) -> tuple[str, ...]:
        """Names of files; a folder with one of them is a version of an export."""
        return ()

    def open(self, export: OpenedExport, opening: Opening) -> Runtime | None:
        """Opens a version, or returns None to let others open it."""
        return None

    def check_trained(self, model_dir: str, settings: Mapping[str, Any]):
        """Refuses settings for the folder of a trained model that are for exports alone."""


def export_runtimes() -> list[ExportRuntimes]:
    return [hook() for hook in catalog.hooks("export_runtimes")]


class SavedModelRuntime:
    """The signatures of a SavedModel, by TensorFlow."""

    FILE = "saved_model.pb"
    errors = (tf.errors.OpError,)

    def __init__(self, path: str, num_threads: int | None = None):
        set_threads(num_threads)
        with _quiet():
            model = tf.saved_model.load(path)
        self._signatures = dict(model.signatures)
        if TENSOR_SIGNATURE in self._signatures:  # serving_default is that of an Estimator
            self._signatures[DEFAULT] = self._signatures.pop(TENSOR_SIGNATURE)
        self.inputs = {
            name: tuple(function.structured_input_signature[1])
            for name, function in self._signatures.items()
        }
        outputs = self._signatures[DEFAULT].structured_outputs
        self.rank = next(
            iter(self._signatures[DEFAULT].structured_input_signature[1].values())
        ).shape.rank
        self.outputs = set(outputs)
        shape = outputs["probabilities"].shape if "probabilities" in outputs else None
        self.num_outputs = shape[-1] if shape is not None and shape.rank else None
        embeddings = getattr(model, "model_weights", {}).get(_WORD_EMBEDDINGS)
        self.vocab_size = None if embeddings is None else embeddings.shape[0]
        self.labels = (
            [one.decode() for one in model.labels().numpy()] if hasattr(model, "labels") else None
        )

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return call_function(self._signatures[signature], inputs)


def open_runtime(runtime: Callable, path: str, num_threads: int | None, what: str) -> Runtime:
    """Opens the files of a version by the class of a runtime.

    Raises:
        InputError: the files are no complete `what`.
    """
    try:
        return runtime(path, num_threads)
    except InputError:
        raise
    except Exception as error:  # a corrupt file can end in any error of the loader
        raise InputError(
            f"{path}: is no complete {what} ({brief(error)}); export it anew"
        ) from error


class OpenedExport:
    """A loaded version of an export with the files that it contains; a call runs a signature.

    Attributes:
        path: the folder of the version.
        inputs: name of a signature -> the names of its inputs.
        outputs: names of the outputs of `serving_default`.
        labels: in the order of the outputs; None if the task has none.
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
            batch_size: number of examples that the model will be given at once.
            settings: settings of extensions.
        """
        self.path = _version_folder(model_dir)
        self.record = Record.read(self.path)
        recorded = self.record.settings
        labels_file = os.path.join(self.path, "assets.extra", LABELS_NAME)
        self.labels = read_labels(labels_file) if files.exists(labels_file) else None
        vocab_file = os.path.join(self.path, VOCAB_FILE)
        self.tokenizer = FullTokenizer(
            vocab_file, recorded["do_lower_case"], strip_accents=recorded["strip_accents"]
        )
        if recorded["export_text"]:
            _check_pieces(vocab_file)
        self._runtime = self._open(Opening(num_threads, batch_size, settings))
        self.inputs, self.outputs = self._runtime.inputs, self._runtime.outputs
        if self._runtime.vocab_size is not None:
            check_vocabulary(self.tokenizer, self._runtime.vocab_size, vocab_file)
        self._check_graph(labels_file)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature; of the inputs, arrays by name, those that it does not have are ignored."""
        try:
            return self._runtime(
                signature, {name: np.asarray(inputs[name]) for name in self.inputs[signature]}
            )
        except self._runtime.errors as error:
            raise InputError(f"{self.path}: cannot answer ({brief(error)})") from error

    def open_saved_model(self, num_threads: int | None) -> Runtime:
        """Loads the SavedModel of the version."""
        return open_runtime(SavedModelRuntime, self.path, num_threads, what="SavedModel")

    def _open(self, opening: Opening) -> Runtime:
        for runtimes in export_runtimes():
            if runtime := runtimes.open(self, opening):
                return runtime
        return self.open_saved_model(opening.num_threads)

    def _check_graph(self, labels_file: str):
        """Checks the record and the labels against the graph."""
        reads_text, graph = self.record.settings["export_text"], self._runtime
        if reads_text != ("serving_text" in self.inputs):
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
    """Refuses a vocabulary that the graph's table cannot hold."""
    seen = set()
    for number, piece in enumerate(reading.read_lines(vocab_file), 1):
        if piece in seen:
            raise InputError(
                f"{vocab_file}: line {number}: repeats {piece!r}; put the export's own file back"
            )
        seen.add(piece)


def is_export(model_dir: str) -> bool:
    return _is_version(model_dir) or (files.is_folder(model_dir) and bool(list_versions(model_dir)))


def _is_version(folder: str) -> bool:
    names = {SavedModelRuntime.FILE}
    for runtimes in export_runtimes():
        names.update(runtimes.files)
    return any(files.exists(os.path.join(folder, name)) for name in sorted(names))


def _version_folder(model_dir: str) -> str:
    if not is_export(model_dir):
        raise InputError(
            f"{model_dir}: holds no model; name an --export_dir, a version in it, or the "
            "--output_dir of a training"
        )
    return (
        model_dir
        if _is_version(model_dir)
        else os.path.join(model_dir, str(list_versions(model_dir)[-1]))
    )


@contextlib.contextmanager
def _quiet():
    """Suppresses TensorFlow's warnings that an export has no gradients, which no export needs."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
