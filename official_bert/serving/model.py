"""Models that answer requests: `SavedModel` of an export, `InMemoryModel` of a checkpoint, with the same signatures.

`export` is the runner of export_saved_model.py.
"""

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from official_bert import model_hub
from official_bert.checkpoints import load_checkpoint
from official_bert.checkpoints.names import GLOBAL_STEP, families_of
from official_bert.checkpoints.sentence_folder import MODULES_NAME, Dense, SentenceModules
from official_bert.data.model_inputs import check_unknown_in, check_vocabulary
from official_bert.features import EncodedSet
from official_bert.io import files, reading
from official_bert.io.errors import InputError, brief
from official_bert.model_dir import LABELS_NAME, ModelFolder, read_labels, record_of_labels
from official_bert.model_source import ModelSource, check_config_beside
from official_bert.options.serving import EMBEDDING, ExportOptions, ServedOptions
from official_bert.options.shared import FLOAT32
from official_bert.serving.export import (
    RECORD_FILE,
    Record,
    TrainedModel,
    export_model,
    import_text_ops,
    record_of,
    task_signatures,
    versions,
)
from official_bert.serving.signatures import TENSOR_SIGNATURE
from official_bert.tasks import registry
from official_bert.tasks.base import ServedTask
from official_bert.tasks.clients import Row
from official_bert.tokenization import FullTokenizer, validate_case_matches_checkpoint
from official_bert.training import precision
from official_bert.training.distribution import log_devices
from official_bert.training.loop import predict

_OF_LABELS = {"label", "labels", "tags"}  # outputs whose strings are labels
_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"


def export(options: ExportOptions):
    log_devices()
    export_model(build(options, options.dtype))


def build(options: ServedOptions, dtype: str = FLOAT32) -> TrainedModel:
    """Builds the task and the model, whose kernels and tables are stored in `dtype`, and loads the weights."""
    source = ModelSource(options)
    checkpoint = source.checkpoint
    theirs, their_labels = (source.task, None) if source.task else source.dir.huggingface_task()
    if not options.task_name:
        source.task = theirs
    task_name = options.task_name or _task_name(source)
    family = registry.family_of(task_name)
    if source.task and family == source.task.family and not registry.is_same(task_name, source.task.task_name):
        raise InputError(
            f"--task_name={task_name}: {source.dir.task_file} says {source.task.task_name}; leave the flag out"
        )
    known = _known_of_sentences(source) if family == EMBEDDING else {}
    source.complete(family, task_name=task_name, **known)
    options = source.options
    validate_case_matches_checkpoint(options.do_lower_case, options.init_checkpoint)
    config, tokenizer = source.config, source.tokenizer
    task = _make_task(source, their_labels).for_checkpoint(checkpoint.shapes, tokenizer, config)
    with precision.stored_in(dtype):
        model = task.build_model(config, use_one_hot_embeddings=False)
    load_checkpoint(model, checkpoint).check_complete(
        getattr(model, "unused_weights", ()),
        f"which --task_name={task_name} needs; give a checkpoint that was trained on the task",
    )
    check_config_beside(checkpoint.path, config)
    return TrainedModel(options, task, model, config, tokenizer, _facts(source))


def _known_of_sentences(source: ModelSource) -> dict[str, Any]:
    """Returns what a folder of sentence-transformers says in place of flags that are not given."""
    found, options = SentenceModules.read(source.dir.path), source.options
    if found is None:
        return {}
    tokenizer = source.dir.tokenizer_config()
    for is_there, what in (
        (any(isinstance(layer, Dense) for layer in found.layers), "a Dense module"),
        (found.lowers and tokenizer and tokenizer.do_lower_case is False, "do_lower_case beside a cased tokenizer"),
    ):
        if is_there:
            raise InputError(f"{source.dir.path}: has {what}, which SentenceEncoder reads and an export does not")
    said = {"pooling": found.pooling, "normalize": bool(found.layers), "max_seq_length": found.max_seq_length}
    return {name: value for name, value in said.items() if getattr(options, name) is None}


def _facts(source: ModelSource) -> dict[str, Any]:
    """Returns the path and the step of a checkpoint, and the evaluations beside it that are of this step."""
    checkpoint = source.checkpoint
    step, metrics = int(checkpoint.read(GLOBAL_STEP)) if GLOBAL_STEP in checkpoint.shapes else None, {}
    for path in source.dir.evaluations():
        with contextlib.suppress(ValueError):  # of a file that others have changed
            values = {name: float(value) for name, value in (line.split(" = ") for line in reading.read_lines(path))}
            if values.pop(GLOBAL_STEP, None) == step:
                metrics[os.path.basename(path)] = values
    return {"path": checkpoint.path, "step": step, "metrics": metrics}


