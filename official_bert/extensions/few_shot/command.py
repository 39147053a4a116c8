"""Trains a classifier on few examples: the runner of run_few_shot, and `Classifier.few_shot`.

    texts and labels -> pairs.jsonl -> run_embeddings: encoder/ -> vectors -> logistic regression

In: a table of texts and labels, and an encoder. Out, in --output_dir: a classifier of the task
few_shot, which run_classifier evaluates, and which every command serves. The same command resumes
after a stop, because run_embeddings resumes from its newest checkpoint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from official_bert import catalog, model_dir, model_hub
from official_bert.checkpoints import loading, open_checkpoint
from official_bert.checkpoints.layout import find_layout
from official_bert.cli import commands
from official_bert.data.prompts import Prompts
from official_bert.data.tables import Row
from official_bert.extensions.few_shot import head, pairs
from official_bert.extensions.few_shot.model import BertFewShotClassifier
from official_bert.extensions.few_shot.options import RANKING, FewShotOptions
from official_bert.extensions.few_shot.variants import FEW_SHOT
from official_bert.fine_tuning.classifier import ClassificationData, Classifier
from official_bert.fine_tuning.run import fine_tune
from official_bert.io import errors, files, progress, reading, writing
from official_bert.io.errors import InputError, did_you_mean, naming_arguments
from official_bert.model_dir import ModelFolder, TaskRecord, has_checkpoints
from official_bert.options.training import BIAS_CORRECTED
from official_bert.serving.predictor import check_value
from official_bert.tasks.classification.examples import InputExample
from official_bert.tasks.classification.settings import ClassificationSettings
from official_bert.tasks.classification.text import TextProcessor
from official_bert.tokenization import FullTokenizer

_TRAINING = "run_embeddings"
_EVALUATION = "run_classifier"
_ENCODER = "encoder"  # the folder of the trained encoder
_PAIRS = "pairs.jsonl"
_IDENTITY = "few_shot.json"  # what the classifier was trained on
_BATCH_SIZE = 32
_COLUMNS = ("text_a_column", "label_column", "has_header", "quoting", "data_format")
# Flags of run_few_shot that arguments of `Classifier.few_shot` replace, and flags of files.
_EXCLUDED_FLAGS = {"train_file", "dev_file", "output_dir", "model", *_COLUMNS}
_PYTHON_NAMES = {"--output_dir": "folder", "--model": "model", "--train_file": "texts"}

# The rows of a set in memory, or the name of its file.
Source = str | list[Row]


def run(options: FewShotOptions) -> None:
    """Trains the classifier, and evaluates it if there is a development set.

    Args:
        options: the flags of the command.

    Raises:
        InputError: a flag, a file or the model cannot be used.
    """
    sets: dict[str, Source] = {"train": options.train_file}
    if options.dev_file:
        sets["dev"] = options.dev_file
    train(options, sets, overwrite=False)


def classifier_trainings() -> Mapping[str, Callable]:
    """Returns the class method of `Classifier` by its name."""
    return {"few_shot": few_shot}


def few_shot(  # noqa: PLR0913 - each is named in a call
    cls: type[Classifier],
    folder: str | os.PathLike,
    texts: Iterable | ClassificationData,
    labels: Iterable | None = None,
    dev: tuple[Iterable, Iterable] | None = None,
    model: str | os.PathLike | None = None,
    *,
    overwrite: bool = False,
    verbose: int = 1,
    **flags: Any,
) -> Classifier:
    """Trains a classifier on few examples of each label, such as eight.

    The encoder learns that texts of one label are similar, and a logistic regression then reads its
    vectors. Tunstall et al. (2022), Efficient Few-Shot Learning Without Prompts.

    Args:
        cls: the class.
        folder: the folder of the trained model.
        texts: the texts, at least two of each label; or ClassificationData, without `labels`.
        labels: the label of each text.
        dev: texts and labels that the trained model is evaluated on.
        model: the folder or the name of the encoder to begin with, best one of sentence embeddings.
        overwrite: whether a training on other data or with other arguments is replaced.
        verbose: 1 shows the progress and the result; 0 shows nothing.
        **flags: further flags of run_few_shot by name, such as num_pairs=10.

    Returns:
        The classifier, whose `metrics` are those of `dev`.

    Raises:
        InputError: an argument, the data or the folder cannot be used.

    Example:
        ```python
        from official_bert import Classifier

        texts = ["The cat sat on the mat.", "A dog barked.", "A train left.", "The bus was late."]
        labels = ["animal", "animal", "vehicle", "vehicle"]
        classifier = Classifier.few_shot(
            "/tmp/few", texts, labels, model="quickstart_output/full/bert", overwrite=True
        )
        classifier.classify("A horse ran.")  # {"label": ..., "score": ...}
        ```
    """
    names = {field.name: field for field in dataclasses.fields(FewShotOptions)}
    names = {name: field for name, field in names.items() if name not in _EXCLUDED_FLAGS}
    with naming_arguments(names, _PYTHON_NAMES):
        for name, value in flags.items():
            if name not in names:
                remedy = did_you_mean(name, names) or f"use {', '.join(names)}"
                raise InputError(f"{name}: Classifier.few_shot takes no such flag; {remedy}")
            check_value(names[name], value)
        if model is None:
            raise InputError("model: is missing; give the folder or the name of an encoder")
        data = texts
        if not isinstance(data, ClassificationData):
            data = ClassificationData.from_lists(texts, [] if labels is None else labels)
        sets: dict[str, Source] = {"train": data.rows("train")}
        if dev is not None:
            sets["dev"] = ClassificationData.from_lists(*dev).rows("dev")
        options = FewShotOptions(
            train_file="train",
            output_dir=os.fspath(folder),
            model=os.fspath(model),
            text_a_column="text_a",
            label_column="label",
            **flags,
        )
        with progress.shown_in_python(bool(verbose)):
            train(options, sets, overwrite)
    trained = cls(options.output_dir)
    if dev is not None:
        trained.metrics = reading.read_metrics(os.path.join(options.output_dir, "eval_results.txt"))
    return trained


def train(options: FewShotOptions, sets: Mapping[str, Source], overwrite: bool) -> None:
    """Trains the encoder and the head, and evaluates the classifier.

    Args:
        options: the flags of the command.
        sets: the set train and, if there is one, dev: its file, or its rows.
        overwrite: whether a classifier that was trained differently is replaced.

    Raises:
        InputError: the data or the model cannot be used, or the folder holds another classifier.
    """
    processor = TextProcessor.from_settings(
        ClassificationSettings(
            do_train=True,
            values={"do_train": True},
            text_b_column="",
            **{name: getattr(options, name) for name in _COLUMNS},
        )
    )
    processor.named = dict(sets)
    processor.one_label_remedy = "check --label_column, or add texts of another label"
    examples = processor.get_train_examples("")
    texts = [example.text_a for example in examples]
    labels = [str(example.label) for example in examples]  # of one label each
    # Everything is checked before anything is written.
    pairs.check_labels(labels, options.train_file)
    if options.train_encoder:
        _check_pairs(options, examples)
    if "dev" in sets:
        processor.get_dev_examples("")
    head.check_installed()
    encoder = model_hub.local_path(options.model)
    _check_model(options, encoder)
    _check_folder(options, texts, labels, overwrite)
    if options.train_encoder:
        encoder = _train_encoder(options, texts, labels)
    names = processor.get_labels()
    assert names is not None  # The labels are no scores.
    _write_classifier(options, encoder, texts, labels, names, processor.settings())
    if "dev" in sets:
        _evaluate(options, sets["dev"])


def _check_pairs(options: FewShotOptions, examples: Sequence[InputExample]):
    """Checks that the encoder can be trained, that the texts make pairs, and the pairs a batch."""
    if _TRAINING not in catalog.commands():
        raise InputError(
            f"--train_encoder: needs {_TRAINING} of the extension embeddings, which is not there; "
            "install it, or give --notrain_encoder"
        )
    for example in examples:
        if not example.text_a.strip():
            line = f"line {example.source.line}: " if example.source else ""
            raise InputError(
                f"{options.train_file}: {line}the text is blank; give it a text, or leave the row "
                "out"
            )
    num_pairs = len(examples) * options.num_pairs * (1 if options.loss == RANKING else 2)
    if int(num_pairs * options.num_train_epochs) < options.train_batch_size:
        raise InputError(
            f"--train_batch_size={options.train_batch_size}: the {num_pairs} pairs of texts are no "
            f"whole batch in {options.num_train_epochs:g} epochs; lower it, or raise --num_pairs"
        )


def _check_model(options: FewShotOptions, encoder: str):
    """Checks the model, its length, and that the classifier does not replace its files."""
    config = loading.read_stored_config(open_checkpoint(find_layout(encoder).encoder))
    _read_vector_settings(encoder)
    if _has_prompts(encoder):
        errors.warn(
            "%s: has prompts. A few-shot classifier puts none before its texts, in the training "
            "and later",
            options.model,
        )
    if options.max_seq_length > config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={options.max_seq_length}: {options.model} was made for sequences up "
            f"to {config.max_position_embeddings} tokens; give a smaller number"
        )
    if files.real_path(ModelFolder(encoder).path) == files.real_path(options.output_dir):
        raise InputError(
            f"--output_dir={options.output_dir}: is the folder of --model, and would become that "
            "of the classifier; name another folder"
        )


def _check_folder(
    options: FewShotOptions, texts: Sequence[str], labels: Sequence[str], overwrite: bool
):
    """Records what the folder's classifier is trained on; refuses a folder with another one."""
    flags = dataclasses.asdict(options)
    for name in ("output_dir", "train_file", "dev_file", *_COLUMNS):
        del flags[name]
    content = json.dumps([list(texts), list(labels)])
    identity = {"flags": flags, "examples": hashlib.sha256(content.encode()).hexdigest()}
    path = os.path.join(options.output_dir, _IDENTITY)
    encoder = os.path.join(options.output_dir, _ENCODER)
    classifier = os.path.join(options.output_dir, f"{loading.TF1_NAME}.index")
    if has_checkpoints(options.output_dir):
        raise InputError(
            f"{options.output_dir}: holds the checkpoints of another training; give another "
            "--output_dir"
        )
    is_trained = has_checkpoints(encoder) or files.exists(classifier)
    is_other = not files.exists(path) or reading.read_json(path) != identity
    if is_trained and is_other:
        if not overwrite:
            raise InputError(
                f"{options.output_dir}: holds a model that was trained on other examples or with "
                "other flags; give another --output_dir, or delete the folder"
            )
        if files.exists(encoder):
            files.remove_folder(encoder)
    files.make_folder(options.output_dir)
    with writing.replacing(path) as file:
        file.write(json.dumps(identity, indent=2) + "\n")


