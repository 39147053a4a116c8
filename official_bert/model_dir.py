"""Reads and writes the files of a model's folder, which has everything that is needed to use it.

    vocab.txt, tokenizer_config.json    the vocabulary, and the settings of the tokenizer
    tokenizer.json                      both, for the library tokenizers
    bert_config.json or config.json     the configuration
    labels.txt                          the labels of a task, in the order of the outputs
    task.json                           the record of the training: the task, its lengths and rules

In: a folder, or the checkpoint in it. Out: a ModelFolder. `write` writes these files.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from official_bert import model_types
from official_bert.added_tokens import read_markers
from official_bert.config import BertConfig
from official_bert.io import errors, files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.fields import MAX_SIZE
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE
from official_bert.options.serving import CLASS_TASKS, MODEL_CLASSES
from official_bert.tokenization import load_vocab, write_vocabulary
from official_bert.tokenizer_config import TokenizerConfig
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME

BEST_FOLDER = "best"  # the subfolder of an output_dir with the checkpoint that had the best metric
STATE_NAME = "checkpoint"  # TensorFlow's list of a folder's checkpoints
VOCAB_NAME = "vocab.txt"
CONFIG_NAME, HUGGINGFACE_CONFIG_NAME = "bert_config.json", "config.json"
LABELS_NAME = "labels.txt"
TASK_NAME = "task.json"
_RECORD_FIELDS = {"task_name": str, "family": str, "settings": dict}
# Label type -> its name in Hugging Face's config.json. A model without the field has one label a
# text.
PROBLEM_TYPES = {
    SINGLE: "single_label_classification",
    MULTI: "multi_label_classification",
    SCORE: "regression",
}
_LABEL_TYPES = {name: label_type for label_type, name in PROBLEM_TYPES.items()}
_NUM_LABELS = 2  # the number of labels for a config.json with neither id2label nor num_labels
_CLASSES_WITH_LABELS = (MODEL_CLASSES["classification"], MODEL_CLASSES["tagging"])
# Label type -> the activations of a cross-encoder of sentence-transformers that compute the scores
# and probabilities of this project.
_ACTIVATIONS = {
    SINGLE: ("Identity", "Softmax"),
    MULTI: ("Identity", "Sigmoid"),
    SCORE: ("Identity",),
}


def has_checkpoints(folder: str) -> bool:
    """Returns whether an output_dir, or its subfolder for the best one, lists checkpoints.

    Args:
        folder: the path of the output_dir.
    """
    state_files = (
        os.path.join(folder, STATE_NAME),
        os.path.join(folder, BEST_FOLDER, STATE_NAME),
    )
    return any(files.exists(path) for path in state_files)


def find_nested_encoder(folder: str) -> str | None:
    """Returns the subfolder of the encoder in an older folder of sentence-transformers.

    Args:
        folder: the folder of a model. For another kind of folder the result is None.
    """
    if not files.is_folder(folder):
        return None
    configs = files.matching(f"[0-9]_Transformer/{HUGGINGFACE_CONFIG_NAME}", folder)
    return os.path.dirname(configs[0]) if configs else None


class TaskRecord(NamedTuple):
    """The record of a model's training.

    Attributes:
        task_name: the name of the task.
        family: the family of the task.
        settings: the settings with which the model is used, by flag name: lengths, rules, the tuned
            threshold.
        labels: the result of `summarize_labels`; None without labels, or in files of earlier
            versions.
    """

    task_name: str
    family: str
    settings: dict[str, Any]
    labels: dict[str, Any] | None = None


class ModelFolder:
    """The files beside a checkpoint; each is None if there is none.

    Attributes:
        checkpoint: the path with which the object was made.
        path: the folder. The files of a best checkpoint may be one folder higher.
        vocab_file: vocab.txt, or else tokenizer.json.
        labels_file: labels.txt.
        task_file: task.json, if this project has written it.
        config_file: bert_config.json, or else the config.json of a model.
    """

    def __init__(self, checkpoint: str):
        """Finds the files beside a checkpoint.

        Args:
            checkpoint: the prefix or the file of the checkpoint, or its folder.
        """
        self.checkpoint = checkpoint
        self.path = checkpoint
        if not files.is_folder(checkpoint):
            self.path = os.path.dirname(checkpoint) or os.curdir
        parent, name = os.path.split(self.path.rstrip("/"))
        self._folders = [self.path]
        if name == BEST_FOLDER:
            self._folders.append(parent or os.curdir)
        self.vocab_file = self._find(VOCAB_NAME) or self._find(TOKENIZER_NAME)
        self.labels_file = self._find(LABELS_NAME)
        task_file = self._find(TASK_NAME)
        self.task_file = task_file if _is_record(task_file) else None
        config_files = map(self._find, (CONFIG_NAME, HUGGINGFACE_CONFIG_NAME))
        self.config_file = next(filter(_is_config, config_files), None)

    def _find(self, name: str) -> str | None:
        """Returns the path of a file; None if there is none."""
        for folder in self._folders:
            path = os.path.join(folder, name)
            if files.exists(path):
                return files.check_model_file(path)
        return None

    def tokenizer_config(self) -> TokenizerConfig | None:
        """Reads the settings of the tokenizer; returns None if there are none."""
        for folder in self._folders:
            settings = TokenizerConfig.read(folder)
            if settings is not None:
                return settings
        return None

    def task(self) -> TaskRecord | None:
        """Reads the record of the training.

        Returns:
            The content of task.json, or else a record by the class in config.json; None for a model
            without a task.

        Raises:
            InputError: a file is corrupt.
        """
        return (
            self._read_huggingface_record()
            if self.task_file is None
            else _read_record(self.task_file)
        )

    def labels(self) -> list[str] | None:
        """Reads the labels of labels.txt, or else of config.json.

        Without a task.json, another program may have written the labels.txt, so that names in
        config.json have precedence.

        Returns:
            The labels in the order of the outputs; None if there are none.

        Raises:
            InputError: a file is corrupt, or the model was trained with other labels.
        """
        labels = None if self.labels_file is None else read_labels(self.labels_file)
        if self.task_file is None:
            names = self.huggingface_labels()
            if labels and names and labels != names:
                errors.warn(
                    "Ignoring %s, because id2label in %s names other labels",
                    self.labels_file,
                    self.config_file,
                )
            return names or labels
        record = _read_record(self.task_file)
        if labels and record.labels not in (None, summarize_labels(labels)):
            raise InputError(
                f"{self.labels_file}: the model was trained with other labels or another order, as "
                f"{self.task_file} says; restore what the training wrote"
            )
        return labels

    @property
    def labels_source(self) -> str | None:
        """The file with the labels, for messages."""
        is_huggingface = self.task_file is None and self.huggingface_labels()
        return self.config_file if is_huggingface else self.labels_file

    def evaluations(self) -> list[str]:
        """Returns the files with the metrics of evaluations."""
        paths: list[str] = []
        for folder in self._folders:
            paths += files.matching("eval_results*.txt", folder)
        return paths

    def huggingface_class(self) -> str | None:
        """Returns the class in Hugging Face's config.json; None if its head is not supported."""
        architectures = self._read_huggingface_config().get("architectures")
        if not isinstance(architectures, list):
            return None
        return next((name for name in CLASS_TASKS if name in architectures), None)

    def huggingface_labels(self) -> list[str] | None:
        """Returns the labels in config.json; None if it has only LABEL_0, LABEL_1, ... or none.

        Raises:
            InputError: a label is missing, empty or repeated.
        """
        if not self._has_huggingface_labels():
            return None
        label_names = self._read_label_names()
        source = f"{self.config_file}: id2label"
        labels = [
            field(label_names, str(number), str, source) for number in range(len(label_names))
        ]
        if labels == make_default_labels(len(labels)):
            return None
        if fault := find_labels_fault(labels):
            raise InputError(f"{source}: {fault}; write a name for each output")
        return labels

    def check_activation(self) -> None:
        """Checks the activation of the outputs of a cross-encoder of sentence-transformers.

        Raises:
            InputError: it differs from the one of this project.
        """
        config = self._read_huggingface_config()
        settings = config.get("sentence_transformers")
        if isinstance(settings, dict):
            key = "activation_fn"
            value = settings.get(key)
        else:
            key = "sbert_ce_default_activation_function"
            value = config.get(key)
        name = str(value or "Identity").rpartition(".")[2]
        is_classifier = self.huggingface_class() == MODEL_CLASSES["classification"]
        if is_classifier and name not in _ACTIVATIONS[self._read_label_type()]:
            raise InputError(
                f"{self.config_file}: {key} is {name}, which is not applied to the outputs here; "
                "write torch.nn.modules.linear.Identity there to use the scores without it, whose "
                "order is the same"
            )

    def output_names(self) -> list[str] | None:
        """Returns the labels, or transformers' LABEL_0, LABEL_1, ... for outputs without labels."""
        if labels := self.labels():
            return labels
        if self._has_huggingface_labels():
            return make_default_labels(len(self._read_label_names()))
        return None

    def _has_huggingface_labels(self) -> bool:
        has_label_class = self.huggingface_class() in _CLASSES_WITH_LABELS
        return has_label_class and self._read_label_type() != SCORE

    def _read_huggingface_record(self) -> TaskRecord | None:
        name = self.huggingface_class()
        return None if name is None else make_class_record(name, self._read_label_type())

    def huggingface_fields(self, *names: str) -> dict[str, Any]:
        """Returns the fields with some names that Hugging Face's config.json has.

        Args:
            *names: the names.
        """
        return {
            name: value for name, value in self._read_huggingface_config().items() if name in names
        }

    def _read_huggingface_config(self) -> dict[str, Any]:
        """Returns the content of Hugging Face's config.json, that of another model as a BERT's;
        nothing for a bert_config.json.
        """
        if self.config_file is None:
            return {}
        is_huggingface = os.path.basename(self.config_file) == HUGGINGFACE_CONFIG_NAME
        if not is_huggingface:
            return {}
        return model_types.to_bert_fields(reading.read_json(self.config_file))

    def _read_label_names(self) -> dict[str, Any]:
        """Returns the field id2label of Hugging Face's config.json, or else its default."""
        config = self._read_huggingface_config()
        names = config.get("id2label")
        if names is None:
            number = config.get("num_labels", _NUM_LABELS)
            if not reading.has_type(number, int) or not 1 <= number <= MAX_SIZE:
                number = _NUM_LABELS
            names = dict(enumerate(make_default_labels(number)))
        elif not isinstance(names, dict):
            raise InputError(
                f"{self.config_file}: id2label is {names!r:.60}; write a name for each output, by "
                "its number"
            )
        return {str(number): name for number, name in names.items()}

    def _read_label_type(self) -> str:
        name = self._read_huggingface_config().get("problem_type")
        if name is not None and name not in _LABEL_TYPES:
            raise InputError(
                f"{self.config_file}: problem_type is {name!r:.60}; write one of "
                f"{', '.join(_LABEL_TYPES)}, or null"
            )
        if len(self._read_label_names()) == 1:
            return SCORE
        return SINGLE if name is None else _LABEL_TYPES[name]


