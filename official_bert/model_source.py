"""Finds the model that a run starts from: `resolve(options)` returns a `ModelSource`.

In: options with the flags of a model. Out: the options without an open value, and the files that
they name. A flag that contradicts the folder of the model is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from official_bert import model_hub
from official_bert.config import BertConfig, read_config
from official_bert.data.model_inputs import check_vocabulary
from official_bert.data.records.record_files import (
    SHARD_NAME,
    check_records_vocabulary,
    manifest_beside,
)
from official_bert.io import errors, files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import has_type
from official_bert.model_dir import (
    ModelFolder,
    TaskRecord,
    find_nested_encoder,
    has_checkpoints,
    make_default_labels,
)
from official_bert.options.fields import find_fault, flag_without_effect, format_flag, value_type
from official_bert.options.serving import FAMILIES, MODEL_CLASSES
from official_bert.tokenization import FullTokenizer, vocabulary_lines
from official_bert.tokenizer_config import TokenizerConfig, unknown_casing
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME

if TYPE_CHECKING:
    from official_bert.checkpoints.loading import Checkpoint

# Fields of a configuration that no shape of a weight depends on.
_FIELDS_WITHOUT_SHAPE = ("num_attention_heads", "hidden_act", "direction", "pooler_activation")
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_UNUSED_PIECE = "[unused"


def resolve(options: Any, family: str | None = None) -> ModelSource:
    """Finds the model of a run, and fills the open values of its options.

    Args:
        options: the options of a script, as its flags give them.
        family: the family of the run's task; None for a run without a task.

    Returns:
        The model, whose `options` have no open value.

    Raises:
        InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
    """
    source = ModelSource(options)
    source.complete(family)
    return source


class ModelSource:
    """The model that a run starts from. Each of its files is read once, when it is first needed.

    A run takes its model from --output_dir if that has a checkpoint, else from --init_checkpoint or
    --model.

    Attributes:
        options: the options of the script; no value is open after `complete`.
        resumes: whether --output_dir has checkpoints.
        path: the checkpoint, or a folder with files for it; None if no flag names one.
        dir: the folder of the checkpoint; None if no flag names one.
        model: the value of --model, which `options` no longer has after `complete`.
    """

    def __init__(self, options: Any):
        """Finds the folder of the model; a model that is named is downloaded.

        Args:
            options: the options of a script, as its flags give them.
        """
        output_dir = getattr(options, "output_dir", None)
        local_paths = {}
        for name in ("model", "init_checkpoint"):
            if value := getattr(options, name, None):
                local_paths[name] = model_hub.local_path(value)
        options = dataclasses.replace(options, **local_paths)
        self.options = options
        self.model: str | None = options.model
        self.resumes = bool(output_dir) and has_checkpoints(output_dir)
        model_path = getattr(options, "init_checkpoint", None) or options.model
        self.path: str | None = output_dir if self.resumes else model_path
        self.dir = ModelFolder(self.path) if self.path else None

    @property
    def folder(self) -> ModelFolder:
        """The folder of the checkpoint, for code that runs only where a flag names one."""
        assert self.dir is not None, "a flag names the model"
        return self.dir

    @property
    def vocab_file(self) -> str:
        """The path of the vocabulary, for code behind `complete` in scripts that require one."""
        assert self.options.vocab_file is not None, "complete has found the file"
        return self.options.vocab_file

    @property
    def max_seq_length(self) -> int:
        """The number of tokens of an example, for code behind `complete` if there is the flag."""
        assert self.options.max_seq_length is not None, "complete has resolved the flag"
        return self.options.max_seq_length

    @functools.cached_property
    def config(self) -> BertConfig:
        """The configuration of the encoder, which --max_seq_length must not exceed."""
        return read_config(self.options.bert_config_file, self.options.max_seq_length)

    @functools.cached_property
    def tokenizer(self) -> FullTokenizer:
        """The tokenizer, whose vocabulary must fit the configuration."""
        options = self.options
        tokenizer = FullTokenizer(
            options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents
        )
        check_vocabulary(tokenizer, self.config.vocab_size, options.vocab_file)
        return tokenizer

    @functools.cached_property
    def checkpoint(self) -> Checkpoint:
        """The opened checkpoint.

        Raises:
            InputError: no flag names one, or it cannot be read.
        """
        # The import loads TensorFlow, which a script that makes records does not need.
        from official_bert.checkpoints import open_checkpoint

        if not self.path:
            raise InputError("--model: must be given, or --init_checkpoint with the checkpoint")
        return open_checkpoint(self.path)

    @functools.cached_property
    def task(self) -> TaskRecord | None:
        """The record of the model's training, if its folder has one."""
        return self.dir.task() if self.dir else None

    @functools.cached_property
    def labels(self) -> list[str] | None:
        """The labels beside the checkpoint or in its config.json, in the order of the outputs."""
        return self.dir.labels() if self.dir else None

    @functools.cached_property
    def tokenizer_config(self) -> TokenizerConfig:
        """The settings of the run's tokenizer, for the folder of its model."""
        options = self.options
        return TokenizerConfig(
            options.do_lower_case, options.strip_accents, self.config.max_position_embeddings
        )

    def complete(self, family: str | None, **overrides: Any) -> None:
        """Fills the open values of the options from the folder, or else with their fallbacks.

        The folder has the vocabulary, the configuration, and the settings of the tokenizer. A run
        that uses a model of its own task without training it also takes the settings of its
        training. Options without open values stay as they are.

        Args:
            family: the family of the run's task; None for a run without a task.
            **overrides: values of options from elsewhere, by name.

        Raises:
            InputError: a file is missing or corrupt, or a flag contradicts the folder of the model.
        """
        typed_options = self.options
        options = dataclasses.replace(typed_options, **overrides)
        self._check_model(options)
        values = self._find_files(options)
        vocab_file = values.get("vocab_file")
        if self.dir and vocab_file:
            check_same_pieces(vocab_file, self.dir)
        resolver = _Resolver(self.dir, vocab_file, self._read_task_settings(family))
        for field in dataclasses.fields(options):
            fallback = field.metadata["fallback"]
            if fallback is not dataclasses.MISSING:
                value = getattr(options, field.name)
                values[field.name] = resolver.resolve(field, value, fallback)
        self.options = dataclasses.replace(options, **values)
        if sentence := flag_without_effect(typed_options, self.options):
            raise InputError(sentence)

    def _check_model(self, options: Any):
        """Refuses a --model that does not exist, or that --init_checkpoint contradicts."""
        model = options.model
        if model and not model_hub.has_files(model):
            raise InputError(f"--model={model}: no such folder; check the path")
        checkpoint = getattr(options, "init_checkpoint", None)
        if model and checkpoint:
            raise InputError(
                f"--init_checkpoint={checkpoint}: --model={model} names a checkpoint, too; give "
                "one of the two"
            )

    def _find_files(self, options: Any) -> dict[str, Any]:
        """Returns the values of the options that name the model and its files."""
        names = {field.name for field in dataclasses.fields(options)}
        values: dict[str, Any] = {"model": None}
        if "init_checkpoint" in names:
            values["init_checkpoint"] = options.init_checkpoint or options.model
        for flag, attribute in (("vocab_file", "vocab_file"), ("bert_config_file", "config_file")):
            if flag in names:
                values[flag] = getattr(options, flag) or getattr(self.dir, attribute, None)
                if not values[flag] and flag not in options.optional_files:
                    raise self._make_missing_error(flag)
        if "vocab_file" in options.optional_files and not values["vocab_file"]:
            values["vocab_file"] = ModelFolder(values["bert_config_file"]).vocab_file
        return values

    def _make_missing_error(self, flag: str) -> InputError:
        """Returns the error of a file that neither a flag nor the folder of the model names."""
        if self.path and (encoder := find_nested_encoder(self.path)):
            return InputError(
                f"--{flag}: must be given, since the file of {self.path} is in {encoder}; or make "
                f"one folder of both with official-bert convert_checkpoint --model={self.path} "
                "--output_format=huggingface, and give that"
            )
        if self.path:
            return InputError(
                f"--{flag}: must be given, since {self.path} has no such file; if it is not the "
                "folder that you mean, correct its path"
            )
        output_dir = getattr(self.options, "output_dir", None)
        is_lost = output_dir and not self.options.do_train
        there = f"; --output_dir={output_dir} holds no trained model" if is_lost else ""
        return InputError(
            f"--{flag}: must be given, or --model with the folder of a model that has the "
            f"file{there}"
        )

    def _read_task_settings(self, family: str | None) -> dict[str, Any]:
        """Returns the recorded settings; none if the run trains, or its task has another family."""
        record = self.task
        if self.dir is None or record is None or getattr(self.options, "do_train", False):
            return {}
        is_recorded = self.dir.task_file is not None
        has_other_head = family in MODEL_CLASSES and record.family in MODEL_CLASSES.keys() - {
            family
        }
        if not is_recorded and has_other_head:
            raise InputError(
                f"{self.dir.config_file}: is of a {MODEL_CLASSES[record.family]}, whose head is "
                f"not one for this task; give --task_name={record.task_name}, or the checkpoint "
                "of another model"
            )
        if record.family != family:
            return {}
        if is_recorded:
            return record.settings
        self.dir.check_activation()
        # A class of transformers determines the form of the labels. A task with a layout of its own
        # determines them itself.
        is_general = getattr(self.options, "task_name", None) in (None, *FAMILIES)
        return record.settings if is_general else {}

    def check_task(self, task_name: str, is_same: Callable[[str, str], bool]) -> None:
        """Checks that a run uses the model of a folder on the task that it was trained on.

        An evaluation on another task only causes a warning.

        Args:
            task_name: the task of the run.
            is_same: returns whether two names are of the same task.

        Raises:
            InputError: the run would continue a training with another task.
        """
        is_training = self.options.do_train
        record = self.task if self.resumes or not is_training else None
        task_file = self.dir.task_file if self.dir else None
        if record is None or task_file is None or is_same(task_name, record.task_name):
            return
        if is_training:
            raise InputError(
                f"--output_dir={self.options.output_dir}: its model is trained on "
                f"{record.task_name}, as {task_file} says, and this run is of {task_name}; give "
                "the folder as --model, and another --output_dir"
            )
        logging.warning(
            "The model was trained on %s, as %s says, and not on %s: its results are those of "
            "another task",
            record.task_name,
            task_file,
            task_name,
        )

    def check_labels(self, labels: Sequence[str] | None) -> None:
        """Compares the labels of a task with those of a trained model.

        A training that does not resume may load a model with other labels, because it trains the
        outputs for the new ones.

        Args:
            labels: the labels of the task; None in regression.

        Raises:
            InputError: the model has other labels, or another order of them.
        """
        is_training = self.options.do_train
        if labels is None or (is_training and not self.resumes) or self.has_labels(labels):
            return
        names = ", ".join(str(label) for label in labels)
        hint = "give another --output_dir" if is_training else "take a checkpoint of this task"
        raise InputError(
            f"{self.folder.labels_source}: the model's outputs stand for {self.format_labels()}, "
            f"but the task's labels are {names}; name the labels in the model's order, or {hint}"
        )

    def format_labels(self) -> str:
        """Returns the labels beside the checkpoint as a text for messages."""
        return ", ".join(self.labels or ())

    def has_labels(self, labels: Sequence) -> bool:
        """Returns whether the folder of the model names these labels in this order, or none.

        The labels 0, 1, ... of a task are the numbers of the outputs, which config.json may name in
        words, such as not_equivalent.

        Args:
            labels: the labels of the task.
        """
        if self.dir is None or self.labels is None:
            return True
        names = [str(label) for label in labels]
        if self.labels in (names, make_default_labels(len(names))):
            return True
        is_huggingface = self.dir.labels_source == self.dir.config_file
        return is_huggingface and names == [str(number) for number in range(len(self.labels))]

    def vocabulary(self, records: Sequence[str] = ()) -> tuple[str | None, TokenizerConfig | None]:
        """Finds the vocabulary of a pre-training and the settings of its tokenizer.

        Args:
            records: the record files. The manifests beside them, or else the flags, have the
                settings of the tokenizer.

        Returns:
            The path of the vocabulary, and the settings, for the folder of the model. Both are
            None, with a warning, if the pre-training has no vocabulary.

        Raises:
            InputError: the records, the flags and the vocabulary contradict one another.
        """
        options = self.options
        vocab_file = options.vocab_file
        if vocab_file is None:
            errors.warn(
                "--vocab_file is not given, so %s gets no vocabulary; users of the model have to "
                "pass it",
                options.output_dir,
            )
            return None, None
        settings = self.tokenizer_config
        # The shards of one file have one manifest.
        shards = {SHARD_NAME.sub("", name): name for name in records}
        for path in sorted(shards.values()):
            settings = _apply_manifest(settings, path)
        if settings.do_lower_case is None:
            errors.warn(
                "The records do not say whether their text was lower-cased, so "
                "tokenizer_config.json in %s leaves it open: give --do_lower_case or "
                "--nodo_lower_case",
                options.output_dir,
            )
        tokenizer = FullTokenizer(vocab_file, settings.do_lower_case)
        check_vocabulary(tokenizer, self.config.vocab_size, vocab_file)
        check_records_vocabulary(records, vocab_file, tokenizer.vocab)
        return vocab_file, settings


