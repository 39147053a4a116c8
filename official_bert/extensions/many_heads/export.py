"""Exports several models as one SavedModel or one file: the runner of export_heads.

In: the folders of fine-tuned models. Out, in export_dir/<version>/:

    saved_model.pb, variables    a signature for each head, and `serving_default` for all heads
    model.onnx                   with --export_format=onnx, `serving_default` instead
    assets                       vocab.txt
    assets.extra                 bert_config.json, export.json, warm-up requests of a SavedModel
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from official_bert.extensions.many_heads.answers import HeadAnswers
from official_bert.extensions.many_heads.head_records import (
    FAMILY,
    HEADS,
    SHARED_ENCODERS,
    make_head_record,
)
from official_bert.extensions.many_heads.heads import (
    Head,
    list_weights,
    name_texts,
    read_heads,
)
from official_bert.extensions.many_heads.heads_task import join_heads
from official_bert.extensions.many_heads.options import HeadExportOptions, check_folders
from official_bert.graph_text.text_reader import TextReader
from official_bert.graph_text.tokenizer import TextTokenizer
from official_bert.io import files, reading
from official_bert.io.errors import InputError
from official_bert.model_dir import join_lines
from official_bert.options.serving import SAVED_MODEL
from official_bert.serving import conversion, signatures
from official_bert.serving.export import (
    ExportedModel,
    check_export_dir,
    compute_weights_digest,
    copy_folder,
    make_record,
    save,
    write_version,
)
from official_bert.serving.export_format import ConversionSource
from official_bert.serving.exported_model import (
    CONFIG_FILE,
    DEFAULT,
    RECORD_FILE,
    VOCAB_FILE,
    Record,
    list_versions,
)
from official_bert.serving.signatures import Signature
from official_bert.tokenization import vocabulary_lines
from official_bert.training.distribution import log_devices
from official_bert.training.run_log import package_versions

# The settings that all heads have in common.
_SHARED_SETTINGS = ("export_text", "max_seq_length", "do_lower_case", "strip_accents")


def run(options: HeadExportOptions) -> str:
    """Exports the models of --heads.

    Args:
        options: the flags of the command.

    Returns:
        The folder of the new version.

    Raises:
        InputError: a model cannot be used, two models do not fit each other, or the folder cannot
            be written.
    """
    check_folders(options)
    check_export_dir(options.export_dir)
    _check_format(options)
    log_devices()
    groups = read_heads(options)
    heads = [head for group in groups for head in group]
    record = _make_record(options, groups)
    _warn_about_other_versions(options, record)
    digest = compute_weights_digest(list_weights(heads))
    record = record._replace(checkpoint={"weights_sha256": digest})
    make_files = _make_saved_model if options.export_format == SAVED_MODEL else _convert
    # The temporary folder contains files of the export until it is written.
    with tempfile.TemporaryDirectory() as folder:
        model_files = make_files(options, groups, folder)
        record = record._replace(converted=model_files.converted)
        extra_files = {
            CONFIG_FILE: heads[0].built.config.to_json_string().encode(),
            RECORD_FILE: json.dumps(record._asdict(), indent=2).encode(),
            **model_files.extra_files,
        }
        logging.info("Writing the export ...")
        version = write_version(options.export_dir, model_files.write, extra_files)
    names = ", ".join(model_files.signatures)
    logging.info("Exported %s with the signatures %s", version, names)
    return version


class _ModelFiles(NamedTuple):
    """The part of an export that depends on its format.

    Attributes:
        write: writes the model into a folder.
        signatures: the names of its signatures.
        extra_files: the content of further files, by their paths in the version.
        converted: the field of the record about files that are not a SavedModel; None without
            them.
    """

    write: Callable[[str], None]
    signatures: list[str]
    extra_files: dict[str, bytes]
    converted: dict[str, Any] | None = None


def _make_saved_model(
    options: HeadExportOptions, groups: Sequence[Sequence[Head]], folder: str
) -> _ModelFiles:
    """Makes the graphs of a SavedModel.

    Args:
        options: the flags of the command.
        groups: the groups of heads whose encoders are equal.
        folder: a temporary folder, in which the vocabulary stays until the SavedModel is saved.
    """
    heads = [head for group in groups for head in group]
    make_content = _make_text_content if options.export_text else _make_tensor_content
    content = make_content(groups, folder)
    logging.info("Compiling the signatures %s ...", ", ".join(content.functions))
    exported = ExportedModel(content.functions, list_weights(heads), content.resources)
    extra_files = {signatures.WARMUP_FILE: signatures.make_warmup_records(content.requests)}
    # The SavedModel of texts contains the vocabulary.
    if not options.export_text:
        extra_files |= _make_vocabulary_file(heads)
    return _ModelFiles(
        write=functools.partial(save, exported, content.functions),
        signatures=list(content.functions),
        extra_files=extra_files,
    )


def _convert(
    options: HeadExportOptions, groups: Sequence[Sequence[Head]], folder: str
) -> _ModelFiles:
    """Makes the file of another format; the arguments are those of `_make_saved_model`.

    Raises:
        InputError: the format cannot store a head.
    """
    heads = [head for group in groups for head in group]
    conversion.check_model(options.export_format, heads[0].built.config)

    def save_model(model_folder: str) -> None:
        _make_saved_model(options, groups, folder).write(model_folder)

    source = ConversionSource(
        built=join_heads(groups),
        save=save_model,
        signatures=[DEFAULT],
        dtype=options.dtype,
        reads_text=options.export_text,
    )
    converted = os.path.join(folder, "converted")
    os.mkdir(converted)
    record = conversion.convert(source, converted, [options.export_format])
    return _ModelFiles(
        write=functools.partial(copy_folder, converted),
        signatures=[DEFAULT],
        extra_files=_make_vocabulary_file(heads),
        converted=record,
    )


def _make_vocabulary_file(heads: Sequence[Head]) -> dict[str, bytes]:
    lines = vocabulary_lines(heads[0].built.vocab_file)
    return {VOCAB_FILE: join_lines(lines)}


def _check_format(options: HeadExportOptions):
    """Refuses flags that do not go together, and a format whose packages are not installed."""
    formats = [options.export_format]
    conversion.check_dtype(options.dtype, formats)
    if options.export_format == SAVED_MODEL:
        return
    if options.export_text:
        conversion.check_text_format(formats)
    if conversion.list_calibrated(options.dtype, formats):
        raise InputError(
            f"--dtype={options.dtype}: {options.export_format} files need the examples of one task "
            "for it; give --dtype=float32, or export each model by export_saved_model"
        )
    conversion.check_packages(options.export_format)


def _make_record(options: HeadExportOptions, groups: Sequence[Sequence[Head]]) -> Record:
    """Returns the content of export.json: the record of each head, and which share an encoder."""
    heads = {}
    for group in groups:
        for head in group:
            record = make_record(head.built, options.export_text)
            record = record._replace(checkpoint=head.built.checkpoint_metadata)
            labels = [str(label) for label in head.built.task.labels or ()]
            heads[head.name] = make_head_record(record, labels)
    first_settings = next(iter(heads.values()))["settings"]
    settings = {name: first_settings[name] for name in _SHARED_SETTINGS}
    settings[HEADS] = heads
    settings[SHARED_ENCODERS] = [[head.name for head in group] for group in groups]
    return Record(
        task_name=FAMILY,
        family=FAMILY,
        settings=settings,
        flags=dataclasses.asdict(options),
        versions=package_versions(),
    )


def _warn_about_other_versions(options: HeadExportOptions, record: Record):
    """Warns that a server would switch to a version with other signatures."""
    export_dir = options.export_dir
    numbers = list_versions(export_dir) if files.is_folder(export_dir) else []
    if not numbers:
        return
    path = os.path.join(export_dir, str(numbers[-1]), RECORD_FILE)
    newest = reading.read_json(path) if files.exists(path) else {}
    flags = newest.get("flags", {})
    is_same = (
        newest.get("settings", {}).get(HEADS, {}).keys() == record.settings[HEADS].keys()
        and flags.get("export_text") == options.export_text
        and flags.get("export_format") == options.export_format
    )
    if not is_same:
        logging.warning(
            "--export_dir=%s: holds versions with other signatures; a server that watches it "
            "switches to the new version",
            export_dir,
        )


class _Content(NamedTuple):
    """The part of an export that depends on its kind: tensors or text.

    Attributes:
        functions: the signatures by name.
        requests: the warm-up requests.
        resources: a module with the lookup tables of the graph; None if it has none.
    """

    functions: dict[str, Signature]
    requests: list[signatures.Request]
    resources: tf.Module | None


def _make_tensor_content(groups: Sequence[Sequence[Head]], folder: str) -> _Content:
    """Makes the signatures that read tensors.

    Args:
        groups: the groups of heads whose encoders are equal.
        folder: not read.
    """
    answers = HeadAnswers(groups)
    heads = [head for group in groups for head in group]
    built = heads[0].built
    head_functions = {}
    requests = []
    for head in heads:
        answer = functools.partial(answers.answer_features, head)
        function = signatures.make_feature_signature(answer, built.config)
        function.get_concrete_function()
        head_functions[head.name] = function
        requests.append(signatures.make_feature_request(head.name, built.max_seq_length))
    reads_pairs = any(len(head.text_inputs) > 1 for head in heads)
    separator = built.tokenizer.vocab["[SEP]"] if reads_pairs else None
    functions = signatures.make_tensor_signatures(
        answers.answer_all_features, built.config, separator=separator
    )
    requests += signatures.make_tensor_requests(built.max_seq_length)
    return _Content(functions | head_functions, requests, resources=None)


def _make_text_content(groups: Sequence[Sequence[Head]], folder: str) -> _Content:
    """Makes the signatures that read strings.

    Args:
        groups: the groups of heads whose encoders are equal.
        folder: the folder for the vocabulary.
    """
    answers = HeadAnswers(groups)
    heads = [head for group in groups for head in group]
    built = heads[0].built
    tokenizer = TextTokenizer(built.tokenizer, folder)
    reader = TextReader(built.tokenizer.vocab, built.max_seq_length, tokenizer)
    head_functions = {}
    for head in heads:
        answer = functools.partial(answers.answer_texts, head, reader=reader)
        inputs = name_texts([head])
        function = signatures.make_text_signature(inputs, answer)
        function.get_concrete_function()
        head_functions[head.name] = function
    answer_all = functools.partial(answers.answer_all_texts, reader=reader)
    all_inputs = name_texts(heads)
    all_heads = signatures.make_text_signature(all_inputs, answer_all)
    functions = {DEFAULT: all_heads, "serving_text": all_heads, **head_functions}
    requests: list[signatures.Request] = []
    for head in heads:
        request = signatures.make_text_request(name_texts([head]), built.max_seq_length)
        requests.append((head.name, request))
    request = signatures.make_text_request(all_inputs, built.max_seq_length)
    requests += [(name, request) for name in (DEFAULT, "serving_text")]
    return _Content(functions, requests, resources=tokenizer)
