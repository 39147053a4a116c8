"""BiLSTM layers above the encoder."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

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
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 0, 0, 0, 0, 0],
    ]
)
RNG = np.random.default_rng(1)
IDS = RNG.integers(5, 40, MASK.shape)


def make_config(**fields) -> BertConfig:
    return BertConfig.from_dict(FIELDS | fields)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_numpy(
    x: np.ndarray, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Hochreiter and Schmidhuber (1997) with forget gates: [S, size] for [S, width]; gates in
    the order i, f, c, o.
    """
    size = recurrent.shape[0]
    state = np.zeros(size)
    cell = np.zeros(size)
    states = []
    for vector in x:
        gates = vector @ kernel + state @ recurrent + bias
        i, f, c, o = np.split(gates, 4)
        kept = sigmoid(f) * cell
        added = sigmoid(i) * np.tanh(c)
        cell = kept + added
        state = sigmoid(o) * np.tanh(cell)
        states.append(state)
    return np.array(states)


def bilstm_by_numpy(x: np.ndarray, forward, backward) -> np.ndarray:
    """One layer of both directions, each a kernel, a recurrent kernel and a bias."""
    forward_states = lstm_by_numpy(x, *forward)
    reversed_x = x[::-1]
    reversed_states = lstm_by_numpy(reversed_x, *backward)
    backward_states = reversed_states[::-1]
    return np.concatenate([forward_states, backward_states], axis=-1)


def test_the_vectors_are_those_of_numpy():
    layer = BiLstm(2, 6)
    layer.build((None, None, 4))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 9, 4)).astype(np.float32)
    vectors = layer(x, MASK).numpy()
    weights = [weight.numpy() for weight in layer.weights]
    assert len(weights) == 2 * 2 * 3
    for row, length in enumerate(MASK.sum(1)):
        first_layer = bilstm_by_numpy(
            x[row, :length],
            forward=weights[:3],
            backward=weights[3:6],
        )
        second_layer = bilstm_by_numpy(
            first_layer,
            forward=weights[6:9],
            backward=weights[9:],
        )
        assert_allclose(
            vectors[row, :length],
            second_layer,
            atol=1e-6,
        )


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
    config = make_config(attention_direction=direction)
    arguments = () if model_class is BertSpans else (3,)
    model = model_class(config, *arguments)
    bert = model.bert
    out = bert(IDS, MASK)
    encoder_output = out.all_encoder_layers[-1]
    expected_sequence = bert.bilstm(encoder_output, MASK)
    assert_allclose(out.sequence_output, expected_sequence, atol=1e-6)

    sequence_output = out.sequence_output.numpy()
    first_tokens = sequence_output[:, 0]
    last_tokens = sequence_output[[0, 1], [8, 3]]
    pooled_tokens = first_tokens if direction == "bidirectional" else last_tokens
    kernel = bert.pooler.dense.kernel.numpy()
    bias = bert.pooler.dense.bias.numpy()
    pooled = np.tanh(pooled_tokens @ kernel + bias)
    assert_allclose(out.pooled_output, pooled, atol=1e-6)

    vectors = pooled if model_class is BertClassifier else sequence_output
    expected_logits = head_by_numpy(model, vectors)
    if model_class is BertSpans:
        expected_logits = np.moveaxis(expected_logits, -1, 0)
    logits = model({"input_ids": IDS, "input_mask": MASK})
    assert_allclose(np.stack(logits), expected_logits, atol=1e-5)


def head_by_numpy(model, vectors: np.ndarray) -> np.ndarray:
    """Computes the logits of vectors by the weights of a model's head."""
    head = {}
    for name, variable in named_variables(model).items():
        _, _, last_part = name.rpartition("/")
        head[last_part] = variable.numpy()
    return vectors @ head["output_weights"].T + head["output_bias"]


def test_a_choice_is_made_by_the_vectors_above_it():
    seed_initial_weights(2)
    model = BertChoice(make_config())
    head_names = [name for name in named_variables(model) if name.startswith("output_")]
    assert sorted(head_names) == ["output_bias", "output_weights"]
    features = {
        "input_ids": IDS[None],
        "input_mask": MASK[None],
    }
    logits = model(features)
    out = model.bert(IDS, MASK)
    expected = head_by_numpy(model, out.pooled_output.numpy())
    assert_allclose(
        logits[0],
        expected[:, 0],
        atol=1e-5,
    )


def find_lstm_names(model) -> list[str]:
    return [name for name in named_variables(model) if "lstm" in name]


def test_its_variables_have_names_of_their_own():
    config = make_config()
    names = find_lstm_names(BertTagger(config, 3))
    assert len(names) == 12
    assert names[0].startswith("bilstm/layer_0/forward_lstm/lstm_cell/")

    pretrainer = BertPretrainer(config)
    assert find_lstm_names(pretrainer) == []
    usual_config = BertConfig.from_dict(toy.BERT_CONFIG)
    usual_tagger = BertTagger(usual_config, 3)
    assert find_lstm_names(usual_tagger) == []


def test_a_config_that_cannot_be_built_is_refused():
    negative = make_config(num_bilstm_layers=-1)
    message = "num_bilstm_layers must be a whole number from 0, got -1"
    with pytest.raises(InputError, match=message):
        BertTagger(negative, 3)
    odd = make_config(hidden_size=15, num_attention_heads=3)
    message = "num_bilstm_layers needs an even hidden_size"
    with pytest.raises(InputError, match=message):
        BertTagger(odd, 3)


def test_hugging_face_has_no_names_for_it(tmp_path):
    model = BertTagger(make_config(), 3)
    folder = str(tmp_path / "hf")
    message = "has no name for bilstm/layer_0/forward_lstm/lstm_cell/kernel; save the model as tf1"
    with pytest.raises(InputError, match=message):
        model.save_pretrained(folder, "huggingface")


@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("squad", "bfloat16"),
        *in_test_long(("choice", "float32")),
    ],
)
def test_the_folder_keeps_the_layers(tmp_path, family, dtype):
    options = fine_tuning_runs.prepared(tmp_path, family)
    out = tmp_path / "out"
    flags = {
        "do_predict": True,
        "learning_rate": 1e-2,
        "dtype": dtype,
    }
    fine_tuning_runs.run(
        family,
        options,
        out,
        do_train=True,
        num_bilstm_layers=1,
        **flags,
    )
    after = checkpoint_values(latest_checkpoint(str(out)))
    bilstm_names = [name for name in after if name.startswith("bilstm/")]
    weight_names = [name for name in bilstm_names if "adam" not in name]
    assert len(weight_names) == 6
    config = json.loads((out / "bert_config.json").read_text())
    assert config["num_bilstm_layers"] == 1

    message = r"has bilstm/.*, which the model of the config lacks"
    with pytest.raises(InputError, match=message):
        # With the original's config.
        fine_tuning_runs.run(family, options, out, do_predict=True)

    predictions_file = out / fine_tuning_runs.FAMILIES[family].predictions
    predictions = predictions_file.read_text()
    predictions_file.unlink()
    fine_tuning_runs.run(
        family,
        options,
        out,
        do_train=False,
        num_bilstm_layers=None,
        bert_config_file=None,
        **flags,
    )
    assert predictions_file.read_text() == predictions