def _task_name(source: ModelSource) -> str:
    """Returns the task of the folder; without a record, a model without a task's head is pre-trained.

    A folder of sentence-transformers has no record either.
    """
    if source.task:
        return source.task.task_name
    if files.exists(os.path.join(source.dir.path, MODULES_NAME)):
        return EMBEDDING
    if families_of(source.checkpoint.shapes, source.path) - {"pretraining"}:
        raise InputError(
            f"{source.path}: has the head of a task, and no task.json says of which; export it with "
            "export_saved_model.py --task_name=... (text for labels of your own)"
        )
    return "pretraining"


def _make_task(source: ModelSource, their_labels: list[str] | None) -> ServedTask:
    """Makes the task with the labels that the flags give, those beside the checkpoint, or Hugging Face's."""
    options, beside = source.options, source.labels
    settings = (source.task.settings if source.task else {}) | vars(options)
    settings["checkpoint_labels"] = beside or their_labels
    task = registry.make_task(options.task_name, settings)
    known = task.labels
    if beside and known is not None and list(map(str, known)) != beside:
        given, remedy = f"--task_name={options.task_name}: its labels", "name the task that it was trained on"
        if options.labels:
            given, remedy = "--labels: they", "leave the flag out"
        labels = ", ".join(map(str, known))
        raise InputError(f"{given} are {labels}, but those beside the checkpoint are {', '.join(beside)}; {remedy}")
    return task


