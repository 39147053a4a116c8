"""official-bert create_student: which weights the student has, and what its folder says."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from official_bert import (
    BertClassifier,
    BertConfig,
    BertPretrainer,
    FullTokenizer,
    Predictor,
)
from official_bert.checkpoints import huggingface, open_checkpoint, tf1
from official_bert.extensions.distillation import create_student
from official_bert.extensions.distillation.options import StudentOptions
from official_bert.io.errors import InputError
from official_bert.model_dir import ModelFolder
from official_bert.tokenizer_config import TokenizerConfig
from tests import toy
from tests.checkpoints.sample import CONFIG, pretraining_shapes, random_weights, with_training_state

LAYERS = BertConfig.from_dict(
    CONFIG.to_dict() | {"num_hidden_layers": 6, "vocab_size": len(toy.VOCABULARY)}
)


@pytest.fixture
def teacher(tmp_path):
    """The output_dir of a pre-training with six layers, and its weights."""
    folder = tmp_path / "teacher"
    folder.mkdir()
    toy.write_vocabulary(folder)
    (folder / "tokenizer_config.json").write_text(TokenizerConfig(True, None, 16).to_json_string())
    (folder / "bert_config.json").write_text(LAYERS.to_json_string())
    weights = random_weights(pretraining_shapes(LAYERS))
    state = {"distillation/hidden": np.ones((2, 2), np.float32)}
    tf1.write(str(folder / "model.ckpt-3"), with_training_state(weights, 3) | state)
    return folder, weights


def make_student(teacher, name="student", **flags):
    """Make a student; return its folder and its weights."""
    folder = teacher.parent / name
    create_student.run(StudentOptions(model=str(teacher), output_dir=str(folder), **flags))
    checkpoint = open_checkpoint(str(folder))
    return folder, {key: checkpoint.read(key) for key in checkpoint.shapes}


def assert_has_layers(student_weights, weights, layers):
    """Assert that a student has these layers of its teacher and all weights of no layer."""
    expected = {name: value for name, value in weights.items() if "layer_" not in name}
    for student_layer, layer in enumerate(layers):
        scope = f"bert/encoder/layer_{layer}/"
        student_scope = f"bert/encoder/layer_{student_layer}/"
        for name, value in weights.items():
            if name.startswith(scope):
                expected[name.replace(scope, student_scope)] = value
    assert sorted(student_weights) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(student_weights[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("flags", "layers"),
    [
        ({"keep_layers": ["1", "4"]}, [1, 4]),
        ({"num_layers": 3}, [0, 2, 5]),
        ({"num_layers": 4}, [0, 1, 3, 5]),
        ({"num_layers": 1}, [0]),
        ({"num_layers": 6}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_layers_are_copied_with_all_that_is_no_layer(teacher, flags, layers):
    folder, weights = teacher
    student, student_weights = make_student(folder, **flags)
    assert_has_layers(student_weights, weights, layers)
    config = json.loads((student / "bert_config.json").read_text())
    assert config == LAYERS.to_dict() | {"num_hidden_layers": len(layers)}
    for name in ("vocab.txt", "tokenizer_config.json"):
        assert (student / name).read_bytes() == (folder / name).read_bytes()
    assert not (student / "task.json").exists()
    model = BertPretrainer.from_pretrained(str(student))
    assert model.config.num_hidden_layers == len(layers)


def test_a_new_model_has_its_size_and_the_vocabulary_of_the_teacher(teacher):
    folder, _ = teacher
    student, weights = make_student(folder, size="L2_H128", random_seed=3)
    config = BertConfig.from_json_file(str(student / "bert_config.json"))
    expected = BertConfig.from_size("L2_H128", len(toy.VOCABULARY), max_position_embeddings=16)
    assert config.to_dict() == expected.to_dict()
    kernel = weights["bert/encoder/layer_1/intermediate/dense/kernel"]
    assert kernel.shape == (128, 512)
    assert 0.015 < kernel.std() < 0.02
    assert (student / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    assert BertPretrainer.from_pretrained(str(student)).config.hidden_size == 128


def test_the_seed_determines_the_weights_of_a_new_model(teacher):
    folder, _ = teacher
    name = "bert/embeddings/word_embeddings"
    tables = []
    for student, seed in (("first", 3), ("same", 3), ("other", 4)):
        _, weights = make_student(folder, student, size="L2_H128", random_seed=seed)
        tables.append(weights[name])
    first, same, other = tables
    assert (first == same).all()
    assert not (first == other).all()


def test_the_head_of_a_task_goes_with_its_labels(teacher, tmp_path):
    folder, _ = teacher
    model = BertClassifier(LAYERS, 2)
    trained = tmp_path / "trained"
    model.save_pretrained(
        str(trained), tokenizer=FullTokenizer.from_pretrained(str(folder)), labels=["no", "yes"]
    )
    out, _ = make_student(trained, num_layers=2)
    assert Predictor(str(out))("the cat")["probabilities"].keys() == {"no", "yes"}
    assert ModelFolder(str(out)).task() == ModelFolder(str(trained)).task()


def test_a_student_of_sentence_transformers_says_how_vectors_are_made(teacher, tmp_path):
    embeddings = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    folder, weights = teacher
    model = shutil.copytree(
        folder, tmp_path / "sentences", ignore=shutil.ignore_patterns("model.ckpt*", "bert_*")
    )
    encoder = {name: value for name, value in weights.items() if name.startswith("bert/")}
    huggingface.write(str(model), encoder, LAYERS)
    toy.write_sentence_modules(model)
    out, tensors = make_student(model, keep_layers=["0", "1", "2", "3", "4", "5"])
    assert_has_layers(tensors, encoder, range(6))
    record = ModelFolder(str(out)).task()
    assert (record.family, record.settings) == (
        "embedding",
        {"pooling": "mean", "normalize": False, "max_seq_length": 16},
    )
    texts = ["the cat", "a day in the park"]
    vectors = [embeddings.SentenceEncoder(str(one)).encode(texts) for one in (model, out)]
    np.testing.assert_allclose(*vectors, atol=1e-5)
    (model / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    (model / "tokenizer_config.json").write_text(TokenizerConfig(False, None, 16).to_json_string())
    with pytest.raises(
        InputError, match="has do_lower_case beside a cased tokenizer, which a student cannot keep"
    ):
        make_student(model, "cased", num_layers=2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, "--keep_layers and --num_layers and --size: give one of"),
        ({"num_layers": 2, "size": "L2_H128"}, "--num_layers and --size: give one of"),
        ({"num_layers": 7}, "--num_layers=7: the model has only 6 layers"),
        (
            {"keep_layers": ["2", "1"]},
            "--keep_layers=2,1: must be different layers of 0 to 5, the lowest first",
        ),
        ({"keep_layers": ["1", "1"]}, "--keep_layers=1,1: must be different"),
        ({"keep_layers": ["6"]}, "--keep_layers=6: must be different"),
        ({"size": "L3_H128"}, "no model size is called 'L3_H128'; choose one of tiny"),
        ({"num_layers": 2, "output_dir": "teacher"}, "must be a new folder or an empty one"),
    ],
)
def test_a_student_that_cannot_be_made_is_refused(teacher, flags, message):
    folder, _ = teacher
    options = StudentOptions(
        model=str(folder), output_dir=str(folder.parent / flags.pop("output_dir", "new"))
    )
    with pytest.raises(InputError, match=message):
        create_student.run(dataclasses.replace(options, **flags))
    assert not (folder.parent / "new").exists()
