"""Models that are written as folders and read again, and files of Keras."""

import json
import os

import numpy as np
import pytest

from official_bert import (
    BertChoice,
    BertClassifier,
    BertConfig,
    BertModel,
    BertPretrainer,
    BertSpans,
    BertTagger,
    FullTokenizer,
    InputError,
    keras_optimizer,
)
from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import named_variables, tf1
from tests import toy
from tests.checkpoints.sample import CONFIG as SMALL
from tests.checkpoints.sample import encoder_shapes, pretraining_shapes, random_weights
from tests.scripts import run_interpreter

FOUR_IDS = np.int32([[2, 7, 9, 3], [2, 8, 3, 0]])


def write_folder(folder, weights, config=SMALL) -> str:
    os.makedirs(folder, exist_ok=True)
    (folder / "bert_config.json").write_text(config.to_json_string())
    tf1.write(str(folder / "bert_model.ckpt"), weights)
    return str(folder)


def assert_weights(model, weights):
    for name, variable in named_variables(model).items():
        if name in weights:
            np.testing.assert_array_equal(variable.numpy(), weights[name], err_msg=name)


def test_a_prefix_or_a_folder_with_a_best_checkpoint_makes_a_model(tmp_path):
    """tests/checkpoints/test_loading.py has the other forms of checkpoints."""
    weights = random_weights(pretraining_shapes(SMALL))
    write_folder(tmp_path / "given", weights)
    out = tmp_path / "out"
    tf1.write(str(out / "best" / "model.ckpt-5"), weights)
    (out / "bert_config.json").write_text(SMALL.to_json_string())
    checkpoint_folder.write_state(str(out / "best"), ["model.ckpt-5"])
    for path in (tmp_path / "given" / "bert_model.ckpt", out):
        model = BertPretrainer.from_pretrained(path)
        assert model.config.to_dict() == SMALL.to_dict()
        assert_weights(model, weights)


CLASSES = [
    (BertModel, {}, "BertModel"),
    (BertPretrainer, {}, "BertForPreTraining"),
    (BertClassifier, {"num_outputs": 3}, "BertForSequenceClassification"),
    (BertTagger, {"num_outputs": 5}, "BertForTokenClassification"),
    (BertSpans, {}, "BertForQuestionAnswering"),
    (BertChoice, {}, "BertForMultipleChoice"),
]


@pytest.mark.parametrize(("model_class", "arguments", "architecture"), CLASSES)
@pytest.mark.parametrize("form", ["tf1", "huggingface"])
def test_what_is_saved_is_loaded(tmp_path, model_class, arguments, architecture, form):
    model = model_class(SMALL, **arguments, name="mine")
    for variable in model.weights:
        variable.assign(np.random.default_rng(len(variable.path)).normal(size=variable.shape))
    folder = str(tmp_path / "new")
    model_class(SMALL, **arguments).save_pretrained(folder, format=form)
    model.save_pretrained(folder, format=form)  # replaces it
    if form == "tf1":
        stored = tf1.Tf1Checkpoint(f"{folder}/bert_model.ckpt")
        assert sorted(stored.shapes) == sorted(named_variables(model))
        assert "global_step" not in stored.shapes
    else:
        with open(f"{folder}/config.json") as file:
            assert json.load(file)["architectures"] == [architecture]
    again = model_class.from_pretrained(folder)  # the number of outputs is that of the head
    assert again.config.to_dict() == SMALL.to_dict()
    for one, other in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=one.path)


def test_a_new_head_is_drawn_and_the_log_says_so(tmp_path, caplog):
    weights = random_weights(encoder_shapes(SMALL))
    folder = write_folder(tmp_path, weights)
    with pytest.raises(
        InputError, match=r"has no output_weights, and no labels.txt .* give num_outputs"
    ):
        BertClassifier.from_pretrained(folder)
    model = BertClassifier.from_pretrained(folder, num_outputs=4)
    assert model({"input_ids": FOUR_IDS}).shape == (2, 4)
    assert_weights(model, weights)
    assert "randomly initialised: output_weights, output_bias\n" in caplog.text

    (tmp_path / "labels.txt").write_text("yes\nno\nperhaps\n")
    assert BertTagger.from_pretrained(folder).num_outputs == 3
    assert BertChoice.from_pretrained(folder).num_outputs == 1