class _Model:
    """A model with signatures, in the form of tasks/clients.py's ServedModel."""

    path: str
    record: Record  # of an export of it
    tokenizer: FullTokenizer
    labels: list[str] | None  # in the order of the outputs; None if the task has none
    inputs: Mapping[str, Sequence[str]]
    outputs: Collection[str]
    _signatures: Mapping[str, Callable]

    def __init__(self, batch_size: int):
        self._batch_size, self._is_used = batch_size, False

    @property
    def reads_text(self) -> bool:
        return self.record.settings["export_text"]

    @property
    def max_seq_length(self) -> int:
        return self.record.settings["max_seq_length"]

    def __call__(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs a signature; of the inputs, arrays by name, those that it does not have are ignored."""
        try:
            tensors = {name: tf.constant(inputs[name]) for name in self.inputs[signature]}
            return {name: value.numpy() for name, value in self._signatures[signature](**tensors).items()}
        except tf.errors.OpError as error:
            raise InputError(f"{self.path}: cannot answer ({brief(error)})") from error

    def run(
        self, encoded: EncodedSet, signature: str = "serving_default", pads_to_longest: bool = True
    ) -> dict[str, np.ndarray]:
        """Runs a signature of tensors on every example of a set; see tasks/clients.py."""
        if not self._is_used:
            self._is_used = True
            check_unknown_in(self.tokenizer, encoded, self.max_seq_length)
        return predict(
            lambda inputs: self(signature, inputs),
            tf.distribute.get_strategy(),
            encoded,
            self._batch_size,
            self.max_seq_length,
            pads_to_longest,
        )

    def run_texts(self, texts: Mapping[str, Sequence], signature: str = "serving_text") -> list[Row]:
        """Runs a signature of text and returns the outputs for each request; see tasks/clients.py."""
        # TensorFlow reads bytes; inputs that the signature does not have, such as a second text, are left out.
        inputs = {
            name: np.vectorize(str.encode, otypes=[object])(np.array(texts[name], object))
            for name in self.inputs[signature]
        }
        num_requests = len(next(iter(inputs.values())))
        sizes = sum(np.vectorize(len)(values).reshape(num_requests, -1).sum(axis=1) for values in inputs.values())
        # Requests of similar length share a batch, because a batch is padded to its longest request.
        order = np.argsort(-sizes, kind="stable")
        found: list[Row] = [{} for _ in range(num_requests)]
        for start in range(0, num_requests, self._batch_size):
            rows = order[start : start + self._batch_size]
            batch = {name: values[rows] for name, values in inputs.items()}
            for output, values in self(signature, batch).items():
                for row, value in zip(rows, values, strict=True):
                    found[row][output] = value
        return found


class InMemoryModel(_Model):
    """The model of a folder with a checkpoint, with the signatures of an export of tensors."""

    def __init__(self, folder: str, batch_size: int = 32):
        """Builds the task of the folder and loads its weights."""
        super().__init__(batch_size)
        built = build(ServedOptions(model=folder))
        self.path, self.trained = folder, built
        self.record = record_of(built)
        self.tokenizer = built.tokenizer
        self.labels = list(map(str, built.task.labels)) if built.task.labels else None
        self._signatures = {
            name: signature.get_concrete_function()
            for name, signature in task_signatures(built.task, built.model, built.config, built.tokenizer).items()
        }
        self.inputs = {
            name: tuple(spec.name for spec in signature.structured_input_signature[0])
            for name, signature in self._signatures.items()
        }
        self.outputs = set(self._signatures["serving_default"].structured_outputs)


class SavedModel(_Model):
    """A loaded SavedModel of export_saved_model.py, with the files that it contains."""

    def __init__(self, model_dir: str, batch_size: int = 32):
        """Loads a version of an export, or of a folder of versions the newest."""
        super().__init__(batch_size)
        self.path = _version_folder(model_dir)
        self.record = Record.read(self.path)
        settings = self.record.settings
        labels_file = os.path.join(self.path, "assets.extra", LABELS_NAME)
        self.labels = read_labels(labels_file) if files.exists(labels_file) else None
        vocab_file = os.path.join(self.path, "assets", "vocab.txt")
        self.tokenizer = FullTokenizer(vocab_file, settings["do_lower_case"], strip_accents=settings["strip_accents"])
        if self.reads_text:
            import_text_ops(f"{self.path}: reads raw text, and")
            _check_pieces(vocab_file)
        try:
            with _quiet():
                model = tf.saved_model.load(self.path)
            self._signatures = dict(model.signatures)
            if TENSOR_SIGNATURE in self._signatures:  # serving_default is that of an Estimator
                self._signatures["serving_default"] = self._signatures.pop(TENSOR_SIGNATURE)
            self.inputs = {
                name: tuple(function.structured_input_signature[1]) for name, function in self._signatures.items()
            }
            outputs = self._signatures["serving_default"].structured_outputs
        except Exception as error:  # a corrupt file can end in any error of the loader
            raise InputError(f"{self.path}: is no complete SavedModel ({brief(error)}); export it anew") from error
        self.outputs = set(outputs)
        embeddings = getattr(model, "model_weights", {}).get(_WORD_EMBEDDINGS)
        if embeddings is not None:
            check_vocabulary(self.tokenizer, embeddings.shape[0], vocab_file)
        self._check_graph(labels_file, outputs, model)

    def _check_graph(self, path: str, outputs: Mapping[str, tf.TensorSpec], model):
        """Checks the record and the labels, of a path, against the graph."""
        if self.reads_text != ("serving_text" in self.inputs):
            raise InputError(
                f"{os.path.join(self.path, RECORD_FILE)}: export_text is {self.reads_text}, but the model's signatures "
                f"are {', '.join(self.inputs)}; put the export's own file back"
            )
        if self.labels is None:
            if _OF_LABELS & self.outputs:
                raise InputError(f"{path}: no such file, but the model answers labels; put it back")
            return
        if hasattr(model, "labels"):  # not in exports of earlier versions
            own = [label.decode() for label in model.labels().numpy()]
            if self.labels != own:
                raise InputError(f"{path}: the model's labels are {', '.join(own)}; put the export's own file back")
        if self.record.labels not in (None, record_of_labels(self.labels)):
            raise InputError(f"{path}: {RECORD_FILE} was written with other labels; put the export's own files back")
        shape = outputs["probabilities"].shape if "probabilities" in outputs else None
        if shape is not None and shape.rank and shape[-1] not in (None, len(self.labels)):
            raise InputError(
                f"{path}: has {len(self.labels)} labels, but the model has {shape[-1]} outputs; put the export's own "
                "file back"
            )


def _check_pieces(vocab_file: str):
    """Refuses a vocabulary that the graph's table cannot hold."""
    seen = set()
    for number, piece in enumerate(reading.read_lines(vocab_file), 1):
        if piece in seen:
            raise InputError(f"{vocab_file}: line {number}: repeats {piece!r}; put the export's own file back")
        seen.add(piece)


def open_model(model_dir: str, batch_size: int) -> SavedModel | InMemoryModel:
    """Loads an export, or builds the model of a folder with a checkpoint, or of a name."""
    model_dir = model_hub.local_path(model_dir)
    if not _is_export(model_dir) and ModelFolder(model_dir).config_file:
        return InMemoryModel(model_dir, batch_size)
    return SavedModel(model_dir, batch_size)


def _is_export(model_dir: str) -> bool:
    return _is_version(model_dir) or (files.is_folder(model_dir) and bool(versions(model_dir)))


def _is_version(folder: str) -> bool:
    return files.exists(os.path.join(folder, "saved_model.pb"))


def _version_folder(model_dir: str) -> str:
    if not _is_export(model_dir):
        raise InputError(
            f"{model_dir}: holds no model; name an --export_dir, a version in it, or the --output_dir of a training"
        )
    return model_dir if _is_version(model_dir) else os.path.join(model_dir, str(versions(model_dir)[-1]))


@contextlib.contextmanager
def _quiet():
    """Suppresses TensorFlow's warnings that an export has no gradients, which no export needs."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
