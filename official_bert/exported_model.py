"""Opens an export of any format: its record, vocabulary and labels, and its signatures, which a
runtime computes.

In: the folder of a version, or of versions. Out: `OpenedExport`, a function from arrays by name to
    arrays by name.
"""

import contextlib
import dataclasses
import importlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert.config import BertConfig
from official_bert.data.model_inputs import check_vocabulary
from official_bert.features import ENCODER_INPUTS
from official_bert.io import files, reading
from official_bert.io.errors import InputError, brief
from official_bert.io.reading import field, is_of_kind
from official_bert.model_dir import LABELS_NAME, read_labels, record_of_labels
from official_bert.options.fine_tuning import AUTO, SquadServing
from official_bert.options.serving import EXPORT_FORMATS, LITERT, ONNX, SAVED_MODEL
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
_OF_LABELS = {"label", "labels", "tags"}  # outputs whose strings are labels
# Of the batch by which runtimes are compared: large enough to show what they do, small enough not
# to be waited for.
_MOST_ROWS, _TIMED_LENGTH, _NUM_TIMED = 4, 128, 3
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
                "export_saved_model.py"
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
    predict.py replace.
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


class RuntimeMissingError(InputError):
    """A package of requirements-runtimes.txt that cannot be imported."""


def import_runtime(module: str):
    """Imports a package of requirements-runtimes.txt; raises RuntimeMissingError, which names
    the file.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RuntimeMissingError(
            f"{module.split('.')[0]}: cannot be imported ({brief(error)}); pip install -r "
            "requirements-runtimes.txt"
        ) from error


def versions(export_dir: str) -> list[int]:
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


def answers_of(function: Callable, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Calls a function of TensorFlow with arrays by name."""
    found = function(**{name: tf.constant(values) for name, values in inputs.items()})
    return {name: value.numpy() for name, value in found.items()}


class _SavedModel:
    """The signatures of a SavedModel, by TensorFlow.

    As of each runtime, `inputs` are the names of the inputs by signature, `outputs` those of
    `serving_default`, `rank` that of its inputs, and `errors` what a call may raise. `labels`,
    `num_outputs` and `vocab_size` are what the graph knows, or None.
    """

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
        return answers_of(self._signatures[signature], inputs)


class _Converted:
    """What the graph of a converted model does not know."""

    errors = (Exception,)
    labels = num_outputs = vocab_size = None


class _LiteRt(_Converted):
    """The signatures of model.tflite, by LiteRT, which gives each new shape of inputs new memory."""

    FILE = "model.tflite"

    def __init__(self, path: str, num_threads: int | None = None):
        interpreter = import_runtime("ai_edge_litert.interpreter")
        self._interpreter = interpreter.Interpreter(
            os.path.join(path, self.FILE), num_threads=num_threads or os.cpu_count()
        )
        found = self._interpreter.get_signature_list()
        self._runners = {name: self._interpreter.get_signature_runner(name) for name in found}
        self.inputs = {name: tuple(signature["inputs"]) for name, signature in found.items()}
        self.outputs = set(found[DEFAULT]["outputs"])
        self.rank = len(next(iter(self._runners[DEFAULT].get_input_details().values()))["shape"])

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._runners[signature](**inputs)