class _Resolver:
    """Chooses the values of options: the typed one, that of the model's folder, or the fallback."""

    def __init__(
        self, folder: ModelFolder | None, vocab_file: str | None, settings: Mapping[str, Any]
    ):
        """Reads the settings of the tokenizer.

        Args:
            folder: the folder of the model; None if no flag names one.
            vocab_file: the path of the vocabulary; None if the run has none.
            settings: the recorded settings of the model's training.
        """
        self._settings = settings
        self._task_file = folder.task_file if folder else None
        self._tokenizer = folder.tokenizer_config() if folder else None
        tokenizer_folder = folder.path if folder else ""
        # The vocabulary may be in the folder of another model.
        if self._tokenizer is None and vocab_file and files.exists(vocab_file):
            tokenizer_folder = os.path.dirname(vocab_file)
            self._tokenizer = TokenizerConfig.read(tokenizer_folder)
        self._tokenizer_file = find_tokenizer_settings_file(tokenizer_folder)

    def resolve(self, field: dataclasses.Field, typed_value: Any, fallback: Any) -> Any:
        """Returns the value of an option.

        Args:
            field: the field of the options.
            typed_value: the value of the flag; None if it is not typed.
            fallback: the value without a flag and without a recorded value.

        Raises:
            InputError: the flag contradicts the folder, or the casing of the model is unknown.
        """
        is_casing = field.name in ("do_lower_case", "strip_accents")
        if is_casing:
            stored_value = getattr(self._tokenizer, field.name, None)
            if field.name == "strip_accents" and self._tokenizer and typed_value is not None:
                stored_value = self._tokenizer.strips_accents
        else:
            stored_value = self._settings.get(field.name)
            _check_recorded(field, stored_value, self._task_file)
        if typed_value is None:
            return self._choose_default(field, stored_value, fallback)
        is_fixed = is_casing or field.metadata["fixed_after_training"]
        if stored_value is not None and typed_value != stored_value and is_fixed:
            source = self._tokenizer_file if is_casing else self._task_file
            raise InputError(
                f"{format_flag(field.name, typed_value)}: {source} says {stored_value}, with "
                "which the model was trained; leave the flag out"
            )
        return typed_value

    def _choose_default(self, field: dataclasses.Field, stored_value: Any, fallback: Any) -> Any:
        """Returns the value of an option whose flag is not typed."""
        if stored_value is not None:
            return stored_value
        longest = self._tokenizer.model_max_length if self._tokenizer else None
        if field.name == "max_seq_length" and longest:
            return min(fallback, longest)
        if field.name == "do_lower_case" and self._tokenizer and fallback is not None:
            raise unknown_casing(self._tokenizer_file)
        return fallback


