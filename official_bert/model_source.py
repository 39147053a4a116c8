"""Which model does a run start from? A `ModelSource`, as `resolve(options)` finds it, is the only
answer.

In: options with the flags of a model. Out: the options without an open value, and the files that
they name. A flag that contradicts the folder of the model is an error.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Sequence
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
from official_bert.io.reading import is_of_kind
from official_bert.model_dir import (
    ModelFolder,
    TaskRecord,
    find_nested_encoder,
    has_checkpoints,
    make_default_labels,
)
from official_bert.options.fields import fault_of, flag_without_effect, format_flag, kind_of
from official_bert.options.serving import FAMILIES, MODEL_CLASSES
from official_bert.tokenization import FullTokenizer, vocabulary_lines
from official_bert.tokenizer_config import TokenizerConfig, unknown_casing
from official_bert.tokenizer_files import TOKENIZER_CONFIG_NAME, TOKENIZER_NAME

if TYPE_CHECKING:
    from official_bert.checkpoints.loading import Checkpoint

_NO_SHAPE = ("num_attention_heads", "hidden_act", "direction")
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
_UNUSED_PIECE = "[unused"


def resolve(options, family: str | None = None) -> ModelSource:
    """Finds the model of a run, and completes the options by what its folder knows; `family` is
    that of its task.
    """
    source = ModelSource(options)
    source.complete(family)
    return source


class ModelSource:
    """The model that a run starts from; each of its files is read once, when it is first needed.

    A run takes its model from --output_dir if that holds a checkpoint, else from --init_checkpoint
    or --model.

    Attributes:
        options: the options of the script; no value is open after `complete`.
        resumes: whether --output_dir holds checkpoints.
        path: the checkpoint, or a folder with files for it; None if no flag names one.
        dir: the files beside the checkpoint; None if no flag names one.
        model: the value of --model, which `options` no longer has after `complete`.
    """

    def __init__(self, options):
        output_dir = getattr(options, "output_dir", None)
        models = {
            name: value
            for name in ("model", "init_checkpoint")
            if (value := getattr(options, name, None))
        }
        self.options = options = dataclasses.replace(
            options, **{name: model_hub.local_path(model) for name, model in models.items()}
        )
        self.model: str | None = options.model
        self.resumes = bool(output_dir) and has_checkpoints(output_dir)
        model_path = getattr(options, "init_checkpoint", None) or options.model
        self.path: str | None = output_dir if self.resumes else model_path
        self.dir = ModelFolder(self.path) if self.path else None

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
        # With TensorFlow, which the making of records lacks.
        from official_bert.checkpoints import open_checkpoint

        if not self.path:
            raise InputError("--model: must be given, or --init_checkpoint with the checkpoint")
        return open_checkpoint(self.path)

    @functools.cached_property
    def task(self) -> TaskRecord | None:
        """What the model was trained on, if its folder says so."""
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

    def complete(self, family: str | None, **overrides: Any):
        """Fills the open values of the options with what the folder says, or else with the
        fallbacks.

        The folder knows the vocabulary, the configuration, and how text is tokenized; and, if the
        run uses a model of its own task without training it, the settings of that training.
        Completed options stay as they are. `overrides` are values of options from elsewhere.
        """
        options = dataclasses.replace(self.options, **overrides)
        names = {field.name for field in dataclasses.fields(options)}
        model, values = options.model, {"model": None}
        if model and not (files.exists(model) or files.exists(f"{model}.index")):
            raise InputError(f"--model={model}: no such folder; check the path")
        if "init_checkpoint" in names:
            if model and options.init_checkpoint:
                raise InputError(
                    f"--init_checkpoint={options.init_checkpoint}: --model={model} names a "
                    "checkpoint, too; give one of the two"
                )
            values["init_checkpoint"] = options.init_checkpoint or model
        for flag, attribute in (("vocab_file", "vocab_file"), ("bert_config_file", "config_file")):
            if flag in names:
                values[flag] = getattr(options, flag) or getattr(self.dir, attribute, None)
                if not values[flag] and flag not in options.optional_files:
                    raise self._missing(flag)
        if "vocab_file" in options.optional_files and not values["vocab_file"]:
            values["vocab_file"] = ModelFolder(values["bert_config_file"]).vocab_file
        self._check_pieces(values.get("vocab_file"))
        resolve_field = self._make_resolver(values.get("vocab_file"), family)
        for field in dataclasses.fields(options):
            fallback = field.metadata["fallback"]
            if fallback is not dataclasses.MISSING:
                values[field.name] = resolve_field(field, getattr(options, field.name), fallback)
        typed_options = self.options
        self.options = dataclasses.replace(options, **values)
        if sentence := flag_without_effect(typed_options, self.options):
            raise InputError(sentence)

    def _missing(self, flag: str) -> InputError:
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

    def _check_pieces(self, vocab_file: str | None):
        """Compares a vocabulary with that of a model whose folder knows itself.

        Pieces that no training has used may have been replaced by others.
        """
        if self.dir and vocab_file:
            check_same_pieces(vocab_file, self.dir)

    def _make_resolver(self, vocab_file: str | None, family: str | None) -> Callable[..., Any]:
        """Returns a function from a field, the value of its flag and its fallback to the value
        that holds.
        """
        tokenizer, folder = (self.dir.tokenizer_config(), self.dir.path) if self.dir else (None, "")
        # The vocabulary may be in the folder of another model.
        if tokenizer is None and vocab_file and files.exists(vocab_file):
            folder = os.path.dirname(vocab_file)
            tokenizer = TokenizerConfig.read(folder)
        settings = self._task_settings(family)

        def resolve_field(field: dataclasses.Field, typed_value, fallback):
            is_casing = field.name in ("do_lower_case", "strip_accents")
            if is_casing:
                source, stored_value = (
                    find_tokenizer_settings_file(folder),
                    getattr(tokenizer, field.name, None),
                )
                if field.name == "strip_accents" and tokenizer and typed_value is not None:
                    stored_value = tokenizer.strips_accents
            else:
                source = getattr(self.dir, "task_file", None)
                stored_value = settings.get(field.name)
                _check_recorded(field, stored_value, source)
            if typed_value is None:
                if stored_value is not None:
                    return stored_value
                if field.name == "do_lower_case" and tokenizer and fallback is not None:
                    raise unknown_casing(source)
                longest = tokenizer.model_max_length if tokenizer else None
                return (
                    min(fallback, longest)
                    if field.name == "max_seq_length" and longest
                    else fallback
                )
            is_fixed = is_casing or field.metadata["fixed_after_training"]
            if stored_value is not None and typed_value != stored_value and is_fixed:
                raise InputError(
                    f"{format_flag(field.name, typed_value)}: {source} says {stored_value}, with "
                    "which the model was trained; leave the flag out"
                )
            return typed_value

        return resolve_field

    def _task_settings(self, family: str | None) -> dict[str, Any]:
        """Returns the settings that a model brings along where it is used on a task of its
        family and not trained.
        """
        if not self.task or getattr(self.options, "do_train", False):
            return {}
        is_recorded = self.dir.task_file is not None
        if (
            not is_recorded
            and family in MODEL_CLASSES
            and self.task.family in MODEL_CLASSES.keys() - {family}
        ):
            raise InputError(
                f"{self.dir.config_file}: is of a {MODEL_CLASSES[self.task.family]}, whose head is "
                f"not one for this task; give --task_name={self.task.task_name}, or the checkpoint "
                "of another model"
            )
        if self.task.family != family:
            return {}
        if is_recorded:
            return self.task.settings
        self.dir.check_activation()
        # A class of transformers says how texts are labelled, which the tasks with a layout of
        # their own know.
        is_general = getattr(self.options, "task_name", None) in (None, *FAMILIES)
        return self.task.settings if is_general else {}

    def check_task(self, task_name: str, is_same: Callable[[str, str], bool]):
        """Refuses to train a folder's model on with another task, and warns of its evaluation on
        another.

        `is_same` tells whether two names are of the same task.
        """
        is_training = self.options.do_train
        record = self.task if self.resumes or not is_training else None
        if record is None or self.dir.task_file is None or is_same(task_name, record.task_name):
            return
        if is_training:
            raise InputError(
                f"--task_name={task_name}: {self.dir.task_file} says {record.task_name}, on which "
                "the model in --output_dir was trained; give the folder as --model, and another "
                "--output_dir"
            )
        logging.warning(
            "The model was trained on %s, as %s says, and not on %s: its results are those of "
            "another task",
            record.task_name,
            self.dir.task_file,
            task_name,
        )

    def check_labels(self, labels: Sequence[str] | None):
        """Compares the labels of a task, None in regression, with those of a trained model.

        A training run that starts anew may load a model with other labels, because it trains the
        outputs for the new ones.
        """
        is_training = self.options.do_train
        if labels is None or (is_training and not self.resumes):
            return
        if self.has_labels(labels):
            return
        names = [str(label) for label in labels]
        remedy = "give another --output_dir" if is_training else "take a checkpoint of this task"
        raise InputError(
            f"{self.dir.labels_source}: the model's outputs stand for {', '.join(self.labels)}, "
            f"but the task's labels are {', '.join(names)}; name the labels in the model's order, "
            f"or {remedy}"
        )

    def has_labels(self, labels: Sequence) -> bool:
        """Returns whether the model's outputs stand for these labels in this order, so far as its
        folder says.

        The labels 0, 1, ... of a task are the numbers of the outputs, which config.json may name in
        words, such as not_equivalent.
        """
        names = [str(label) for label in labels]
        if self.labels in (None, names, make_default_labels(len(names))):
            return True
        is_theirs = self.dir.labels_source == self.dir.config_file
        return is_theirs and names == [str(number) for number in range(len(self.labels))]

    def vocabulary(self, records: Sequence[str] = ()) -> tuple[str | None, TokenizerConfig | None]:
        """Returns the path of a pre-training's vocabulary and how text is tokenized, for the folder
        of its model.

        Both are None, with a warning, if the pre-training has no vocabulary. How the text of the
        `records` was tokenized the manifests beside these files say, else the flags; no vocabulary
        tells.
        """
        options, vocab_file = self.options, self.options.vocab_file
        if vocab_file is None:
            errors.warn(
                "--vocab_file is not given, so %s gets no vocabulary; who uses the model must name "
                "it",
                options.output_dir,
            )
            return None, None
        settings = self.tokenizer_config
        for path in sorted({SHARD_NAME.sub("", name): name for name in records}.values()):
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


def check_same_pieces(vocab_file: str, folder: ModelFolder):
    """Refuses a vocabulary with other pieces than that of a model whose folder knows itself."""
    model_vocab_file = folder.vocab_file if folder.tokenizer_config() else None
    if not model_vocab_file or files.real_path(model_vocab_file) == files.real_path(vocab_file):
        return
    pairs = itertools.zip_longest(vocabulary_lines(vocab_file), vocabulary_lines(model_vocab_file))
    for number, (piece, trained_piece) in enumerate(pairs, 1):
        piece = (piece or "").strip()
        trained_piece = (trained_piece or "").strip()
        if piece != trained_piece and not trained_piece.startswith(_UNUSED_PIECE):
            raise InputError(
                f"--vocab_file={vocab_file}: line {number} is {piece!r}, and {trained_piece!r} in "
                f"{model_vocab_file}, the vocabulary that the model was trained with; leave the "
                "flag out"
            )


def find_tokenizer_settings_file(folder: str) -> str:
    """Returns the file that says how text is tokenized: tokenizer_config.json, or tokenizer.json
    alone.
    """
    paths = [os.path.join(folder, name) for name in (TOKENIZER_CONFIG_NAME, TOKENIZER_NAME)]
    return next(filter(files.exists, paths), paths[0])


def _apply_manifest(settings: TokenizerConfig, path: str) -> TokenizerConfig:
    """Returns the settings of a run's tokenizer with what the manifest of a record file says, if
    it has one.
    """
    file_and_manifest = manifest_beside(path)
    if file_and_manifest is None:
        return settings
    manifest_file, manifest = file_and_manifest
    flags = reading.field(manifest, "flags", dict, manifest_file)
    lower = reading.field(flags, "do_lower_case", bool, manifest_file)
    record_settings = dataclasses.replace(
        settings, do_lower_case=lower, strip_accents=flags.get("strip_accents")
    )
    for name in ("do_lower_case", "strips_accents"):
        ours, theirs = getattr(settings, name), getattr(record_settings, name)
        if ours not in (None, theirs):
            raise InputError(
                f"{manifest_file}: the text of {path} was made into records with {name}={theirs}, "
                f"and a flag, the model's {TOKENIZER_CONFIG_NAME} or another file of records says "
                f"{ours}; correct what is wrong"
            )
    return record_settings


def _check_recorded(field: dataclasses.Field, value, source: str | None):
    """Checks a value of task.json as its flag would be."""
    kind = kind_of(field)
    is_infinite = isinstance(value, float) and kind is float  # as a threshold may be
    is_typed = is_infinite or is_of_kind(value, kind)
    if value is not None and not (is_typed and fault_of(field, value) is None):
        raise InputError(
            f"{source}: {field.name} is {value!r}, which the flag does not accept; restore what "
            "the training wrote"
        )


def check_stored_config(checkpoint: str, config: BertConfig, is_training: bool = False):
    """Compares a configuration with the one that lies beside a checkpoint."""
    if difference := find_config_difference(checkpoint, config, is_training):
        raise InputError(
            f"{difference}; give the config of this checkpoint with --bert_config_file, or correct "
            "the one beside it"
        )


def find_config_difference(
    checkpoint: str, config: BertConfig, is_training: bool = False
) -> str | None:
    """Describes the first difference that `check_stored_config` finds; None if there is none or no
    other config.

    The number of heads and the activation show in no shape of a weight, and another one gives other
    numbers without an error.
    """
    path = ModelFolder(checkpoint).config_file
    if path is None:
        return None
    stored = BertConfig.from_json_file(path)
    for name in _NO_SHAPE + (_DROPOUTS if is_training else ()):
        ours, theirs = getattr(config, name), getattr(stored, name)
        if _comparable(ours) != _comparable(theirs):
            return f"{path}: its {name} is {theirs}, and {ours} by --bert_config_file"
    return None


def _comparable(value):
    """Returns one value for each way to say no dropout, no activation, or the same activation."""
    if isinstance(value, str):
        value = value.lower()
    return None if value in (0, "", "linear") else value