def _read_record(task_file: str) -> TaskRecord:
    content = reading.read_json(task_file)
    fields = {name: field(content, name, kind, task_file) for name, kind in _RECORD_FIELDS.items()}
    return TaskRecord(**fields, labels=content.get("labels"))


def make_class_record(name: str, label_type: str | None) -> TaskRecord:
    """Makes the record of a model that none of our scripts trained.

    Args:
        name: the class of transformers.
        label_type: the label type of a classifier; None for other models.
    """
    task_name, family = CLASS_TASKS[name]
    settings: dict[str, Any] = {}
    if family == "classification" and label_type:
        settings["label_type"] = label_type
    return TaskRecord(task_name, family, settings)


def make_no_model_error(path: str) -> InputError:
    """Returns the error of a path that is neither a trained model nor an export.

    Args:
        path: the path.
    """
    return InputError(
        f"{path}: holds no model; name an --export_dir, a version in it, or the --output_dir of a "
        "training"
    )


def make_no_checkpoint_error(path: str) -> InputError:
    """Returns the error of a path without a checkpoint.

    Args:
        path: the path.
    """
    return InputError(
        f"{path}: no checkpoint there; give a TF1 prefix (bert_model.ckpt, without .index), a "
        "folder that holds one, or a Hugging Face folder with model.safetensors"
    )