def _train_encoder(options: FewShotOptions, texts: Sequence[str], labels: Sequence[str]) -> str:
    """Trains the encoder on pairs; returns its folder."""
    path = os.path.join(options.output_dir, _PAIRS)
    all_pairs = pairs.draw_pairs(
        texts,
        labels,
        options.num_pairs,
        options.random_seed,
        has_negatives=options.loss != RANKING,
    )
    with writing.replacing(path) as file:
        for pair in all_pairs:
            row: dict[str, Any] = {"anchor": pair.first, "positive": pair.second}
            if options.loss != RANKING:
                row["label"] = float(pair.has_same_label)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    folder = os.path.join(options.output_dir, _ENCODER)
    prompt = "" if _has_prompts(model_hub.local_path(options.model)) else None
    training = catalog.options_class(_TRAINING)(
        train_file=path,
        do_train=True,
        loss=options.loss,
        model=options.model,
        output_dir=folder,
        max_seq_length=options.max_seq_length,
        query_prompt=prompt,
        document_prompt=prompt,
        train_batch_size=options.train_batch_size,
        num_train_epochs=options.num_train_epochs,
        learning_rate=options.learning_rate,
        random_seed=options.random_seed,
        optimizer_type=BIAS_CORRECTED,
    )
    commands.load(_TRAINING)(training)
    return folder


