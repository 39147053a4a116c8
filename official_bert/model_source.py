"""Completes the flags of a model with what its folder says, and reads the files that they name.

In: options with the flags of a model. Out: options without an open value, the configuration and the tokenizer. A flag
that contradicts the folder is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from official_bert.config import BertConfig, read_config
from official_bert.data.model_inputs import check_vocabulary
from official_bert.io import errors, files, reading
from official_bert.io.errors import InputError
from official_bert.io.reading import is_of_kind
from official_bert.model_dir import ModelFolder, TaskRecord, holds_checkpoints
from official_bert.options.fields import kind_of
from official_bert.tokenization import FullTokenizer
from official_bert.tokenizer_config import TOKENIZER_CONFIG_NAME, TokenizerConfig

_NO_SHAPE = ("num_attention_heads", "hidden_act", "direction")
_DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
# What the weights were trained with, so that another value gives answers without meaning; the other settings of a
# training may be changed.
_FIXED = ("do_lower_case", "strip_accents", "max_seq_length", "label_type")
_UNUSED_PIECE = "[unused"

Options = TypeVar("Options")


class ModelFlags(Protocol):
    """The flags that name a model's files, after `resolved`; the options of every script that loads a model."""

    bert_config_file: str
    vocab_file: str
    do_lower_case: bool
    strip_accents: bool | None
    max_seq_length: int


def resolved(options: Options, family: str | None = None) -> Options:
    """Returns options in which no value is open.

    A run takes its model from --output_dir if that holds a checkpoint, else from --init_checkpoint or --model. The
    folder of that checkpoint says what no flag says: the vocabulary, the configuration, and how text is tokenized; and,
    if the run goes on with a model of its own task without training it, the settings of that training. Completed
    options stay as they are.

    Args:
        options: the options of a script with --model.
        family: the family of the run's task, as in tasks/registry.py; None for a run without a task.

    Raises:
        InputError: a flag contradicts the folder, a file of the folder is damaged, or a file is not named at all.
    """
    names = {field.name for field in dataclasses.fields(options)}
    if options.model and not (files.exists(options.model) or files.exists(f"{options.model}.index")):
        raise InputError(f"--model={options.model}: no such folder; check the path")
    values: dict[str, Any] = {"model": None}
    if "init_checkpoint" in names:
        values["init_checkpoint"] = _init_checkpoint(options)
    origin = _origin(options)
    folder = ModelFolder(origin) if origin else None
    for flag, attribute in (("vocab_file", "vocab_file"), ("bert_config_file", "config_file")):
        if flag in names:
            values[flag] = getattr(options, flag) or getattr(folder, attribute, None)
            if not values[flag] and flag not in options.optional_files:
                raise _missing(flag, options, origin)
    if "vocab_file" in options.optional_files and not values["vocab_file"]:
        values["vocab_file"] = ModelFolder(values["bert_config_file"]).vocab_file
    known = _Known(options, folder, family, values.get("vocab_file"))
    known.check_vocabulary(values.get("vocab_file"))
    for field in dataclasses.fields(options):
        otherwise = field.metadata["fallback"]
        if otherwise is not dataclasses.MISSING:
            values[field.name] = known.value(field, getattr(options, field.name), otherwise)
    return dataclasses.replace(options, **values)


def _missing(flag: str, options, origin: str | None) -> InputError:
    """Returns the error of a file that neither a flag nor the folder of the model names."""
    if origin:
        return InputError(
            f"--{flag}: must be given, since {origin} has no such file; if it is not the folder that you mean, correct "
            "its path"
        )
    output_dir = getattr(options, "output_dir", None)
    there = (
        f"; --output_dir={output_dir} holds no trained model" if output_dir and not options.do_train else ""
    )
    return InputError(
        f"--{flag}: must be given, or --model with the folder of a model that has the file{there}"
    )


def _init_checkpoint(options) -> str | None:
    if options.model and options.init_checkpoint:
        raise InputError(
            f"--init_checkpoint={options.init_checkpoint}: --model={options.model} names a checkpoint, too; give one "
            "of the two"
        )
    return options.init_checkpoint or options.model


def _origin(options) -> str | None:
    """Returns the path of the checkpoint that the run starts from, or a folder with files for it."""
    output_dir = getattr(options, "output_dir", None)
    if output_dir and holds_checkpoints(output_dir):
        return output_dir
    return getattr(options, "init_checkpoint", None) or options.model