def make_default_labels(number: int) -> list[str]:
    """Returns transformers' names for outputs without a label: LABEL_0, LABEL_1, ...

    Args:
        number: the number of outputs.
    """
    return [f"LABEL_{number}" for number in range(number)]


def find_labels_fault(labels: Sequence[str]) -> str | None:
    """Returns why labels cannot be the lines of labels.txt; None if they can.

    Args:
        labels: the labels.
    """
    if "" in labels:
        return "a label is empty"
    if any("\r" in label or "\n" in label for label in labels):
        return "a label has a line end"
    repeated = [label for label in labels if labels.count(label) > 1]
    return f"the label {repeated[0]} is there twice" if repeated else None


def read_labels(path: str) -> list[str]:
    """Reads the labels of a model's folder or of an export.

    Args:
        path: the path of labels.txt.

    Raises:
        InputError: there is no label, or one is empty or repeated.
    """
    labels = list(reading.read_lines(path))
    if not labels or "" in labels or len(set(labels)) < len(labels):
        raise InputError(
            f"{path}: must name each label once, on a line of its own; restore what the training "
            "wrote"
        )
    return labels


def summarize_labels(labels: Sequence | None) -> dict[str, Any] | None:
    """Returns the fields of a record about the labels: their number, and a digest of labels.txt.

    Args:
        labels: the labels. Without labels the result is None.
    """
    if not labels:
        return None
    digest = hashlib.sha256(join_lines(labels)).hexdigest()
    return {"number": len(labels), "sha256": digest}


