"""Small exported models, one of each kind of task, and their expected outputs.

The checkpoints hold weights that are large enough to give different answers; a model that loads
them independently gives the expected values. `shared_export` gives what the whole test session
shares, each export made once.
"""

import contextlib
import copy
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from official_bert import catalog
from official_bert.checkpoints import load_checkpoint, named_variables, tf1
from official_bert.config import BertConfig
from official_bert.options.serving import ExportOptions
from official_bert.serving import model as serving_model
from official_bert.serving.model import Export
from official_bert.tasks import registry
from official_bert.tasks.choice.examples import NUM_CHOICES
from official_bert.tasks.choice.task import ChoiceTask
from official_bert.tasks.classification.glue import MrpcProcessor, StsbProcessor
from official_bert.tasks.classification.task import ClassificationTask
from official_bert.tasks.classification.text import TextProcessor
from official_bert.tasks.pretraining.task import PretrainingTask
from official_bert.tasks.squad.task import SquadTask
from official_bert.tasks.tagging.task import TaggingTask
from tests import session, toy
from tests.fine_tuning_runs import needs_family

LABELS = ["left", "right", "none at all"]
TAGS = ["O", "B-X", "I-X"]
KINDS = ("mrpc", "sts-b", "tsv", "swag", "squad", "ner", "pretraining")
# Lengths that cut short contexts into several windows, and the threshold at which some of them have
# no answer.
SQUAD_2 = {
    "doc_stride": 5,
    "max_query_length": 6,
    "version_2_with_negative": True,
    "null_score_diff_threshold": -0.4,
}


class Exported(NamedTuple):
    """The folder of an exported version, and what it was made of; `model` has the checkpoint's
    weights.
    """

    path: pathlib.Path
    options: ExportOptions
    task: Any
    model: Any


def make_task(kind: str):
    """A task of this kind, made without the export's runner."""
    needs_family(kind)
    if kind == "mrpc":
        return ClassificationTask(MrpcProcessor())
    if kind == "sts-b":
        return ClassificationTask(StsbProcessor())
    if kind == "tsv":
        processor = TextProcessor("0", labels=LABELS, is_multi_label=True)
        return ClassificationTask(processor)
    if kind == "swag":
        return ChoiceTask()
    if kind == "squad":
        return SquadTask()
    if kind == "ner":
        return TaggingTask(TAGS)
    if kind == "pretraining":
        return PretrainingTask(toy.VOCABULARY)
    assert kind == "embedding"
    return registry.make_task("embedding", {})