def test_a_head_of_another_size_is_drawn_on_request(tmp_path):
    weights = random_weights(encoder_shapes(SMALL))
    head = {
        "output_weights": np.ones((3, SMALL.hidden_size), np.float32),
        "output_bias": np.ones(3, np.float32),
    }
    folder = write_folder(tmp_path, weights | head)
    (tmp_path / "labels.txt").write_text("yes\nno\nperhaps\n")
    with pytest.raises(
        InputError,
        match=r"has shape \[3, .*or pass ignore_mismatched_sizes=True, which draws a new",
    ):
        BertClassifier.from_pretrained(folder, num_outputs=4)
    model = BertClassifier.from_pretrained(folder, num_outputs=4, ignore_mismatched_sizes=True)
    assert (model.num_outputs, model.labels, model.output_weights.shape[0]) == (4, None, 4)
    assert_weights(model, weights)
    assert not model.output_bias.numpy().any()
    same = BertClassifier.from_pretrained(folder, ignore_mismatched_sizes=True)
    np.testing.assert_array_equal(same.output_weights, head["output_weights"])


def test_a_pooler_may_be_missing_but_no_layer(tmp_path, caplog):
    weights = random_weights(encoder_shapes(SMALL))
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        del weights[name]
    folder = write_folder(tmp_path, weights)
    assert_weights(BertModel.from_pretrained(folder), weights)
    assert "randomly initialised: bert/pooler/dense/kernel, bert/pooler/dense/bias" in caplog.text

    deeper = BertConfig.from_dict(SMALL.to_dict() | {"num_hidden_layers": 3})
    (tmp_path / "bert_config.json").write_text(deeper.to_json_string())
    with pytest.raises(InputError, match=r"lacks bert/encoder/layer_2/.* no whole encoder"):
        BertModel.from_pretrained(folder)
    shallower = BertConfig.from_dict(SMALL.to_dict() | {"num_hidden_layers": 1})
    (tmp_path / "bert_config.json").write_text(shallower.to_json_string())
    with pytest.raises(InputError, match="has bert/encoder/layer_1/"):
        BertModel.from_pretrained(folder)


def test_what_cannot_be_loaded_is_named(tmp_path):
    weights = random_weights(encoder_shapes(SMALL)) | {
        "output_weights": np.zeros((3, 8), np.float32)
    }
    folder = write_folder(tmp_path, weights)
    with pytest.raises(InputError, match=r"output_weights has shape \[3, 8\] .* \[2, 8\]"):
        BertClassifier.from_pretrained(folder, num_outputs=2)
    (tmp_path / "bert_config.json").unlink()
    (tmp_path / "config.json").write_text('{"of": "another program"}')
    with pytest.raises(
        InputError, match=r"neither bert_config.json nor config.json of a model lies beside"
    ):
        BertModel.from_pretrained(folder)
    with pytest.raises(InputError, match="no checkpoint there"):
        BertModel.from_pretrained(str(tmp_path / "nowhere"))


def test_a_subclass_may_take_any_argument(tmp_path):
    class Own(BertModel):
        def __init__(self, config, **arguments):
            number = arguments.pop("number")
            super().__init__(config, **arguments)
            self.number = number

    folder = write_folder(tmp_path, random_weights(encoder_shapes(SMALL)))
    model = Own.from_pretrained(folder, number=7, use_one_hot_embeddings=True, name="mine")
    assert (model.number, model.use_one_hot_embeddings, model.name) == (7, True, "mine")