def check_same_pieces(vocab_file: str, folder: ModelFolder) -> None:
    """Compares a vocabulary with that of a model whose folder has the settings of its tokenizer.

    A piece [unusedN] of the model may have been replaced by another one.

    Args:
        vocab_file: the path of the vocabulary, for the error that of --vocab_file.
        folder: the folder of the model.

    Raises:
        InputError: a piece differs.
    """
    model_vocab_file = folder.vocab_file if folder.tokenizer_config() else None
    if not model_vocab_file or files.real_path(model_vocab_file) == files.real_path(vocab_file):
        return
    lines = vocabulary_lines(vocab_file)
    model_lines = vocabulary_lines(model_vocab_file)
    pairs = itertools.zip_longest(lines, model_lines, fillvalue="")
    for number, (line, model_line) in enumerate(pairs, 1):
        piece = line.strip()
        trained_piece = model_line.strip()
        if piece != trained_piece and not trained_piece.startswith(_UNUSED_PIECE):
            raise InputError(
                f"--vocab_file={vocab_file}: line {number} is {piece!r}, and {trained_piece!r} in "
                f"{model_vocab_file}, the vocabulary that the model was trained with; leave the "
                "flag out"
            )


def find_tokenizer_settings_file(folder: str) -> str:
    """Returns the file with the settings of a tokenizer, for messages.

    Args:
        folder: the folder of a model.

    Returns:
        The path of tokenizer_config.json, or of tokenizer.json if that is the only one.
    """
    paths = [os.path.join(folder, name) for name in (TOKENIZER_CONFIG_NAME, TOKENIZER_NAME)]
    return next(filter(files.exists, paths), paths[0])