def join_lines(lines: Iterable) -> bytes:
    """Returns the content of a file such as labels.txt.

    Args:
        lines: the lines without their ends.
    """
    return "".join(f"{line}\n" for line in lines).encode()


def write(
    folder: str,
    config: BertConfig,
    vocab_file: str | None,
    tokenizer_config: TokenizerConfig | None,
    record: TaskRecord | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Writes the files of a model, except its weights, into its folder, which is created.

    Args:
        folder: the folder.
        config: the configuration.
        vocab_file: the vocabulary, which is copied; None for none.
        tokenizer_config: the settings of the tokenizer; None for none.
        record: the record of the training; None for none.
        labels: the labels in the order of the outputs; None for none.
    """
    files.make_folder(folder)
    write_text(folder, CONFIG_NAME, config.to_json_string())
    write_companion_files(folder, vocab_file, tokenizer_config, record, labels)


def write_companion_files(
    folder: str,
    vocab_file: str | None,
    tokenizer_config: TokenizerConfig | None,
    record: TaskRecord | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Writes the files of a model except its weights and its configuration.

    If the folder has Hugging Face's config.json, a tokenizer.json is written, too.

    Args:
        folder: the folder.
        vocab_file: the vocabulary, which is copied; None for none. In the copy, markers that
            PyLate added to the tokenizer are lines, too.
        tokenizer_config: the settings of the tokenizer; None for none.
        record: the record of the training; None for none.
        labels: the labels in the order of the outputs; None for none.
    """
    target = os.path.join(folder, VOCAB_NAME)
    source_folder, name = os.path.split(vocab_file or "")
    if vocab_file and (name == TOKENIZER_NAME or read_markers(source_folder)):
        write_vocabulary(load_vocab(vocab_file), target)
    elif vocab_file and not writing.is_same_file(vocab_file, target):
        with files.open_file(vocab_file, "rb") as source, writing.replacing(target, "wb") as copy:
            copy.write(source.read())
    if tokenizer_config:
        write_text(folder, TOKENIZER_CONFIG_NAME, tokenizer_config.to_json_string())
        if files.exists(os.path.join(folder, HUGGINGFACE_CONFIG_NAME)) and files.exists(target):
            content = tokenizer_config.to_tokenizer_json(load_vocab(target))
            if content is not None:
                write_text(folder, TOKENIZER_NAME, content)
    if labels is not None:
        write_text(folder, LABELS_NAME, join_lines(labels).decode())
    if record is not None:
        write_record(folder, record._replace(labels=summarize_labels(labels)))


def write_record(folder: str, record: TaskRecord) -> None:
    """Writes task.json.

    Args:
        folder: the folder of the model.
        record: its content.
    """
    write_text(folder, TASK_NAME, json.dumps(record._asdict(), indent=2) + "\n")


def write_text(folder: str, name: str, content: str) -> None:
    """Writes a text file of a model.

    Args:
        folder: the folder of the model.
        name: the name of the file.
        content: the text.
    """
    with writing.replacing(os.path.join(folder, name)) as file:
        file.write(content)


def _is_record(path: str | None) -> bool:
    """Returns whether a task.json is of this project, and not of another program."""
    if path is None:
        return False
    content = reading.read_json(path)
    return isinstance(content, dict) and not _RECORD_FIELDS.keys().isdisjoint(content)


def _is_config(path: str | None) -> bool:
    """Returns whether a file is the configuration of a model, and not of another program."""
    if path is None:
        return False
    if os.path.basename(path) == CONFIG_NAME:
        return True
    content = model_types.to_bert_fields(reading.read_json(path))
    return isinstance(content, dict) and "num_attention_heads" in content
