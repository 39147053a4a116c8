"""Folders make models, and models write folders, in both formats and with each head."""

import json
import logging as python_logging
import os

import numpy as np
import pytest
from absl import logging

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
)
from official_bert.checkpoints import folder as checkpoint_folder
from official_bert.checkpoints import huggingface, named_variables, tf1
from tests import toy
from tests.checkpoints.sample import CONFIG, encoder_shapes, pretraining_shapes, random_weights

IDS = np.int32([[2, 7, 9, 3], [2, 8, 3, 0]])


@pytest.fixture
def logged(caplog):
    """Returns a function that returns the lines logged so far."""
    logging.set_verbosity(logging.INFO)
    caplog.set_level(python_logging.INFO)
    return lambda: [record.getMessage() for record in caplog.records]


def write_folder(folder, weights, config=CONFIG) -> str:
    os.makedirs(folder, exist_ok=True)
    (folder / "bert_config.json").write_text(config.to_json_string())
    tf1.write(str(folder / "bert_model.ckpt"), weights)
    return str(folder)


def assert_weights(model, weights):
    for name, variable in named_variables(model).items():
        if name in weights:
            np.testing.assert_array_equal(variable.numpy(), weights[name], err_msg=name)


@pytest.mark.parametrize("form", ["folder", "prefix", "path", "huggingface", "safetensors", "best"])
def test_a_folder_of_any_form_makes_a_model(tmp_path, form):
    weights = random_weights(pretraining_shapes(CONFIG))
    path = str(tmp_path)
    if form in ("huggingface", "safetensors"):
        huggingface.write(path, weights, CONFIG)
    elif form == "best":
        (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
        tf1.write(f"{path}/best/model.ckpt-5", weights)
        checkpoint_folder.write_state(f"{path}/best", ["model.ckpt-5"])
    else:
        write_folder(tmp_path, weights)
    path += {"prefix": "/bert_model.ckpt", "safetensors": "/model.safetensors"}.get(form, "")
    model = BertPretrainer.from_pretrained(tmp_path if form == "path" else path)
    assert model.config.to_dict() == CONFIG.to_dict()
    assert_weights(model, weights)


def test_arguments_are_those_of_the_class(tmp_path):
    folder = write_folder(tmp_path, random_weights(encoder_shapes(CONFIG)))
    model = BertModel.from_pretrained(folder, use_one_hot_embeddings=True, name="mine")
    assert (model.name, model.use_one_hot_embeddings) == ("mine", True)


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
    model = model_class(CONFIG, **arguments, name="mine")
    for variable in model.weights:
        variable.assign(np.random.default_rng(len(variable.path)).normal(size=variable.shape))
    folder = str(tmp_path / "new")
    model.save_pretrained(folder, format=form)
    if form == "tf1":
        stored = tf1.Tf1Checkpoint(f"{folder}/bert_model.ckpt")
        assert sorted(stored.shapes) == sorted(named_variables(model))
        assert "global_step" not in stored.shapes
    else:
        with open(f"{folder}/config.json") as file:
            assert json.load(file)["architectures"] == [architecture]
    again = model_class.from_pretrained(folder)  # the number of outputs is that of the head
    assert again.config.to_dict() == CONFIG.to_dict()
    for one, other in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy(), err_msg=one.path)


def test_a_new_head_is_drawn_and_the_log_says_so(tmp_path, logged):
    weights = random_weights(encoder_shapes(CONFIG))
    folder = write_folder(tmp_path, weights)
    with pytest.raises(InputError, match=r"has no output_weights, and no labels.txt .* give num_outputs"):
        BertClassifier.from_pretrained(folder)
    model = BertClassifier.from_pretrained(folder, num_outputs=4)
    assert model({"input_ids": IDS}).shape == (2, 4)
    assert_weights(model, weights)
    (line,) = [line for line in logged() if "randomly initialised" in line]
    assert line.endswith("randomly initialised: output_weights, output_bias")

    (tmp_path / "labels.txt").write_text("yes\nno\nperhaps\n")
    assert BertTagger.from_pretrained(folder).num_outputs == 3
    assert BertChoice.from_pretrained(folder).num_outputs == 1


def test_a_pooler_may_be_missing_but_no_layer(tmp_path, logged):
    weights = random_weights(encoder_shapes(CONFIG))
    for name in ("bert/pooler/dense/kernel", "bert/pooler/dense/bias"):
        del weights[name]
    folder = write_folder(tmp_path, weights)
    assert_weights(BertModel.from_pretrained(folder), weights)
    assert "randomly initialised: bert/pooler/dense/kernel, bert/pooler/dense/bias" in logged()[-1]

    deeper = BertConfig.from_dict(CONFIG.to_dict() | {"num_hidden_layers": 3})
    (tmp_path / "bert_config.json").write_text(deeper.to_json_string())
    with pytest.raises(InputError, match=r"lacks bert/encoder/layer_2/.* no whole encoder"):
        BertModel.from_pretrained(folder)
    shallower = BertConfig.from_dict(CONFIG.to_dict() | {"num_hidden_layers": 1})
    (tmp_path / "bert_config.json").write_text(shallower.to_json_string())
    with pytest.raises(InputError, match="has bert/encoder/layer_1/"):
        BertModel.from_pretrained(folder)