def _apply_manifest(settings: TokenizerConfig, path: str) -> TokenizerConfig:
    """Returns the settings of a run's tokenizer, updated with the manifest of a record file."""
    file_and_manifest = manifest_beside(path)
    if file_and_manifest is None:
        return settings
    manifest_file, manifest = file_and_manifest
    flags = reading.field(manifest, "flags", dict, manifest_file)
    record_settings = dataclasses.replace(
        settings,
        do_lower_case=reading.field(flags, "do_lower_case", bool, manifest_file),
        strip_accents=flags.get("strip_accents"),
    )
    for name in ("do_lower_case", "strips_accents"):
        run_value = getattr(settings, name)
        record_value = getattr(record_settings, name)
        if run_value not in (None, record_value):
            raise InputError(
                f"{manifest_file}: the text of {path} was made into records with "
                f"{name}={record_value}, and a flag, the model's {TOKENIZER_CONFIG_NAME} or "
                f"another file of records says {run_value}; correct what is wrong"
            )
    return record_settings


def _check_recorded(field: dataclasses.Field, value: Any, source: str | None):
    """Checks a value of task.json as its flag would be checked."""
    if value is None:
        return
    kind = value_type(field)
    is_infinite = isinstance(value, float) and kind is float  # as a threshold may be
    is_typed = is_infinite or has_type(value, kind)
    if not is_typed or find_fault(field, value) is not None:
        raise InputError(
            f"{source}: {field.name} is {value!r}, which the flag does not accept; restore what "
            "the training wrote"
        )