def _read_settings(encoder: str) -> dict[str, Any]:
    """Returns the settings of the record of an encoder."""
    layout = find_layout(encoder)
    source = ModelFolder(open_checkpoint(layout.encoder).path)
    record = source.task() or layout.original_record(source)
    return dict(record.settings) if record else {}


def _has_prompts(encoder: str) -> bool:
    """Returns whether an encoder puts prompts before its texts."""
    prompts = Prompts.from_settings(_read_settings(encoder))
    return any(prompts.texts.values())


def _read_vector_settings(encoder: str) -> dict[str, Any]:
    """Returns how an encoder makes vectors, by the arguments of BertFewShotClassifier.

    Raises:
        InputError: the classifier cannot do that.
    """
    settings = _read_settings(encoder)
    if settings.get("projection"):
        raise InputError(
            f"{encoder}: has a layer behind the pooling, which a few-shot classifier does not "
            "have; give another --model"
        )
    return {
        "vector_pooling": settings.get("pooling", "mean"),
        "normalize": settings.get("normalize", True),
    }


def _write_classifier(
    options: FewShotOptions,
    encoder: str,
    texts: Sequence[str],
    labels: Sequence[str],
    names: Sequence[str],
    columns: Mapping[str, Any],
):
    """Fits the head on the vectors of the texts, and writes the folder of the classifier."""
    checkpoint = open_checkpoint(find_layout(encoder).encoder)
    source = ModelFolder(checkpoint.path)
    vectors = _read_vector_settings(encoder)
    tokenizer = FullTokenizer.from_pretrained(checkpoint.path)
    config = loading.read_stored_config(checkpoint)
    model = BertFewShotClassifier(config, len(names), **vectors)
    loading.load_checkpoint(model, checkpoint)
    logging.info("Fitting a logistic regression on %d texts", len(texts))
    layer = head.fit(
        _compute_vectors(model, tokenizer, texts, options.max_seq_length),
        np.array([names.index(label) for label in labels]),
        len(names),
        options.regularization,
    )
    model.output_weights.assign(layer.weights)
    model.output_bias.assign(layer.bias)
    variables = loading.named_variables(model)
    tensors = {name: variable.numpy() for name, variable in variables.items()}
    new_settings = {"max_seq_length": options.max_seq_length, **columns, **vectors}
    new_record = TaskRecord(FEW_SHOT, FEW_SHOT, {"num_texts": 1, **new_settings})
    with writing.replacing_folder(options.output_dir) as folder:
        loading.write(folder, tensors, config)
        model_dir.write_companion_files(
            folder, source.vocab_file, source.tokenizer_config(), new_record, names
        )
    logging.info("Wrote %s", options.output_dir)


def _compute_vectors(
    model: BertFewShotClassifier,
    tokenizer: FullTokenizer,
    texts: Sequence[str],
    max_seq_length: int,
) -> np.ndarray:
    """Returns the vectors of texts, float32[n, width]."""
    vectors = []
    for first in range(0, len(texts), _BATCH_SIZE):
        batch = list(texts[first : first + _BATCH_SIZE])
        vectors.append(np.asarray(model.vectors(tokenizer(batch, max_seq_length=max_seq_length))))
    return np.concatenate(vectors)


def _evaluate(options: FewShotOptions, dev: Source):
    """Evaluates the classifier as run_classifier does."""
    evaluation = catalog.options_class(_EVALUATION)(
        task_name=FEW_SHOT,
        do_eval=True,
        dev_file=dev if isinstance(dev, str) else None,
        model=options.output_dir,
        output_dir=options.output_dir,
        **{name: getattr(options, name) for name in _COLUMNS},
    )
    fine_tune(evaluation, {} if isinstance(dev, str) else {"dev": dev})