class _Known:
    """What a folder says about the flags of a run."""

    def __init__(self, options, folder: ModelFolder | None, family: str | None, vocab_file: str | None):
        self._folder = folder
        self._tokenizer = folder.tokenizer_config() if folder else None
        self._tokenizer_source = folder.path if folder else None
        # The vocabulary may be in the folder of another model.
        if self._tokenizer is None and vocab_file and files.exists(vocab_file):
            self._tokenizer_source = os.path.dirname(vocab_file)
            self._tokenizer = TokenizerConfig.read(self._tokenizer_source)
        record = folder.task() if folder else None
        is_used = record is not None and record.family == family and not getattr(options, "do_train", False)
        self._record: TaskRecord | None = record if is_used else None

    def value(self, field: dataclasses.Field, given, otherwise):
        """Returns the value of a flag.

        Args:
            given: the value of the flag; None without it.
            otherwise: the value without the flag and without a folder that knows it.
        """
        source, found = self._found(field)
        if field.name == "strip_accents" and self._tokenizer and given is not None:
            found = self._tokenizer.strips_accents
        if given is None:
            if found is not None:
                return found
            longest = self._tokenizer.model_max_length if self._tokenizer else None
            return min(otherwise, longest) if field.name == "max_seq_length" and longest else otherwise
        if found is not None and given != found and field.name in _FIXED:
            raise InputError(
                f"--{field.name}={given}: {source} says {found}, with which the model was trained; leave the flag out"
            )
        return given

    def _found(self, field: dataclasses.Field) -> tuple[str | None, Any]:
        """Returns the file that knows the value of a flag, and the value; None if no file does."""
        if field.name in ("do_lower_case", "strip_accents"):
            value = getattr(self._tokenizer, field.name, None)
            return os.path.join(self._tokenizer_source or "", TOKENIZER_CONFIG_NAME), value
        if self._record is None or self._record.settings.get(field.name) is None:
            return None, None
        source, value = self._folder.task_file, self._record.settings[field.name]
        check: tuple[Callable, str] | None = field.metadata["check"]
        is_infinite = isinstance(value, float) and kind_of(field) is float  # as a threshold may be
        is_typed = is_infinite or is_of_kind(value, kind_of(field))
        is_unknown = value not in (field.metadata["choices"] or (value,))
        if not is_typed or is_unknown or (check and not check[0](value)):
            raise InputError(
                f"{source}: {field.name} is {value!r}, which the flag does not accept; restore what the training wrote"
            )
        return source, value

    def check_vocabulary(self, vocab_file: str | None):
        """Refuses a vocabulary other than that of a model whose folder knows itself.

        Pieces that no training has used may have been replaced by others.
        """
        own = self._folder.vocab_file if self._folder and self._folder.tokenizer_config() else None
        if not own or not vocab_file or files.real_path(own) == files.real_path(vocab_file):
            return
        pairs = itertools.zip_longest(reading.read_lines(vocab_file), reading.read_lines(own))
        for number, (given, trained) in enumerate(pairs, 1):
            given, trained = ((piece or "").strip() for piece in (given, trained))
            if given != trained and not trained.startswith(_UNUSED_PIECE):
                raise InputError(
                    f"--vocab_file={vocab_file}: line {number} is {given!r}, and {trained!r} in {own}, the vocabulary "
                    "that the model was trained with; leave the flag out"
                )


def read_model_files(options: ModelFlags) -> tuple[BertConfig, FullTokenizer]:
    """Reads the configuration and the tokenizer and checks them against each other and against --max_seq_length.

    Raises:
        InputError: a file cannot be used, or --max_seq_length exceeds the model's positions.
    """
    config = read_config(options.bert_config_file, options.max_seq_length)
    tokenizer = FullTokenizer(options.vocab_file, options.do_lower_case, strip_accents=options.strip_accents)
    check_vocabulary(tokenizer, config.vocab_size, options.vocab_file)
    return config, tokenizer


def read_vocabulary(options, config: BertConfig) -> tuple[str | None, TokenizerConfig | None]:
    """Checks the vocabulary of a pre-training, which works without one, for the folder of its model.

    Args:
        options: completed options of run_pretraining.py.

    Returns:
        The path of the vocabulary and how text is tokenized; None and None, and a warning, without a vocabulary.

    Raises:
        InputError: the vocabulary does not fit the model.
    """
    vocab_file = options.vocab_file
    if vocab_file is None:
        errors.warn(
            "--vocab_file is not given, so %s gets no vocabulary; who uses the model must name it",
            options.output_dir,
        )
        return None, None
    tokenizer = FullTokenizer(vocab_file)
    check_vocabulary(tokenizer, config.vocab_size, vocab_file)
    do_lower_case = options.do_lower_case
    if do_lower_case is None:
        do_lower_case = TokenizerConfig.guessed(tokenizer.vocab).do_lower_case
    return vocab_file, TokenizerConfig(do_lower_case, options.strip_accents, config.max_position_embeddings)


def tokenizer_config_of(options: ModelFlags, config: BertConfig) -> TokenizerConfig:
    """Returns the settings of a run's tokenizer, for the folder of its model."""
    return TokenizerConfig(options.do_lower_case, options.strip_accents, config.max_position_embeddings)


def check_config_beside(checkpoint: str, config: BertConfig, in_training: bool = False):
    """Compares a configuration with the one that lies beside a checkpoint.

    Raises:
        InputError: a value differs that changes the model's numbers and that the shapes of the weights do not show.
    """
    if difference := difference_beside(checkpoint, config, in_training):
        raise InputError(
            f"{difference}; give the config of this checkpoint with --bert_config_file, or correct the one beside it"
        )


def difference_beside(checkpoint: str, config: BertConfig, in_training: bool = False) -> str | None:
    """Describes the first difference that `check_config_beside` refuses; None if there is none or no other config.

    The number of heads and the activation show in no shape of a weight, and another one gives other numbers without an
    error.
    """
    path = ModelFolder(checkpoint).config_file
    if path is None:
        return None
    stored = BertConfig.from_json_file(path)
    for name in _NO_SHAPE + (_DROPOUTS if in_training else ()):
        ours, theirs = getattr(config, name), getattr(stored, name)
        if _comparable(ours) != _comparable(theirs):
            return f"{path}: its {name} is {theirs}, and {ours} by --bert_config_file"
    return None


def _comparable(value):
    """Returns one value for each way to say no dropout, no activation, or the same activation."""
    if isinstance(value, str):
        value = value.lower()
    return None if value in (0, "", "linear") else value
