"""The folder of a model, which holds beside its weights all that is needed to use it.

    vocab.txt, tokenizer_config.json    how text becomes ids; tokenizer.json tells the library tokenizers both
    bert_config.json or config.json     the configuration
    labels.txt                          the labels of a task, in the order of the outputs
    task.json                           what the model was trained on: the task, its lengths and rules

In: a folder, or the checkpoint in it. Out: a ModelFolder. `write` writes these files.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from official_bert.config import BertConfig
from official_bert.io import errors, files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.fields import MAX_SIZE
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE
from official_bert.options.serving import MODEL_CLASSES, TASKS_OF_CLASSES
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
# What config.json of Hugging Face calls the label types; a folder without the field has one label a
# text.
PROBLEM_TYPES = {
    SINGLE: "single_label_classification",
    MULTI: "multi_label_classification",
    SCORE: "regression",
}
_LABEL_TYPES = {name: label_type for label_type, name in PROBLEM_TYPES.items()}
_NUM_LABELS = 2  # of a config.json with neither id2label nor num_labels
_CLASSES_WITH_LABELS = (MODEL_CLASSES["classification"], MODEL_CLASSES["tagging"])
# The activation of a cross-encoder of sentence-transformers that gives the scores and probabilities
# of this project.
_ACTIVATIONS = {
    SINGLE: ("Identity", "Softmax"),
    MULTI: ("Identity", "Sigmoid"),
    SCORE: ("Identity",),
}


def has_checkpoints(folder: str) -> bool:
    """Tells whether a run has listed checkpoints in its output_dir, or its best one there."""
    return any(
        files.exists(os.path.join(folder, *below, STATE_NAME)) for below in ((), (BEST_FOLDER,))
    )


def find_nested_encoder(folder: str) -> str | None:
    """Returns the subfolder of the encoder in an older folder of sentence-transformers; None in
    other folders.
    """
    configs = (
        files.matching(f"[0-9]_Transformer/{HUGGINGFACE_CONFIG_NAME}", folder)
        if files.is_folder(folder)
        else []
    )
    return os.path.dirname(configs[0]) if configs else None


class TaskRecord(NamedTuple):
    """What a model was trained on.

    `settings` are, by flag name, what decides how the model is used: lengths, rules, the tuned
    threshold. `labels` is what `summarize_labels` says; None in files of earlier versions.
    """

    task_name: str
    family: str
    settings: dict[str, Any]
    labels: dict[str, Any] | None = None


class ModelFolder:
    """The files beside a checkpoint; each is None if there is none.

    `path` is the folder; those of a best checkpoint may lie one folder higher.
    """

    def __init__(self, checkpoint: str):
        """Finds the files beside the prefix or file of a checkpoint, or in its folder."""
        self.checkpoint = checkpoint
        self.path = (
            checkpoint if files.is_folder(checkpoint) else os.path.dirname(checkpoint) or os.curdir
        )
        above, name = os.path.split(self.path.rstrip("/"))
        self._folders = [self.path, above or os.curdir] if name == BEST_FOLDER else [self.path]
        self.vocab_file = self._find(VOCAB_NAME) or self._find(TOKENIZER_NAME)
        self.labels_file = self._find(LABELS_NAME)
        task_file = self._find(TASK_NAME)
        self.task_file = task_file if _is_record(task_file) else None
        self.config_file = next(
            filter(_is_config, map(self._find, (CONFIG_NAME, HUGGINGFACE_CONFIG_NAME))), None
        )

    def _find(self, name: str) -> str | None:
        paths = (os.path.join(folder, name) for folder in self._folders)
        found = next(filter(files.exists, paths), None)
        return found and files.check_model_file(found)

    def tokenizer_config(self) -> TokenizerConfig | None:
        """Reads how text is tokenized."""
        settings = map(TokenizerConfig.read, self._folders)
        return next((each for each in settings if each is not None), None)

    def task(self) -> TaskRecord | None:
        """Reads what the model was trained on, which task.json says, or else the class that
        config.json names.
        """
        if self.task_file is None:
            return self._huggingface_record()
        content = reading.read_json(self.task_file)
        known = {
            name: field(content, name, kind, self.task_file)
            for name, kind in _RECORD_FIELDS.items()
        }
        return TaskRecord(**known, labels=content.get("labels"))

    def labels(self) -> list[str] | None:
        """Reads the labels: those of labels.txt, which must be those of the training, or else of
        config.json.

        Without a task.json, names in config.json go before a labels.txt, which another program may
        have written.
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
        record = self.task()
        if labels and record.labels not in (None, summarize_labels(labels)):
            raise InputError(
                f"{self.labels_file}: the model was trained with other labels or another order, as "
                f"{self.task_file} says; restore what the training wrote"
            )
        return labels

    @property
    def labels_source(self) -> str | None:
        """The file that `labels` reads, for messages."""
        is_foreign = self.task_file is None and self.huggingface_labels()
        return self.config_file if is_foreign else self.labels_file

    def evaluations(self) -> list[str]:
        """Returns the files with the metrics of evaluations."""
        return [
            path for folder in self._folders for path in files.matching("eval_results*.txt", folder)
        ]

    def huggingface_class(self) -> str | None:
        """Returns the class that a config.json of Hugging Face names, if it is one with a known
        head.
        """
        architectures = self._huggingface_config().get("architectures")
        listed = architectures if isinstance(architectures, list) else []
        return next((name for name in TASKS_OF_CLASSES if name in listed), None)

    def huggingface_labels(self) -> list[str] | None:
        """Returns the labels in config.json; None for a model without them, or with LABEL_0,
        LABEL_1, ... only.
        """
        if self.huggingface_class() not in _CLASSES_WITH_LABELS or self._label_type() == SCORE:
            return None
        ids, source = self._label_names(), f"{self.config_file}: id2label"
        labels = [field(ids, str(number), str, source) for number in range(len(ids))]
        if labels == make_default_labels(len(labels)):
            return None
        if fault := find_labels_fault(labels):
            raise InputError(f"{source}: {fault}; write a name for each output")
        return labels

    def check_activation(self):
        """Refuses a cross-encoder of sentence-transformers whose outputs have another activation
        than here.
        """
        config = self._huggingface_config()
        settings = config.get("sentence_transformers")
        key = (
            "activation_fn"
            if isinstance(settings, dict)
            else "sbert_ce_default_activation_function"
        )
        value = settings.get(key) if isinstance(settings, dict) else config.get(key)
        name = str(value or "Identity").rpartition(".")[2]
        if (
            self.huggingface_class() == MODEL_CLASSES["classification"]
            and name not in _ACTIVATIONS[self._label_type()]
        ):
            raise InputError(
                f"{self.config_file}: {key} is {name}, which is not applied to the outputs here; "
                "write torch.nn.modules.linear.Identity there to use the scores without it, whose "
                "order is the same"
            )

    def output_names(self) -> list[str] | None:
        """Returns the labels or, where config.json leaves them open, LABEL_0, LABEL_1, ... of
        transformers.
        """
        has_names = self.huggingface_class() in _CLASSES_WITH_LABELS and self._label_type() != SCORE
        return self.labels() or (
            make_default_labels(len(self._label_names())) if has_names else None
        )

    def _huggingface_record(self) -> TaskRecord | None:
        if (name := self.huggingface_class()) is None:
            return None
        return make_class_record(name, self._label_type())

    def huggingface_fields(self, *names: str) -> dict[str, Any]:
        """Returns the fields with these names that a config.json of Hugging Face has."""
        return {name: value for name, value in self._huggingface_config().items() if name in names}

    def _huggingface_config(self) -> dict[str, Any]:
        """Returns the content of the config.json of Hugging Face; it is empty for a model with
        bert_config.json.
        """
        is_theirs = os.path.basename(self.config_file or "") == HUGGINGFACE_CONFIG_NAME
        return reading.read_json(self.config_file) if is_theirs else {}

    def _label_names(self) -> dict[str, Any]:
        config = self._huggingface_config()
        names = config.get("id2label")
        if names is None:
            number = config.get("num_labels")
            is_number = reading.is_of_kind(number, int) and 1 <= number <= MAX_SIZE
            names = dict(enumerate(make_default_labels(number if is_number else _NUM_LABELS)))
        elif not isinstance(names, dict):
            raise InputError(
                f"{self.config_file}: id2label is {names!r:.60}; write a name for each output, by "
                "its number"
            )
        return {str(number): name for number, name in names.items()}

    def _label_type(self) -> str:
        name = self._huggingface_config().get("problem_type")
        if name is not None and name not in _LABEL_TYPES:
            known = ", ".join(_LABEL_TYPES)
            raise InputError(
                f"{self.config_file}: problem_type is {name!r:.60}; write one of {known}, or null"
            )
        return SCORE if len(self._label_names()) == 1 else _LABEL_TYPES.get(name, SINGLE)