def check_stored_config(checkpoint: str, config: BertConfig, is_training: bool = False) -> None:
    """Compares a configuration with the one beside a checkpoint.

    Args:
        checkpoint: the path of the checkpoint.
        config: the configuration of the run.
        is_training: whether the dropout rates count, too.

    Raises:
        InputError: a field that no shape depends on differs, so that nothing else would show it.
    """
    if difference := find_config_difference(checkpoint, config, is_training):
        raise InputError(
            f"{difference}; give the config of this checkpoint with --bert_config_file, or correct "
            "the one beside it"
        )


def find_config_difference(
    checkpoint: str, config: BertConfig, is_training: bool = False
) -> str | None:
    """Compares a configuration with the one beside a checkpoint.

    No shape of a weight depends on the number of heads or the activation. Another value computes
    other numbers without an error.

    Args:
        checkpoint: the path of the checkpoint.
        config: the configuration of the run.
        is_training: whether the dropout rates count, too.

    Returns:
        A sentence about the first difference; None if there is none, or no other configuration.
    """
    path = ModelFolder(checkpoint).config_file
    if path is None:
        return None
    stored_config = BertConfig.from_json_file(path)
    for name in _FIELDS_WITHOUT_SHAPE + (_DROPOUTS if is_training else ()):
        value = getattr(config, name)
        stored_value = getattr(stored_config, name)
        if _normalize(value) != _normalize(stored_value):
            return f"{path}: its {name} is {stored_value}, and {value} by --bert_config_file"
    return None


def _normalize(value: Any) -> Any:
    """Returns one value for all forms of no dropout, of no activation, and of an activation."""
    if isinstance(value, str):
        value = value.lower()
    return None if value in (0, "", "linear") else value