def make_checkpoint(
    folder: pathlib.Path, kind: str, pieces: Sequence[str] = toy.VOCABULARY
) -> tuple[Any, Any]:
    """Makes a folder with checkpoint, configuration, vocabulary and, where the task has them,
    labels.

    Returns:
        The task, and a Keras model with the checkpoint's weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    toy.write_vocabulary(folder, pieces)
    fields = {"num_hidden_layers": 1, "vocab_size": len(pieces)}
    config = BertConfig.from_dict(toy.BERT_CONFIG | fields)
    (folder / "bert_config.json").write_text(config.to_json_string())
    task = make_task(kind)
    if task.labels:
        lines = [f"{label}\n" for label in task.labels]
        (folder / "labels.txt").write_text("".join(lines))
    model = task.build_model(config, use_one_hot_embeddings=False)
    draws = np.random.default_rng(1)
    weights = {}
    for name, variable in named_variables(model).items():
        values = draws.normal(scale=0.4, size=variable.shape)
        weights[name] = values.astype(np.float32)
    tf1.write(str(folder / "model.ckpt"), weights)
    return read_checkpoint(folder, kind)


def read_checkpoint(folder: pathlib.Path, kind: str) -> tuple[Any, Any]:
    """The task, and a Keras model with the weights, of what `make_checkpoint` made."""
    task = make_task(kind)
    config = BertConfig.from_json_file(str(folder / "bert_config.json"))
    model = task.build_model(config, use_one_hot_embeddings=False)
    load_checkpoint(model, str(folder / "model.ckpt"))
    return task, model


def export_options(folder: pathlib.Path, kind: str, **others) -> ExportOptions:
    """Options for the export of what `make_checkpoint` made; formats are a text, as on the
    command line.
    """
    if "export_format" in others:
        others["export_format"] = others["export_format"].split(",")
    return catalog.options_class("export_saved_model")(
        task_name=kind,
        export_dir=str(folder / "exports"),
        init_checkpoint=str(folder / "model.ckpt"),
        bert_config_file=str(folder / "bert_config.json"),
        vocab_file=str(folder / "vocab.txt"),
        max_seq_length=24,
        label_type="multi" if kind == "tsv" else None,
        **others,
    )


def shared_export(tmp_path_factory, kind: str, **others) -> Exported:
    """An export of a task of this kind with further flags, by the script's runner, beside its
    checkpoint.

    The first test that asks makes it, for all test files and for all processes of pytest-xdist:
    read it, and write elsewhere.
    """
    return _shared_export(
        session.shared_folder(tmp_path_factory), kind, tuple(sorted(others.items()))
    )


@functools.cache
def _shared_export(base: pathlib.Path, kind: str, flags: tuple[tuple[str, Any], ...]) -> Exported:
    name = "-".join([kind, *(f"{flag}-{value}" for flag, value in flags)])
    with session.alone_in(base / name) as folder:
        options = export_options(folder, kind, **dict(flags))
        version = folder / "exports" / "1"
        if not version.exists():
            make_checkpoint(folder, kind)
            serving_model.export(options)
        return Exported(version, options, *read_checkpoint(folder, kind))


@contextlib.contextmanager
def models_loaded_once():
    """Opens each folder of an export or of a model once in a block, since loading and first calls
    take seconds.

    A Predictor of the block has its own batch size; other settings, such as threads, open the
    folder again. The folders must not change.
    """
    for hook in catalog.hooks("predictor_methods"):
        hook()  # imports the modules of extensions, which are to have the real classes

    @functools.cache
    def load(model_dir: str, num_threads: int | None, settings: tuple) -> Export:
        return Export(model_dir, 32, num_threads, dict(settings))

    def load_export(
        model_dir: str, batch_size: int, num_threads: int | None, settings: Mapping[str, Any]
    ) -> Export:
        loaded = load(model_dir, num_threads, tuple(sorted(settings.items())))
        loaded = copy.copy(loaded)
        loaded._batch_size = batch_size
        return loaded

    load_model = functools.cache(serving_model.CheckpointModel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving_model, "Export", load_export)
        patch.setattr(serving_model, "CheckpointModel", load_model)
        yield


def batch(kind: str, size: int, length: int) -> dict[str, np.ndarray]:
    """Encoder features of examples of different lengths, the first as long as can be: int32[size,
    length] each.

    With the choices between the two dimensions where the task has them.
    """
    draws = np.random.default_rng(size + length)
    shape = (size, NUM_CHOICES, length) if kind == "swag" else (size, length)
    lengths = draws.integers(3, length + 1, shape[:-1])
    lengths.flat[0] = length
    positions = np.arange(length)
    mask = positions < lengths[..., None]
    second_starts = draws.integers(1, length, shape[:-1])
    is_second = positions >= second_starts[..., None]
    ids = draws.integers(1, len(toy.VOCABULARY), shape)
    return {
        "input_ids": np.int32(np.where(mask, ids, 0)),
        "input_mask": np.int32(mask),
        "segment_ids": np.int32(mask & is_second),
    }


def expected(exported: Exported, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes the outputs of the task's scripts for a batch, under the names of the signatures'
    outputs.
    """
    task = exported.task
    model = exported.model
    if isinstance(task, PretrainingTask):
        encoded = model.bert(*features.values())
        return {
            "sequence_output": np.asarray(encoded.sequence_output),
            "pooled_output": np.asarray(encoded.pooled_output),
        }
    size, *_, length = features["input_ids"].shape
    shape = (size,)
    if isinstance(task, TaggingTask):
        shape = (size, length)
    elif _is_multi_label(task):
        shape = (size, len(task.labels))
    unlabelled = {
        "label_ids": np.zeros(shape, np.int32),
        "label_mask": np.ones(shape, np.int32),
        "is_real_example": np.ones(size, np.int32),
    }
    outputs = {}
    for name, value in task.outputs(model, features | unlabelled).items():
        if "loss" in name:
            continue
        outputs[name] = np.asarray(value)
        if isinstance(task, SquadTask):  # its logits have the length of the script's windows
            outputs[name] = outputs[name][:, :length]
    return outputs | _strings(task, model, features, outputs)


def _is_multi_label(task) -> bool:
    return isinstance(task, ClassificationTask) and task.processor.is_multi_label


def _strings(task, model, features, outputs) -> dict[str, np.ndarray]:
    """The outputs that the scripts have as numbers, by what they write."""
    if isinstance(task, ChoiceTask):
        choices = outputs["probabilities"].argmax(-1)
        return {"choice": choices.astype(np.int32)}
    if not task.labels:
        return {}

    names = np.array([label.encode() for label in task.labels], object)
    if isinstance(task, TaggingTask):
        logits = np.asarray(model(features))
        tags = names[outputs["tags"]]
        highest = logits.max(-1, keepdims=True)
        exponents = np.exp(logits - highest)
        return {
            "tags": np.where(features["input_mask"] == 1, tags, b""),
            "logits": logits,
            "probabilities": exponents / exponents.sum(-1, keepdims=True),
        }
    predictions = task.predictions(outputs)
    if _is_multi_label(task):
        return {"labels": np.where(predictions == 1, names, b"")}
    return {"label": names[predictions]}