def test_the_vocabulary_goes_with_the_model(tmp_path):
    pieces = [*toy.VOCABULARY, "park", ""]  # a piece twice, and a blank line
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, pieces))
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"vocab_size": len(pieces)})
    BertModel(config).save_pretrained(str(tmp_path / "new"), tokenizer=tokenizer)
    again = FullTokenizer(str(tmp_path / "new" / "vocab.txt"))
    assert len(again.vocab) == len(pieces)
    text = "The sunny park station line 15"
    assert again.encode(text) == tokenizer.encode(text)
    assert again.encode("park") == [len(toy.VOCABULARY)]

    with pytest.raises(InputError, match=r"tokenizer: has 52 lines, .* vocab_size 20"):
        BertModel(SMALL).save_pretrained(str(tmp_path / "other"), tokenizer=tokenizer)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("form", "there"),
    [
        ("tf1", "model.safetensors"),
        ("huggingface", "bert_model.ckpt.index"),
        ("huggingface", "model.safetensors.index.json"),
    ],
)
def test_a_folder_with_another_checkpoint_is_refused(tmp_path, form, there):
    (tmp_path / there).write_text("")
    with pytest.raises(
        InputError, match=f"holds another checkpoint \\({there}\\), which would be read instead"
    ):
        BertModel(SMALL).save_pretrained(str(tmp_path), form)
    assert os.listdir(tmp_path) == [there]
    with pytest.raises(InputError, match="format='torch': must be one of tf1, huggingface"):
        BertModel(SMALL).save_pretrained(str(tmp_path / "new"), "torch")


@pytest.mark.parametrize(
    ("form", "there"), [("tf1", "bert_model.ckpt.index"), ("huggingface", "model.safetensors")]
)
def test_a_checkpoint_of_another_model_is_not_replaced(tmp_path, form, there):
    BertPretrainer(SMALL).save_pretrained(str(tmp_path), form)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    larger = BertConfig.from_dict(
        SMALL.to_dict() | {"num_hidden_layers": SMALL.num_hidden_layers + 1}
    )
    for model in (BertModel(SMALL), BertPretrainer(larger)):
        with pytest.raises(
            InputError, match=f"holds another checkpoint \\({there}\\), which would be lost; name"
        ):
            model.save_pretrained(str(tmp_path), form)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_labels_stay_with_a_model(tmp_path):
    model = BertClassifier(SMALL, 2)
    for labels in (["a"], ["a", "a"], ["a", "b\nc"], ["a", ""], [0], [0, 1]):
        with pytest.raises(
            InputError, match="labels: must be 2 different texts, one for each output of the model"
        ):
            model.save_pretrained(str(tmp_path / "refused"), labels=labels)
    assert not (tmp_path / "refused").exists()
    model.save_pretrained(str(tmp_path / "first"), labels=["b", "a"])
    BertClassifier.from_pretrained(str(tmp_path / "first")).save_pretrained(
        str(tmp_path / "second"), "huggingface"
    )
    assert json.loads((tmp_path / "second" / "config.json").read_text())["id2label"] == {
        "0": "b",
        "1": "a",
    }
    (tmp_path / "second" / "labels.txt").unlink()
    BertTagger.from_pretrained(str(tmp_path / "second")).save_pretrained(str(tmp_path / "third"))
    assert (tmp_path / "third" / "labels.txt").read_text() == "b\na\n"


def test_hugging_face_has_no_name_for_further_weights(tmp_path):
    class Mine(BertClassifier):
        def build(self, input_shape=None):
            super().build(input_shape)
            self.temperature = self.add_weight((), initializer="ones", name="temperature")

    model = Mine(SMALL, 2, name="mine")
    with pytest.raises(InputError, match="format='huggingface': has no name for mine/temperature"):
        model.save_pretrained(str(tmp_path / "new"), "huggingface")
    model.temperature.assign(3.0)
    model.save_pretrained(str(tmp_path / "new"))
    assert Mine.from_pretrained(str(tmp_path / "new"), name="mine").temperature.numpy() == 3.0


def test_a_file_of_keras_is_loaded_with_the_optimizer(tmp_path):
    """Importing the package alone registers no class and puts no finder into Python's imports."""
    model = BertClassifier(SMALL, 3)
    model.compile(keras_optimizer(1e-3, 2, 0))
    model.save(tmp_path / "model.keras")
    code = f"""
import sys
finders = list(sys.meta_path)
import official_bert
assert sys.meta_path == finders
model = official_bert.load_model({str(tmp_path / "model.keras")!r})
print(type(model).__name__, type(model.optimizer).__name__)
"""
    name = type(model.optimizer).__name__
    assert run_interpreter("-c", code).stdout == f"BertClassifier {name}\n"