def make_class_record(name: str, label_type: str | None) -> TaskRecord:
    """Returns the record of a model of a class of transformers that none of our scripts trained.

    A tagger is one of running text, and not of the words of a file.
    """
    task_name, family = TASKS_OF_CLASSES[name]
    settings = {"label_type": label_type} if family == "classification" and label_type else {}
    if family == "tagging":
        settings["split_punctuation"] = True
    return TaskRecord(task_name, family, settings)


def make_default_labels(number: int) -> list[str]:
    """Returns what transformers calls the outputs of a model whose labels nobody has named."""
    return [f"LABEL_{number}" for number in range(number)]


def find_labels_fault(labels: Sequence[str]) -> str | None:
    """Describes why labels cannot be the lines of labels.txt; None if they can."""
    if "" in labels:
        return "a label is empty"
    if any(set("\r\n") & set(label) for label in labels):
        return "a label has a line end"
    twice = [label for label in labels if labels.count(label) > 1]
    return f"the label {twice[0]} is there twice" if twice else None


def read_labels(path: str) -> list[str]:
    """Reads the labels of a model's folder or of an export."""
    labels = list(reading.read_lines(path))
    if not labels or "" in labels or len(set(labels)) < len(labels):
        raise InputError(
            f"{path}: must name each label once, on a line of its own; restore what the training "
            "wrote"
        )
    return labels


