"""The folder of a model answers as an export of it, for every kind of task."""

import dataclasses
import json
import os
import re
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy

from official_bert import (
    BertClassifier,
    BertConfig,
    BertPretrainer,
    InputError,
    Predictor,
    model_dir,
)
from official_bert.options.serving import ServedOptions
from official_bert.serving.export import make_record
from official_bert.serving.model import CheckpointModel, Export, build
from official_bert.tasks import registry
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy
from tests.hostile.rows import edit_json
from tests.serving import exported
from tests.serving.answers import assert_same
from tests.serving.exported import batch
from tests.shared import in_test_long


@pytest.mark.parametrize(
    "kind", ["mrpc", "squad", "pretraining", *in_test_long("sts-b", "tsv", "swag", "ner")]
)
def test_the_signatures_are_those_of_the_export(tmp_path, tmp_path_factory, kind):
    made = exported.shared_export(tmp_path_factory, kind)
    loaded = Export(str(made.path))
    path = str(tmp_path / "model")  # as the training of the exported model would have left it
    trained = os.path.dirname(made.options.init_checkpoint)
    shutil.copytree(trained, path, ignore=lambda *_: ["exports"])
    settings = loaded.record.settings
    record = model_dir.TaskRecord(kind, registry.task_family(kind), settings)
    model_dir.write_record(path, record)
    live = CheckpointModel(path)
    assert live.record.settings == settings
    assert live.labels == loaded.labels
    assert live.outputs == loaded.outputs
    assert live.inputs.keys() == loaded.inputs.keys()
    for name, inputs in live.inputs.items():
        assert set(inputs) == set(loaded.inputs[name])
    features = batch(kind, 3, 11)
    assert_same(live("serving_default", features), loaded("serving_default", features))


CONFIG = BertConfig.from_dict(toy.BERT_CONFIG)
NAMES = ["no", "yes", "perhaps"]


@pytest.mark.parametrize(
    ("form", "lost", "problem", "num_outputs"),
    [
        ("tf1", [], None, 3),
        ("huggingface", [], None, 3),
        ("huggingface", ["task.json"], None, 3),
        ("huggingface", ["task.json", "labels.txt"], None, 3),  # as transformers saves it
        ("huggingface", ["task.json", "labels.txt"], "multi_label_classification", 3),
        ("huggingface", ["task.json", "labels.txt"], None, 1),
    ],
)
def test_a_model_of_python_or_of_hugging_face_answers_by_its_labels(
    tmp_path, tokenizer, form, lost, problem, num_outputs
):
    model = BertClassifier(CONFIG, num_outputs)
    draws = np.random.default_rng(5)
    weights = draws.normal(size=model.output_weights.shape)
    model.output_weights.assign(weights)
    folder = tmp_path / "model"
    labels = NAMES if num_outputs == 3 else None
    model.save_pretrained(str(folder), form, tokenizer, labels)
    for name in lost:
        (folder / name).unlink(missing_ok=True)
    if problem:
        edit_json(folder / "config.json", problem_type=problem)
    answer = Predictor(str(folder))("the cat sat", "on the mat")
    (logits,) = np.float64(model(tokenizer("the cat sat", "on the mat")))
    if num_outputs == 1:
        assert answer["score"] == pytest.approx(logits[0], abs=1e-5)
        return
    if problem:
        probabilities = 1 / (1 + np.exp(-logits))
    else:
        exponents = np.exp(logits)
        probabilities = exponents / exponents.sum()
    expected = dict(zip(NAMES, probabilities, strict=True))
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)


def test_the_label_type_of_a_hugging_face_folder_stays(tmp_path, tokenizer):
    model = BertClassifier(CONFIG, 3)
    theirs = tmp_path / "theirs"
    model.save_pretrained(str(theirs), "huggingface", tokenizer, NAMES)
    (theirs / "task.json").unlink()
    edit_json(theirs / "config.json", problem_type="multi_label_classification")
    loaded = BertClassifier.from_pretrained(str(theirs))
    loaded.save_pretrained(str(tmp_path / "huggingface"), "huggingface", tokenizer)
    loaded.save_pretrained(str(tmp_path / "tf1"), "tf1", tokenizer, NAMES)
    for name in ("huggingface", "tf1"):
        folder = model_dir.ModelFolder(str(tmp_path / name))
        assert folder.task().settings == {"label_type": "multi"}


