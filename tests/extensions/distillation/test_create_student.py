"""official-bert create_student: which weights the student has, and what its folder says."""

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

SIX_LAYERS = {
    "num_hidden_layers": 6,
    "vocab_size": len(toy.VOCABULARY),
}
LAYERS = BertConfig.from_dict(CONFIG.to_dict() | SIX_LAYERS)


@pytest.fixture
def teacher(tmp_path):
    """The output_dir of a pre-training with six layers, and its weights."""
    folder = tmp_path / "teacher"
    folder.mkdir()
    toy.write_vocabulary(folder)
    write_tokenizer_config(folder, do_lower_case=True)
    (folder / "bert_config.json").write_text(LAYERS.to_json_string())
    weights = random_weights(pretraining_shapes(LAYERS))
    state = with_training_state(weights, 3)
    state["distillation/hidden"] = np.ones((2, 2), np.float32)
    tf1.write(str(folder / "model.ckpt-3"), state)
    return folder, weights


def write_tokenizer_config(folder, do_lower_case: bool):
    config = TokenizerConfig(do_lower_case, None, 16)
    (folder / "tokenizer_config.json").write_text(config.to_json_string())


def make_student(teacher, name="student", **flags):
    """Make a student; return its folder and its weights."""
    folder = teacher.parent / name
    options = StudentOptions(model=str(teacher), output_dir=str(folder), **flags)
    create_student.run(options)
    checkpoint = open_checkpoint(str(folder))
    weights = {name: checkpoint.read(name) for name in checkpoint.shapes}
    return folder, weights


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
        pytest.param({"keep_layers": ["1", "4"]}, [1, 4], id="chosen layers"),
        pytest.param({"num_layers": 3}, [0, 2, 5], id="3 layers"),
        pytest.param({"num_layers": 4}, [0, 1, 3, 5], id="4 layers"),
        pytest.param({"num_layers": 1}, [0], id="1 layer"),
        pytest.param({"num_layers": 6}, [0, 1, 2, 3, 4, 5], id="all layers"),
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
    expected = BertConfig.from_size(
        "L2_H128",
        len(toy.VOCABULARY),
        max_position_embeddings=16,
    )
    assert config.to_dict() == expected.to_dict()
    kernel = weights["bert/encoder/layer_1/intermediate/dense/kernel"]
    assert kernel.shape == (128, 512)
    assert 0.015 < kernel.std() < 0.02
    vocabulary = (student / "vocab.txt").read_bytes()
    assert vocabulary == (folder / "vocab.txt").read_bytes()
    model = BertPretrainer.from_pretrained(str(student))
    assert model.config.hidden_size == 128


def test_the_seed_determines_the_weights_of_a_new_model(teacher):
    folder, _ = teacher

    def make_word_embeddings(name: str, seed: int) -> np.ndarray:
        _, weights = make_student(folder, name, size="L2_H128", random_seed=seed)
        return weights["bert/embeddings/word_embeddings"]

    first = make_word_embeddings("first", 3)
    same = make_word_embeddings("same", 3)
    other = make_word_embeddings("other", 4)
    assert (first == same).all()
    assert not (first == other).all()


def test_the_head_of_a_task_goes_with_its_labels(teacher, tmp_path):
    folder, _ = teacher
    model = BertClassifier(LAYERS, 2)
    trained = tmp_path / "trained"
    model.save_pretrained(
        str(trained),
        tokenizer=FullTokenizer.from_pretrained(str(folder)),
        labels=["no", "yes"],
    )
    student, _ = make_student(trained, num_layers=2)
    answer = Predictor(str(student))("the cat")
    assert answer["probabilities"].keys() == {"no", "yes"}
    assert ModelFolder(str(student)).task() == ModelFolder(str(trained)).task()


def test_a_student_of_sentence_transformers_says_how_vectors_are_made(teacher, tmp_path):
    embeddings = pytest.importorskip("official_bert.extensions.embeddings.sentence_encoder")
    folder, weights = teacher
    model = shutil.copytree(
        folder,
        tmp_path / "sentences",
        ignore=shutil.ignore_patterns("model.ckpt*", "bert_*"),
    )
    encoder_weights = {name: value for name, value in weights.items() if name.startswith("bert/")}
    huggingface.write(str(model), encoder_weights, LAYERS)
    toy.write_sentence_modules(model)
    student, student_weights = make_student(model, keep_layers=["0", "1", "2", "3", "4", "5"])
    assert_has_layers(student_weights, encoder_weights, range(6))
    record = ModelFolder(str(student)).task()
    assert record.family == "embedding"
    assert record.settings == {
        "pooling": "mean",
        "normalize": False,
        "max_seq_length": 16,
    }

    texts = ["the cat", "a day in the park"]
    student_encoder = embeddings.SentenceEncoder(str(student))
    encoder = embeddings.SentenceEncoder(str(model))
    vectors = student_encoder.encode(texts)
    np.testing.assert_allclose(vectors, encoder.encode(texts), atol=1e-5)

    (model / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    write_tokenizer_config(model, do_lower_case=False)
    message = "has do_lower_case with a cased tokenizer, which is not supported for teachers"
    with pytest.raises(InputError, match=message):
        make_student(model, "cased", num_layers=2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param(
            {},
            "--keep_layers and --num_layers and --size: give one of",
            id="no size",
        ),
        pytest.param(
            {"num_layers": 2, "size": "L2_H128"},
            "--num_layers and --size: give one of",
            id="two sizes",
        ),
        pytest.param(
            {"num_layers": 7},
            "--num_layers=7: the model has only 6 layers",
            id="more layers than the teacher",
        ),
        pytest.param(
            {"keep_layers": ["2", "1"]},
            "--keep_layers=2,1: must be different layers of 0 to 5, the lowest first",
            id="layers in another order",
        ),
        pytest.param(
            {"keep_layers": ["1", "1"]},
            "--keep_layers=1,1: must be different",
            id="a layer twice",
        ),
        pytest.param(
            {"keep_layers": ["6"]},
            "--keep_layers=6: must be different",
            id="absent layer",
        ),
        pytest.param(
            {"size": "L3_H128"},
            "no model size is called 'L3_H128'; choose one of tiny",
            id="unknown size",
        ),
    ],
)
def test_a_student_that_cannot_be_made_is_refused(teacher, flags, message):
    folder, _ = teacher
    with pytest.raises(InputError, match=message):
        make_student(folder, **flags)
    assert not (folder.parent / "student").exists()


def test_a_student_needs_a_new_folder(teacher):
    folder, _ = teacher
    with pytest.raises(InputError, match="must be a new folder or an empty one"):
        make_student(folder, "teacher", num_layers=2)
