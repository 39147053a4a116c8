"""BiLSTM layers above the encoder."""

import json

import numpy as np
import pytest

from official_bert import BertConfig, BertPretrainer, InputError
from official_bert.checkpoints import named_variables
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.modeling import BertChoice, BertClassifier, BertSpans, BertTagger
from official_bert.modeling.heads import BiLstm
from official_bert.training.starting_point import seed_initial_weights
from tests import fine_tuning_runs, toy
from tests.commands.pretraining_run import checkpoint_values
from tests.shared import in_test_long

FIELDS = toy.BERT_CONFIG | {"num_bilstm_layers": 2}
MASK = np.array([[1] * 9, [1] * 4 + [0] * 5])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_numpy(
    x: np.ndarray, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Hochreiter and Schmidhuber (1997) with forget gates: [S, size] for [S, width]; gates in
    the order i, f, c, o.
    """
    size = recurrent.shape[0]
    state, cell, found = np.zeros(size), np.zeros(size), []
    for vector in x:
        i, f, c, o = np.split(vector @ kernel + state @ recurrent + bias, 4)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(c)
        state = sigmoid(o) * np.tanh(cell)
        found.append(state)
    return np.array(found)


def test_the_vectors_are_those_of_numpy():
    layer = BiLstm(2, 6)
    layer.build((None, None, 4))
    x = np.random.default_rng(0).normal(size=(2, 9, 4)).astype(np.float32)
    found = layer(x, MASK).numpy()
    weights = [weight.numpy() for weight in layer.weights]
    assert len(weights) == 2 * 2 * 3
    for row, length in enumerate(MASK.sum(1)):
        vectors = x[row, :length]
        for forward, backward in ((weights[:3], weights[3:6]), (weights[6:9], weights[9:])):
            there, back = (
                lstm_by_numpy(vectors, *forward),
                lstm_by_numpy(vectors[::-1], *backward)[::-1],
            )
            vectors = np.concatenate([there, back], axis=-1)
        np.testing.assert_allclose(found[row, :length], vectors, atol=1e-6)


@pytest.mark.parametrize(
    ("model_class", "direction"),
    [
        (BertClassifier, "left_to_right"),
        (BertTagger, "bidirectional"),
        (BertSpans, "bidirectional"),
    ],
)
def test_heads_read_the_vectors_above_it(model_class, direction):
    seed_initial_weights(2)
    config = BertConfig.from_dict(FIELDS | {"attention_direction": direction})
    model = model_class(config, *(() if model_class is BertSpans else (3,)))
    ids = np.random.default_rng(1).integers(5, 40, MASK.shape)
    out = model.bert(ids, MASK)
    plain = out.all_encoder_layers[-1]
    np.testing.assert_allclose(out.sequence_output, model.bert.bilstm(plain, MASK), atol=1e-6)
    vectors = out.sequence_output.numpy()
    vectors = vectors[:, 0] if direction == "bidirectional" else vectors[[0, 1], [8, 3]]
    dense = model.bert.pooler.dense
    pooled = np.tanh(vectors @ dense.kernel.numpy() + dense.bias.numpy())
    np.testing.assert_allclose(out.pooled_output, pooled, atol=1e-6)
    logits = np.stack(model({"input_ids": ids, "input_mask": MASK}))
    read = pooled if model_class is BertClassifier else out.sequence_output
    head = {
        name.rpartition("/")[2]: variable.numpy()
        for name, variable in named_variables(model).items()
    }
    by_numpy = np.array(read) @ head["output_weights"].T + head["output_bias"]
    expected = np.moveaxis(by_numpy, -1, 0) if model_class is BertSpans else by_numpy
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_a_choice_is_made_by_the_vectors_above_it():
    seed_initial_weights(2)
    model = BertChoice(BertConfig.from_dict(FIELDS))
    ids = np.random.default_rng(1).integers(5, 40, MASK.shape)
    logits = model({"input_ids": ids[None], "input_mask": MASK[None]})
    head = {
        name: variable.numpy()
        for name, variable in named_variables(model).items()
        if name.startswith("output_")
    }
    assert len(head) == 2
    expected = (
        model.bert(ids, MASK).pooled_output.numpy() @ head["output_weights"].T + head["output_bias"]
    )
    np.testing.assert_allclose(logits[0], expected[:, 0], atol=1e-5)


def test_its_variables_have_names_of_their_own():
    def names(model):
        return [name for name in named_variables(model) if "lstm" in name]

    config = BertConfig.from_dict(FIELDS)
    found = names(BertTagger(config, 3))
    assert len(found) == 12
    assert found[0].startswith("bilstm/layer_0/forward_lstm/lstm_cell/")
    assert (
        names(BertPretrainer(config))
        == names(BertTagger(BertConfig.from_dict(toy.BERT_CONFIG), 3))
        == []
    )


def test_a_config_that_cannot_be_built_is_refused(tmp_path):
    with pytest.raises(InputError, match="num_bilstm_layers must be a whole number from 0, got -1"):
        BertTagger(BertConfig.from_dict(FIELDS | {"num_bilstm_layers": -1}), 3)
    odd = {"hidden_size": 15, "num_attention_heads": 3}
    with pytest.raises(InputError, match="num_bilstm_layers needs an even hidden_size"):
        BertTagger(BertConfig.from_dict(FIELDS | odd), 3)
    with pytest.raises(
        InputError,
        match="has no name for bilstm/layer_0/forward_lstm/lstm_cell/kernel; save the model as tf1",
    ):
        BertTagger(BertConfig.from_dict(FIELDS), 3).save_pretrained(
            str(tmp_path / "hf"),
            "huggingface",
        )


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("squad", "bfloat16"), *in_test_long(("choice", "float32"))],
)
def test_the_folder_keeps_the_layers(tmp_path, family, dtype):
    options = fine_tuning_runs.prepared(tmp_path, family)
    flags = {"do_train": True, "do_predict": True, "num_bilstm_layers": 1, "learning_rate": 1e-2}
    flags |= {"dtype": dtype}
    fine_tuning_runs.run(family, options, tmp_path / "out", **flags)
    after = checkpoint_values(latest_checkpoint(str(tmp_path / "out")))
    assert len([name for name in after if name.startswith("bilstm/") and "adam" not in name]) == 6
    assert json.loads((tmp_path / "out/bert_config.json").read_text())["num_bilstm_layers"] == 1

    with pytest.raises(InputError, match=r"has bilstm/.*, which the model of the config lacks"):
        # With the original's config.
        fine_tuning_runs.run(family, options, tmp_path / "out", do_predict=True)
    predictions = fine_tuning_runs.FAMILIES[family].predictions
    expected = (tmp_path / "out" / predictions).read_text()
    (tmp_path / "out" / predictions).unlink()
    again = flags | {
        "do_train": False,
        "num_bilstm_layers": None,
        "bert_config_file": None,
    }
    fine_tuning_runs.run(family, options, tmp_path / "out", **again)
    assert (tmp_path / "out" / predictions).read_text() == expected