def test_a_served_model_draws_no_weights(tmp_path, tokenizer, monkeypatch):
    BertClassifier(CONFIG, 3).save_pretrained(str(tmp_path), "tf1", tokenizer, NAMES)
    drawn_shapes = []
    draw = keras.initializers.TruncatedNormal.__call__

    def count(initializer, shape, **settings):
        drawn_shapes.append(shape)
        return draw(initializer, shape, **settings)

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", count)
    model = CheckpointModel(str(tmp_path)).trained.model
    assert drawn_shapes == []
    assert all(np.any(weight.numpy()) for weight in model.weights if "kernel" in weight.path)
    BertClassifier(CONFIG, 3)
    assert drawn_shapes


def test_heads_beside_those_of_a_pretraining_are_ignored_with_a_warning(
    tmp_path, tokenizer, caplog
):
    """As proteins' and antibodies' models have them."""
    model = BertPretrainer(CONFIG)
    model.save_pretrained(str(tmp_path), "huggingface", tokenizer)
    path = tmp_path / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors["cls.chain.bias"] = np.ones(2, np.float32)
    safetensors.numpy.save_file(tensors, path)
    assert CheckpointModel(str(tmp_path)).record.task_name == "pretraining"
    assert "has weights that the model does not use: cls.chain.bias" in caplog.text


def test_the_labels_of_a_hugging_face_folder_are_compared_with_those_of_the_task(
    tmp_path, tokenizer
):
    """As transformers writes a model of MNLI, whose outputs have another order than those of the
    original.
    """
    labels = ["entailment", "neutral", "contradiction"]
    model = BertClassifier(CONFIG, 3)
    model.save_pretrained(str(tmp_path), "huggingface", tokenizer, labels)
    for name in ("task.json", "labels.txt"):
        (tmp_path / name).unlink()
    options = ServedOptions(model=str(tmp_path), task_name="MNLI")
    sentence = (
        "--task_name=MNLI: its labels are contradiction, entailment, neutral, but those beside the "
        "checkpoint are entailment, neutral, contradiction, as .*config.json says; give "
        "--task_name=tsv"
    )
    with pytest.raises(InputError, match=sentence):
        build(options)
    options = dataclasses.replace(options, task_name="text")
    assert build(options).task.labels == labels
    options = dataclasses.replace(options, labels=["b", "a", "c"])
    with pytest.raises(InputError, match="--labels: they are b, a, c, but those beside"):
        build(options)


def test_casing_and_threshold_come_from_the_folder(tmp_path):
    exported.make_checkpoint(tmp_path, "squad", [*toy.VOCABULARY, "The"])
    (tmp_path / "tokenizer_config.json").write_text(TokenizerConfig(False).to_json_string())
    settings = {
        "max_seq_length": 70,
        "version_2_with_negative": True,
        "null_score_diff_threshold": -7.25,
    }
    record = {"task_name": "squad", "family": "squad", "settings": settings}
    (tmp_path / "task.json").write_text(json.dumps(record))
    model = CheckpointModel(str(tmp_path))
    assert model.tokenizer.tokenize("The the") == ["The", "the"]
    found = model.record.settings
    assert {name: found[name] for name in settings} == settings
    assert found["do_lower_case"] is False


def test_an_export_has_the_threshold_of_its_flag_or_else_of_the_folder(tmp_path):
    exported.make_checkpoint(tmp_path, "mrpc")
    record = {"task_name": "MRPC", "family": "classification", "settings": {"abstain_below": 0.7}}
    (tmp_path / "task.json").write_text(json.dumps(record))
    features = batch("mrpc", 12, 8)
    labels_by_threshold = {}
    for flag, threshold in ((None, 0.7), (0.95, 0.95), (0.0, 0.0)):
        built = build(exported.export_options(tmp_path, "mrpc", abstain_below=flag))
        assert make_record(built).settings["abstain_below"] == threshold
        outputs = built.task.serving_outputs(built.model, features)
        probabilities = np.asarray(outputs["probabilities"])
        names = np.array([b"0", b"1"], object)[probabilities.argmax(-1)]
        labels = np.where(probabilities.max(-1) >= threshold, names, b"")
        assert outputs["label"].numpy().tolist() == labels.tolist()
        labels_by_threshold[threshold] = labels.tolist()
    assert len(set(map(tuple, labels_by_threshold.values()))) == 3


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("tsv", "--abstain_below: only for tasks with one label an example"),
        ("sts-b", "--abstain_below: only for tasks with one label an example"),
        (
            "swag",
            "--abstain_below=0.5: the task of this model does not read it; leave the flag out",
        ),
    ],
)
def test_a_threshold_is_for_one_label(tmp_path, kind, sentence):
    exported.make_checkpoint(tmp_path, kind)
    with pytest.raises(InputError, match=re.escape(sentence)):
        build(exported.export_options(tmp_path, kind, abstain_below=0.5))