def test_what_cannot_be_loaded_is_named(tmp_path):
    weights = random_weights(encoder_shapes(CONFIG)) | {"output_weights": np.zeros((3, 8), np.float32)}
    folder = write_folder(tmp_path, weights)
    with pytest.raises(InputError, match=r"output_weights has shape \[3, 8\] .* \[2, 8\]"):
        BertClassifier.from_pretrained(folder, num_outputs=2)
    (tmp_path / "bert_config.json").unlink()
    (tmp_path / "config.json").write_text('{"of": "another program"}')
    with pytest.raises(InputError, match=r"neither bert_config.json nor config.json of a model lies beside"):
        BertModel.from_pretrained(folder)
    with pytest.raises(InputError, match="no checkpoint there"):
        BertModel.from_pretrained(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("model_class", "arguments", "message"),
    [
        (
            BertClassifier,
            {"num_labels": 3},
            "num_labels: BertClassifier has no such argument; it has num_outputs, use_",
        ),
        (
            BertModel,
            {"num_outputs": 3},
            "num_outputs: BertModel has no such argument; it has use_one_hot_embeddings,",
        ),
        *[
            (
                BertClassifier,
                {"num_outputs": wrong},
                f"num_outputs: must be a whole number from 1, got {wrong!r}$",
            )
            for wrong in (0, -1, 2.5, "3", True)
        ],
    ],
)
def test_wrong_arguments_are_named(tmp_path, model_class, arguments, message):
    folder = toy.make_bert_base_dir(tmp_path / "model")
    with pytest.raises(InputError, match=message):
        model_class.from_pretrained(str(folder), **arguments)


def test_a_subclass_may_take_any_argument(tmp_path):
    class Own(BertModel):
        def __init__(self, config, **arguments):
            number = arguments.pop("number")
            super().__init__(config, **arguments)
            self.number = number

    folder = toy.make_bert_base_dir(tmp_path / "model")
    assert Own.from_pretrained(str(folder), number=7).number == 7


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

    with pytest.raises(InputError, match=r"vocabulary has 52 lines, .* vocab_size 20"):
        BertModel(CONFIG).save_pretrained(str(tmp_path / "other"), tokenizer=tokenizer)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("form", "there"),
    [
        ("tf1", "model.ckpt-7.index"),
        ("tf1", "checkpoint"),
        ("tf1", "model.safetensors"),
        ("huggingface", "bert_model.ckpt.index"),
        ("huggingface", "pytorch_model.bin"),
        ("huggingface", "model.safetensors.index.json"),
    ],
)
def test_a_folder_with_another_checkpoint_is_refused(tmp_path, form, there):
    (tmp_path / there).write_text("")
    with pytest.raises(
        InputError, match=f"holds another checkpoint \\({there}\\), which would be read instead"
    ):
        BertModel(CONFIG).save_pretrained(str(tmp_path), form)
    assert os.listdir(tmp_path) == [there]


def test_saving_again_replaces(tmp_path):
    for form in ("tf1", "huggingface"):
        folder = str(tmp_path / form)
        BertModel(CONFIG).save_pretrained(folder, form)
        second = BertModel(CONFIG)
        second.save_pretrained(folder, form)
        np.testing.assert_array_equal(BertModel.from_pretrained(folder).weights[0], second.weights[0])


def test_an_unknown_format_is_named(tmp_path):
    with pytest.raises(InputError, match="format='torch': must be one of tf1, huggingface"):
        BertModel(CONFIG).save_pretrained(str(tmp_path / "new"), "torch")


def test_hugging_face_has_no_name_for_further_weights(tmp_path):
    class Mine(BertClassifier):
        def build(self, input_shape=None):
            super().build(input_shape)
            self.temperature = self.add_weight((), initializer="ones", name="temperature")

    model = Mine(CONFIG, 2, name="mine")
    with pytest.raises(InputError, match="format='huggingface': has no name for mine/temperature"):
        model.save_pretrained(str(tmp_path / "new"), "huggingface")
    model.temperature.assign(3.0)
    model.save_pretrained(str(tmp_path / "new"))
    assert Mine.from_pretrained(str(tmp_path / "new"), name="mine").temperature.numpy() == 3.0


def test_every_position_is_scored_without_positions():
    model = BertPretrainer(CONFIG)
    every = model({"input_ids": IDS})
    some = model({"input_ids": IDS, "masked_lm_positions": np.int32([[1, 3], [0, 2]])})
    assert every.masked_lm_logits.shape == (2, 4, CONFIG.vocab_size)
    chosen = every.masked_lm_logits.numpy()[[0, 0, 1, 1], [1, 3, 0, 2]]
    np.testing.assert_allclose(chosen, some.masked_lm_logits, atol=1e-5)
    np.testing.assert_allclose(np.exp(every.masked_lm_log_probs).sum(-1), np.ones((2, 4)), rtol=1e-5)
    np.testing.assert_array_equal(every.next_sentence_logits, some.next_sentence_logits)