def summarize_labels(labels: Sequence | None) -> dict[str, Any] | None:
    """Returns what a record says of the labels of a model."""
    return (
        {"number": len(labels), "sha256": hashlib.sha256(join_lines(labels)).hexdigest()}
        if labels
        else None
    )


def join_lines(labels: Iterable) -> bytes:
    """Returns the content of labels.txt."""
    return "".join(f"{label}\n" for label in labels).encode()


def write(folder: str, config: BertConfig, *beside):
    """Writes the files of a model into its folder, which is created; `beside` are the arguments
    of `write_companion_files`.
    """
    files.make_folder(folder)
    _write_text(folder, CONFIG_NAME, config.to_json_string())
    write_companion_files(folder, *beside)


def write_companion_files(
    folder: str,
    vocab_file: str | None,
    tokenizer_config: TokenizerConfig | None,
    record: TaskRecord | None = None,
    labels: Sequence[str] | None = None,
):
    """Writes the files of a model except its configuration; absent ones are left out.

    Where the folder has a config.json, and with it Hugging Face's form, a tokenizer.json is
    written, too.
    """
    target = os.path.join(folder, VOCAB_NAME)
    if vocab_file and os.path.basename(vocab_file) == TOKENIZER_NAME:
        write_vocabulary(load_vocab(vocab_file), target)
    elif vocab_file and not writing.is_same_file(vocab_file, target):
        with files.open_file(vocab_file, "rb") as source, writing.replacing(target, "wb") as copy:
            copy.write(source.read())
    if tokenizer_config:
        _write_text(folder, TOKENIZER_CONFIG_NAME, tokenizer_config.to_json_string())
        if files.exists(os.path.join(folder, HUGGINGFACE_CONFIG_NAME)) and files.exists(target):
            content = tokenizer_config.to_tokenizer_json(load_vocab(target))
            if content is not None:
                _write_text(folder, TOKENIZER_NAME, content)
    if labels is not None:
        _write_text(folder, LABELS_NAME, join_lines(labels).decode())
    if record is not None:
        write_record(folder, record._replace(labels=summarize_labels(labels)))


def write_record(folder: str, record: TaskRecord):
    """Writes task.json."""
    _write_text(folder, TASK_NAME, json.dumps(record._asdict(), indent=2) + "\n")


def _write_text(folder: str, name: str, content: str):
    with writing.replacing(os.path.join(folder, name)) as file:
        file.write(content)


def _is_record(path: str | None) -> bool:
    """Returns whether a task.json is one of this project; that of another program says nothing
    about the model.
    """
    if path is None:
        return False
    content = reading.read_json(path)
    return isinstance(content, dict) and not _RECORD_FIELDS.keys().isdisjoint(content)


def _is_config(path: str | None) -> bool:
    """Tells whether a file is the configuration of a model; another program's config.json says
    nothing about it.
    """
    if path is None:
        return False
    if os.path.basename(path) == CONFIG_NAME:
        return True
    content = reading.read_json(path)
    return isinstance(content, dict) and "num_attention_heads" in content
