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


def read_json(path) -> dict:
    return json.loads(path.read_text())


def read_files(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def change_config(**values) -> BertConfig:
    """The small configuration with other values."""
    return BertConfig.from_dict(SMALL.to_dict() | values)


def assert_weights(model, weights):
    for name, variable in named_variables(model).items():
        if name in weights:
            np.testing.assert_array_equal(variable.numpy(), weights[name], err_msg=name)


def test_a_prefix_or_a_folder_with_a_best_checkpoint_makes_a_model(tmp_path):
    """tests/checkpoints/test_loading.py has the other forms of checkpoints."""
    weights = random_weights(pretraining_shapes(SMALL))
    released = tmp_path / "released"
    write_folder(released, weights)
    out = tmp_path / "out"
    best = out / "best"
    tf1.write(str(best / "model.ckpt-5"), weights)
    (out / "bert_config.json").write_text(SMALL.to_json_string())
    checkpoint_folder.write_state(str(best), ["model.ckpt-5"])
    for path in (released / "bert_model.ckpt", out):
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


def assign_random_values(model):
    for variable in model.weights:
        seed = len(variable.path)
        random = np.random.default_rng(seed)
        values = random.normal(size=variable.shape)
        variable.assign(values)


def assert_tf1_checkpoint_has_weights(folder, model):
    stored = tf1.Tf1Checkpoint(str(folder / "bert_model.ckpt"))
    assert sorted(stored.shapes) == sorted(named_variables(model))
    assert "global_step" not in stored.shapes


@pytest.mark.parametrize(("model_class", "arguments", "architecture"), CLASSES)
@pytest.mark.parametrize("form", ["tf1", "huggingface"])
def test_what_is_saved_is_loaded(tmp_path, model_class, arguments, architecture, form):
    model = model_class(SMALL, **arguments, name="mine")
    assign_random_values(model)
    folder = tmp_path / "new"
    first_model = model_class(SMALL, **arguments)
    first_model.save_pretrained(str(folder), format=form)
    model.save_pretrained(str(folder), format=form)  # replaces it
    if form == "tf1":
        assert_tf1_checkpoint_has_weights(folder, model)
    else:
        config = read_json(folder / "config.json")
        assert config["architectures"] == [architecture]
    loaded = model_class.from_pretrained(str(folder))  # the number of outputs is that of the head
    assert loaded.config.to_dict() == SMALL.to_dict()
    for variable, saved in zip(loaded.weights, model.weights, strict=True):
        values = variable.numpy()
        np.testing.assert_array_equal(values, saved.numpy(), err_msg=variable.path)


def test_a_new_head_is_drawn_and_the_log_says_so(tmp_path, caplog):
    weights = random_weights(encoder_shapes(SMALL))
    folder = write_folder(tmp_path, weights)
    message = r"has no output_weights, and no labels.txt .* give num_outputs"
    with pytest.raises(InputError, match=message):
        BertClassifier.from_pretrained(folder)
    model = BertClassifier.from_pretrained(folder, num_outputs=4)
    logits = model({"input_ids": FOUR_IDS})
    assert logits.shape == (2, 4)
    assert_weights(model, weights)
    assert "randomly initialised: output_weights, output_bias\n" in caplog.text

    (tmp_path / "labels.txt").write_text("yes\nno\nperhaps\n")
    tagger = BertTagger.from_pretrained(folder)
    assert tagger.num_outputs == 3
    choice = BertChoice.from_pretrained(folder)
    assert choice.num_outputs == 1


def test_a_head_of_another_size_is_drawn_on_request(tmp_path):
    weights = random_weights(encoder_shapes(SMALL))
    head_weights = np.ones((3, SMALL.hidden_size), np.float32)
    head_bias = np.ones(3, np.float32)
    head = {"output_weights": head_weights, "output_bias": head_bias}
    folder = write_folder(tmp_path, weights | head)
    (tmp_path / "labels.txt").write_text("yes\nno\nperhaps\n")
    message = r"has shape \[3, .*or pass ignore_mismatched_sizes=True, which draws a new"
    with pytest.raises(InputError, match=message):
        BertClassifier.from_pretrained(folder, num_outputs=4)
    model = BertClassifier.from_pretrained(folder, num_outputs=4, ignore_mismatched_sizes=True)
    assert model.num_outputs == 4
    assert model.labels is None
    num_rows, _ = model.output_weights.shape
    assert num_rows == 4
    assert_weights(model, weights)
    assert not model.output_bias.numpy().any()
    same = BertClassifier.from_pretrained(folder, ignore_mismatched_sizes=True)
    np.testing.assert_array_equal(same.output_weights, head_weights)


def test_a_pooler_may_be_missing_but_no_layer(tmp_path, caplog):
    weights = random_weights(encoder_shapes(SMALL))
    del weights["bert/pooler/dense/kernel"]
    del weights["bert/pooler/dense/bias"]
    folder = write_folder(tmp_path, weights)
    model = BertModel.from_pretrained(folder)
    assert_weights(model, weights)
    assert "randomly initialised: bert/pooler/dense/kernel, bert/pooler/dense/bias" in caplog.text

    config_file = tmp_path / "bert_config.json"
    deeper = change_config(num_hidden_layers=3)
    config_file.write_text(deeper.to_json_string())
    with pytest.raises(InputError, match=r"lacks bert/encoder/layer_2/.* no whole encoder"):
        BertModel.from_pretrained(folder)
    shallower = change_config(num_hidden_layers=1)
    config_file.write_text(shallower.to_json_string())
    with pytest.raises(InputError, match="has bert/encoder/layer_1/"):
        BertModel.from_pretrained(folder)


def test_what_cannot_be_loaded_is_named(tmp_path):
    weights = random_weights(encoder_shapes(SMALL))
    weights["output_weights"] = np.zeros((3, 8), np.float32)
    folder = write_folder(tmp_path, weights)
    with pytest.raises(InputError, match=r"output_weights has shape \[3, 8\] .* \[2, 8\]"):
        BertClassifier.from_pretrained(folder, num_outputs=2)
    (tmp_path / "bert_config.json").unlink()
    (tmp_path / "config.json").write_text('{"of": "another program"}')
    message = r"neither bert_config.json nor config.json of a model is next to"
    with pytest.raises(InputError, match=message):
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
    assert model.number == 7
    assert model.use_one_hot_embeddings is True
    assert model.name == "mine"


# A piece twice, and a blank line.
PIECES = [*toy.VOCABULARY, "park", ""]


def test_the_vocabulary_goes_with_the_model(tmp_path):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, PIECES))
    config = BertConfig.from_dict(toy.BERT_CONFIG | {"vocab_size": len(PIECES)})
    model = BertModel(config)
    folder = tmp_path / "new"
    model.save_pretrained(str(folder), tokenizer=tokenizer)
    loaded = FullTokenizer(str(folder / "vocab.txt"))
    assert len(loaded.vocab) == len(PIECES)
    text = "The sunny park station line 15"
    assert loaded.encode(text) == tokenizer.encode(text)
    last_park = len(toy.VOCABULARY)
    assert loaded.encode("park") == [last_park]


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    tokenizer = FullTokenizer(toy.write_vocabulary(tmp_path, PIECES))
    model = BertModel(SMALL)
    folder = tmp_path / "other"
    with pytest.raises(InputError, match=r"tokenizer: has 52 lines, .* vocab_size 20"):
        model.save_pretrained(str(folder), tokenizer=tokenizer)
    assert not folder.exists()


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
    model = BertModel(SMALL)
    message = rf"holds another checkpoint \({there}\), which would be read instead"
    with pytest.raises(InputError, match=message):
        model.save_pretrained(str(tmp_path), form)
    assert os.listdir(tmp_path) == [there]
    with pytest.raises(InputError, match="format='torch': must be one of tf1, huggingface"):
        model.save_pretrained(str(tmp_path / "new"), "torch")


