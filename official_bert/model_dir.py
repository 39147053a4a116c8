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
from official_bert.io import files, reading, writing
from official_bert.io.errors import InputError
from official_bert.io.reading import field
from official_bert.options.fine_tuning import MULTI, SCORE, SINGLE
from official_bert.options.serving import TASKS_OF_CLASSES
from official_bert.tokenization import load_vocab, write_vocabulary
from official_bert.tokenizer_config import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME, TokenizerConfig

BEST_FOLDER = "best"  # the subfolder of an output_dir with the checkpoint that had the best metric
STATE_NAME = "checkpoint"  # TensorFlow's list of a folder's checkpoints
VOCAB_NAME = "vocab.txt"
CONFIG_NAME, HUGGINGFACE_CONFIG_NAME = "bert_config.json", "config.json"
LABELS_NAME = "labels.txt"
TASK_NAME = "task.json"
ADAPTERS_NAME = "adapters.safetensors"  # what a training with LoRA changes, and nothing else


def holds_checkpoints(folder: str) -> bool:
    """Tells whether a run has listed checkpoints in its output_dir, or its best one there."""
    return any(files.exists(os.path.join(folder, *below, STATE_NAME)) for below in ((), (BEST_FOLDER,)))


class TaskRecord(NamedTuple):
    """What a model was trained on.

    `settings` are, by flag name, what decides how the model is used: lengths, rules, the tuned threshold. `labels` is
    what `record_of_labels` says; None in files of earlier versions.
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
        self.path = checkpoint if files.is_folder(checkpoint) else os.path.dirname(checkpoint) or os.curdir
        above, name = os.path.split(self.path.rstrip("/"))
        self._folders = [self.path, above or os.curdir] if name == BEST_FOLDER else [self.path]
        self.vocab_file = self._find(VOCAB_NAME) or self._find(TOKENIZER_NAME)
        self.labels_file = self._find(LABELS_NAME)
        self.task_file = self._find(TASK_NAME)
        self.config_file = next(filter(_is_config, map(self._find, (CONFIG_NAME, HUGGINGFACE_CONFIG_NAME))), None)

    def _find(self, name: str) -> str | None:
        paths = (os.path.join(folder, name) for folder in self._folders)
        found = next(filter(files.exists, paths), None)
        return found and files.check_model_file(found)

    def tokenizer_config(self) -> TokenizerConfig | None:
        """Reads how text is tokenized."""
        found = self._find(TOKENIZER_CONFIG_NAME)
        return TokenizerConfig.read(os.path.dirname(found)) if found else None

    def task(self) -> TaskRecord | None:
        """Reads what the model was trained on."""
        if self.task_file is None:
            return None
        content = reading.read_json(self.task_file)
        kinds = {"task_name": str, "family": str, "settings": dict}
        known = {name: field(content, name, kinds[name], self.task_file) for name in kinds}
        return TaskRecord(**known, labels=content.get("labels"))

    def labels(self) -> list[str] | None:
        """Reads the labels, which must be those of the training."""
        labels, record = None if self.labels_file is None else read_labels(self.labels_file), self.task()
        if labels and record and record.labels not in (None, record_of_labels(labels)):
            raise InputError(
                f"{self.labels_file}: the model was trained with other labels or another order, as {self.task_file} "
                "says; restore what the training wrote"
            )
        return labels

    def evaluations(self) -> list[str]:
        """Returns the files with the metrics of evaluations."""
        return [path for folder in self._folders for path in files.matching("eval_results*.txt", folder)]

    def huggingface_task(self) -> tuple[TaskRecord | None, list[str] | None]:
        """Returns the task and the labels that a config.json of Hugging Face tells, None for those that it does not."""
        if os.path.basename(self.config_file or "") != HUGGINGFACE_CONFIG_NAME:
            return None, None
        content = reading.read_json(self.config_file)
        architectures = content.get("architectures")
        known = [name for name in TASKS_OF_CLASSES if isinstance(architectures, list) and name in architectures]
        if not known:
            return None, None
        ids = reading.as_object(content.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"}), self.config_file)
        kinds = {"multi_label_classification": MULTI, "regression": SCORE}
        kind = SCORE if len(ids) == 1 else kinds.get(str(content.get("problem_type")), SINGLE)
        task_name, family = TASKS_OF_CLASSES[known[0]]
        record = TaskRecord(task_name, family, {"label_type": kind} if family == "classification" else {})
        labels = [field(ids, str(number), str, f"{self.config_file}: id2label") for number in range(len(ids))]
        return record, None if kind == SCORE else labels


def read_labels(path: str) -> list[str]:
    """Reads the labels of a model's folder or of an export."""
    labels = list(reading.read_lines(path))
    if not labels or "" in labels or len(set(labels)) < len(labels):
        raise InputError(f"{path}: must name each label once, on a line of its own; restore what the training wrote")
    return labels


def record_of_labels(labels: Sequence | None) -> dict[str, Any] | None:
    """Returns what a record says of the labels of a model."""
    return {"number": len(labels), "sha256": hashlib.sha256(lines_of(labels)).hexdigest()} if labels else None


def lines_of(labels: Iterable) -> bytes:
    """Returns the content of labels.txt."""
    return "".join(f"{label}\n" for label in labels).encode()


def write(folder: str, config: BertConfig, *beside):
    """Writes the files of a model into its folder, which is created; `beside` are the arguments of `write_beside`."""
    files.make_folder(folder)
    _write_text(folder, CONFIG_NAME, config.to_json_string())
    write_beside(folder, *beside)


def write_beside(
    folder: str,
    vocab_file: str | None,
    tokenizer_config: TokenizerConfig | None,
    record: TaskRecord | None = None,
    labels: Sequence[str] | None = None,
):
    """Writes the files of a model except its configuration; absent ones are left out.

    Where the folder has a config.json, and with it Hugging Face's form, a tokenizer.json is written, too.
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
        _write_text(folder, LABELS_NAME, lines_of(labels).decode())
    if record is not None:
        write_record(folder, record._replace(labels=record_of_labels(labels)))


def write_record(folder: str, record: TaskRecord):
    """Writes task.json."""
    _write_text(folder, TASK_NAME, json.dumps(record._asdict(), indent=2) + "\n")


def _write_text(folder: str, name: str, content: str):
    with writing.replacing(os.path.join(folder, name)) as file:
        file.write(content)


def _is_config(path: str | None) -> bool:
    """Tells whether a file is the configuration of a model; another program's config.json says nothing about it."""
    if path is None:
        return False
    if os.path.basename(path) == CONFIG_NAME:
        return True
    content = reading.read_json(path)
    return isinstance(content, dict) and "num_attention_heads" in content