class _Onnx(_Converted):
    """The signatures by onnxruntime: model.onnx has serving_default, and <signature>.onnx each
    further one.
    """

    FILE = "model.onnx"

    def __init__(self, path: str, num_threads: int | None = None):
        onnxruntime = import_runtime("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads or 0  # 0: those of the machine
        self._sessions = {}
        for name in sorted(files.matching("*.onnx", path)):
            signature = (
                DEFAULT
                if os.path.basename(name) == self.FILE
                else os.path.basename(name).removesuffix(".onnx")
            )
            self._sessions[signature] = onnxruntime.InferenceSession(
                name, options, ["CPUExecutionProvider"]
            )
        self.inputs = {
            name: tuple(each.name for each in one.get_inputs())
            for name, one in self._sessions.items()
        }
        self.outputs = {each.name for each in self._sessions[DEFAULT].get_outputs()}
        self.rank = len(self._sessions[DEFAULT].get_inputs()[0].shape)

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        session = self._sessions[signature]
        names = [output.name for output in session.get_outputs()]
        found = zip(names, session.run(names, dict(inputs)), strict=True)
        # Strings are bytes, as TensorFlow's.
        encoded = np.vectorize(str.encode, otypes=[object])
        return {name: encoded(value) if value.dtype == object else value for name, value in found}


RUNTIMES = {SAVED_MODEL: _SavedModel, ONNX: _Onnx, LITERT: _LiteRt}


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
        runtime: str = AUTO,
        batch_size: int = _MOST_ROWS,
    ):
        """Loads a version of an export, or of a folder of versions the newest.

        `runtime` says what computes a version of several formats; with "auto" it is what answers a
        batch of `batch_size`, but of few rows, soonest.
        """
        self.path = _version_folder(model_dir)
        self.record = Record.read(self.path)
        settings = self.record.settings
        labels_file = os.path.join(self.path, "assets.extra", LABELS_NAME)
        self.labels = read_labels(labels_file) if files.exists(labels_file) else None
        vocab_file = os.path.join(self.path, VOCAB_FILE)
        self.tokenizer = FullTokenizer(
            vocab_file, settings["do_lower_case"], strip_accents=settings["strip_accents"]
        )
        if settings["export_text"]:
            _check_pieces(vocab_file)
        formats = [name for name in EXPORT_FORMATS if _has(self.path, RUNTIMES[name])] or [
            SAVED_MODEL
        ]
        if runtime != AUTO and runtime not in map(EXPORT_FORMATS.get, formats):
            there = ", ".join(map(EXPORT_FORMATS.get, formats))
            raise InputError(
                f"runtime={runtime}: {self.path} has no model for it; it has those of {there}"
            )
        if runtime != AUTO:
            formats = [name for name in formats if EXPORT_FORMATS[name] == runtime]
        if len(formats) == 1:
            self._runtime = self._opened(formats[0], num_threads)
        else:
            self._runtime = self._fastest(formats, num_threads, min(batch_size, _MOST_ROWS))
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

    def _opened(self, export_format: str, num_threads: int | None):
        runtime = RUNTIMES[export_format]
        vocab_size = None if runtime is _SavedModel else self._check_converted(runtime)
        try:
            opened = runtime(self.path, num_threads)
        except InputError:
            raise
        except Exception as error:  # a corrupt file can end in any error of the loader
            what = "SavedModel" if runtime is _SavedModel else runtime.FILE
            raise InputError(
                f"{self.path}: is no complete {what} ({brief(error)}); export it anew"
            ) from error
        opened.vocab_size = vocab_size or opened.vocab_size
        return opened

    def _fastest(self, formats: Sequence[str], num_threads: int | None, num_rows: int):
        """Opens the model of each format whose runtime is installed, and returns the one that
        answers soonest.
        """
        length = min(self.record.settings["max_seq_length"], _TIMED_LENGTH)
        secs, opened, missing = {}, {}, None
        for name in formats:
            try:
                opened[name] = model = self._opened(name, num_threads)
            except RuntimeMissingError as error:
                logging.info("%s: is not tried (%s)", self.path, error)
                missing = error
                continue
            # Of two choices, if there are any.
            ids = np.ones((num_rows, *[2] * (model.rank - 2), length), np.int32)
            features = dict(zip(ENCODER_INPUTS, (ids, ids, np.zeros_like(ids)), strict=True))
            inputs = {given: features[given] for given in model.inputs[DEFAULT]}
            model(DEFAULT, inputs)
            starts = [time.perf_counter()]
            for _ in range(_NUM_TIMED):
                model(DEFAULT, inputs)
                starts.append(time.perf_counter())
            secs[name] = np.diff(starts).min()
        if not secs:
            raise missing
        best = min(secs, key=secs.get)
        took = ", ".join(f"{EXPORT_FORMATS[name]} {1e3 * secs[name]:.1f}" for name in secs)
        logging.info(
            "%s answers: milliseconds for %d rows of %d tokens: %s",
            EXPORT_FORMATS[best],
            num_rows,
            length,
            took,
        )
        return opened[best]

    def _check_converted(self, runtime: type) -> int:
        """Checks the files of a model that is no SavedModel against the record, and returns its
        vocab_size.

        Its graph has no checks of its own.
        """
        where = os.path.join(self.path, RECORD_FILE)
        digests = field(self.record.converted or {}, "sha256", dict, f"{where}: converted")
        if runtime.FILE not in digests:
            raise InputError(
                f"{where}: does not name {runtime.FILE}; put the export's own file back"
            )
        for name, digest in digests.items():
            path = os.path.join(self.path, os.path.basename(name))
            if (
                os.path.splitext(name)[1] == os.path.splitext(runtime.FILE)[1]
                and files.sha256(path) != digest
            ):
                raise InputError(
                    f"{path}: is not the file that was exported; copy the version again"
                )
        config = BertConfig.from_json_file(os.path.join(self.path, CONFIG_FILE))
        if self.record.settings["max_seq_length"] > config.max_position_embeddings:
            raise InputError(
                f"{where}: max_seq_length is beyond the model's {config.max_position_embeddings} "
                "positions"
            )
        return config.vocab_size

    def _check_graph(self, labels_file: str):
        """Checks the record and the labels against the graph."""
        reads_text, graph = self.record.settings["export_text"], self._runtime
        if reads_text != ("serving_text" in self.inputs):
            raise InputError(
                f"{os.path.join(self.path, RECORD_FILE)}: export_text is {reads_text}, but the "
                f"model's signatures are {', '.join(self.inputs)}; put the export's own file back"
            )
        if self.labels is None:
            if _OF_LABELS & set(self.outputs):
                raise InputError(
                    f"{labels_file}: no such file, but the model answers labels; put it back"
                )
            return
        if graph.labels is not None and self.labels != graph.labels:
            own = ", ".join(graph.labels)
            raise InputError(
                f"{labels_file}: the model's labels are {own}; put the export's own file back"
            )
        if self.record.labels not in (None, record_of_labels(self.labels)):
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
    return _is_version(model_dir) or (files.is_folder(model_dir) and bool(versions(model_dir)))


def _is_version(folder: str) -> bool:
    return any(_has(folder, runtime) for runtime in RUNTIMES.values())


def _has(folder: str, runtime: type) -> bool:
    return files.exists(os.path.join(folder, runtime.FILE))


def _version_folder(model_dir: str) -> str:
    if not is_export(model_dir):
        raise InputError(
            f"{model_dir}: holds no model; name an --export_dir, a version in it, or the "
            "--output_dir of a training"
        )
    return (
        model_dir
        if _is_version(model_dir)
        else os.path.join(model_dir, str(versions(model_dir)[-1]))
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