@pytest.mark.parametrize(
    ("form", "there"), [("tf1", "bert_model.ckpt.index"), ("huggingface", "model.safetensors")]
)
def test_a_checkpoint_of_another_model_is_not_replaced(tmp_path, form, there):
    pretrainer = BertPretrainer(SMALL)
    pretrainer.save_pretrained(str(tmp_path), form)
    files = read_files(tmp_path)
    larger = change_config(num_hidden_layers=SMALL.num_hidden_layers + 1)
    message = rf"holds another checkpoint \({there}\), which would be lost; name"
    for model in (BertModel(SMALL), BertPretrainer(larger)):
        with pytest.raises(InputError, match=message):
            model.save_pretrained(str(tmp_path), form)
    assert read_files(tmp_path) == files


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(["a"], id="too few"),
        pytest.param(["a", "a"], id="one twice"),
        pytest.param(["a", "b\nc"], id="line end"),
        pytest.param(["a", ""], id="empty"),
        pytest.param([0], id="too few numbers"),
        pytest.param([0, 1], id="numbers"),
    ],
)
def test_labels_that_do_not_name_the_outputs_are_refused(tmp_path, labels):
    folder = tmp_path / "refused"
    model = BertClassifier(SMALL, 2)
    message = "labels: must be 2 different texts, one for each output of the model"
    with pytest.raises(InputError, match=message):
        model.save_pretrained(str(folder), labels=labels)
    assert not folder.exists()


def test_labels_stay_with_a_model(tmp_path):
    first = tmp_path / "first"
    second = tmp_path / "second"
    third = tmp_path / "third"
    model = BertClassifier(SMALL, 2)
    model.save_pretrained(str(first), labels=["b", "a"])

    classifier = BertClassifier.from_pretrained(str(first))
    classifier.save_pretrained(str(second), "huggingface")
    config = read_json(second / "config.json")
    assert config["id2label"] == {"0": "b", "1": "a"}

    (second / "labels.txt").unlink()
    tagger = BertTagger.from_pretrained(str(second))
    tagger.save_pretrained(str(third))
    assert (third / "labels.txt").read_text() == "b\na\n"


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
    loaded = Mine.from_pretrained(str(tmp_path / "new"), name="mine")
    assert loaded.temperature.numpy() == 3.0


def test_a_file_of_keras_is_loaded_with_the_optimizer(tmp_path):
    """Importing the package alone registers no class and puts no finder into Python's imports."""
    model = BertClassifier(SMALL, 3)
    model.compile(keras_optimizer(1e-3, 2, 0))
    path = str(tmp_path / "model.keras")
    model.save(path)
    code = f"""
import sys
finders = list(sys.meta_path)
import official_bert
assert sys.meta_path == finders
model = official_bert.load_model({path!r})
print(type(model).__name__, type(model.optimizer).__name__)
"""
    optimizer_name = type(model.optimizer).__name__
    finished = run_interpreter("-c", code)
    assert finished.stdout == f"BertClassifier {optimizer_name}\n"
