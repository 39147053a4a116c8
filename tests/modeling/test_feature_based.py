"""BiLSTM layers above the encoder, and the feature-based tagger."""

import errno
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_bert import BertConfig, BertPretrainer, InputError, Predictor
from official_bert.checkpoints import named_variables
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.fine_tuning import finetuner
from official_bert.modeling import BertClassifier, BertSpans, BertTagger
from official_bert.modeling.feature_based import BertFeatureTagger
from official_bert.modeling.heads import BiLstm
from official_bert.options.fine_tuning import FEATURE_LAYERS
from official_bert.tasks.tagging import task as tagging
from official_bert.training import run_log
from official_bert.training.precision import computing_in
from official_bert.training.starting_point import seed_initial_weights
from tests import fine_tuning_runs, toy
from tests.commands.pretraining_run import checkpoint_values
from tests.scripts import flag_list, run_here

FIELDS = toy.BERT_CONFIG | {"num_bilstm_layers": 2}
MASK = np.array([[1] * 9, [1] * 4 + [0] * 5])
CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": 6, "initializer_range": 0.3})
READ = {  # of [embeddings, layers 1 to 6]
    "embeddings": [0],
    "second_to_last": [5],
    "last": [6],
    "weighted_sum_of_last_four": [3, 4, 5, 6],
    "concat_of_last_four": [3, 4, 5, 6],
    "weighted_sum_of_all": [1, 2, 3, 4, 5, 6],
}
FEATURES = {"input_ids": np.random.default_rng(1).integers(5, 40, MASK.shape), "input_mask": MASK}
AGAIN = dict.fromkeys(("feature_layers", "bert_config_file", "vocab_file", "init_checkpoint"))
PREDICTIONS = fine_tuning_runs.FAMILIES["tagging"].predictions


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_numpy(x: np.ndarray, kernel: np.ndarray, recurrent: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Hochreiter and Schmidhuber (1997) with forget gates: [S, size] for [S, width]; gates in the order i, f, c, o."""
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
            there, back = lstm_by_numpy(vectors, *forward), lstm_by_numpy(vectors[::-1], *backward)[::-1]
            vectors = np.concatenate([there, back], axis=-1)
        np.testing.assert_allclose(found[row, :length], vectors, atol=1e-6)


@pytest.mark.parametrize(
    ("model_class", "direction"),
    [(BertClassifier, "left_to_right"), (BertTagger, "bidirectional"), (BertSpans, "bidirectional")],
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
    head = {name.rpartition("/")[2]: variable.numpy() for name, variable in named_variables(model).items()}
    by_numpy = np.array(read) @ head["output_weights"].T + head["output_bias"]
    expected = np.moveaxis(by_numpy, -1, 0) if model_class is BertSpans else by_numpy
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_its_variables_have_names_of_their_own():
    def names(model):
        return [name for name in named_variables(model) if "lstm" in name]

    config = BertConfig.from_dict(FIELDS)
    found = names(BertTagger(config, 3))
    assert len(found) == 12
    assert found[0].startswith("bilstm/layer_0/forward_lstm/lstm_cell/")
    assert names(BertPretrainer(config)) == names(BertTagger(BertConfig.from_dict(toy.BERT_CONFIG), 3)) == []


def test_a_config_that_cannot_be_built_is_refused(tmp_path):
    with pytest.raises(InputError, match="num_bilstm_layers must be a whole number from 0, got -1"):
        BertTagger(BertConfig.from_dict(FIELDS | {"num_bilstm_layers": -1}), 3)
    odd = {"hidden_size": 15, "num_attention_heads": 3}
    with pytest.raises(InputError, match="num_bilstm_layers needs an even hidden_size"):
        BertTagger(BertConfig.from_dict(FIELDS | odd), 3)
    with pytest.raises(
        InputError, match="has no name for bilstm/layer_0/forward_lstm/lstm_cell/kernel; save the model as tf1"
    ):
        BertTagger(BertConfig.from_dict(FIELDS), 3).save_pretrained(str(tmp_path / "hf"), "huggingface")


@pytest.mark.parametrize(("family", "dtype"), [("choice", "float32"), ("squad", "bfloat16")])
def test_a_frozen_encoder_stays_as_it_is_and_the_folder_keeps_the_layers(tmp_path, family, dtype):
    options = fine_tuning_runs.prepared(tmp_path, family)
    flags = {"do_train": True, "do_predict": True, "num_bilstm_layers": 1, "learning_rate": 1e-2}
    flags |= {"freeze_layers": 1, "dtype": dtype}
    fine_tuning_runs.run(family, options, tmp_path / "out", **flags)
    first = checkpoint_values(options.init_checkpoint)
    after = checkpoint_values(latest_checkpoint(str(tmp_path / "out")))
    frozen = [name for name in first if name.startswith(("bert/embeddings", "bert/encoder"))]
    assert len(frozen) == 5 + 16
    for name in frozen:
        np.testing.assert_array_equal(after[name], first[name], err_msg=name)
    assert len([name for name in after if name.startswith("bilstm/") and "adam" not in name]) == 6
    assert json.loads((tmp_path / "out/bert_config.json").read_text())["num_bilstm_layers"] == 1

    with pytest.raises(InputError, match=r"has bilstm/.*, which the model of the config lacks"):
        fine_tuning_runs.run(family, options, tmp_path / "out", do_predict=True)  # with the original's config
    predictions = fine_tuning_runs.FAMILIES[family].predictions
    expected = (tmp_path / "out" / predictions).read_text()
    (tmp_path / "out" / predictions).unlink()
    again = flags | {"do_train": False, "num_bilstm_layers": None, "bert_config_file": None, "freeze_layers": None}
    fine_tuning_runs.run(family, options, tmp_path / "out", **again)
    assert (tmp_path / "out" / predictions).read_text() == expected


@pytest.mark.parametrize("name", FEATURE_LAYERS)
def test_the_logits_are_those_of_the_chosen_layers(name):
    seed_initial_weights(2)
    model = BertFeatureTagger(CONFIG, 3, name, bilstm_size=8)
    encoded = model.bert(**FEATURES)
    layers = [np.array(each) for each in (encoded.embedding_output, *encoded.all_encoder_layers)]
    chosen = [layers[number] for number in READ[name]]
    np.testing.assert_allclose(model.layer_vectors(FEATURES), np.stack(chosen, axis=2), atol=1e-6)
    if "sum" in name:
        given = np.linspace(-1.0, 2.0, len(chosen))
        model.head.sum_weights.assign(given)
        shares = np.exp(given) / np.exp(given).sum()
        x = sum(share * layer for share, layer in zip(shares, chosen, strict=True))
    else:
        x = np.concatenate(chosen, axis=-1)
    vectors = model.head.bilstm(x, MASK).numpy()
    assert vectors.shape == (2, 9, 8)
    expected = vectors @ model.head.output_weights.numpy().T + model.head.output_bias.numpy()
    np.testing.assert_allclose(model(FEATURES), expected, atol=1e-5)
    cached = FEATURES | {"layer_vectors": model.layer_vectors(FEATURES)}
    np.testing.assert_array_equal(model(cached), model(FEATURES))
    assert ("sum_weights" in str(list(named_variables(model)))) == ("sum" in name)


def test_it_has_two_lstm_layers_or_those_of_the_config():
    for fields, number in (({}, 2), ({"num_bilstm_layers": 1}, 1)):
        names = named_variables(BertFeatureTagger(BertConfig.from_dict(CONFIG.to_dict() | fields), 3, "last", 8))
        assert len({name.split("/")[2] for name in names if name.startswith("features_last/bilstm/")}) == number


def test_in_a_model_of_two_layers_the_last_four_are_these_two():
    model = BertFeatureTagger(
        BertConfig.from_dict(CONFIG.to_dict() | {"num_hidden_layers": 2}), 3, "concat_of_last_four", 8
    )
    layers = model.bert(**FEATURES).all_encoder_layers
    np.testing.assert_allclose(model.layer_vectors(FEATURES), np.stack(layers, axis=2), atol=1e-6)


def test_in_16_bits_vectors_that_were_computed_before_stay_as_they_are():
    with computing_in("bfloat16"):
        model = BertFeatureTagger(CONFIG, 3, "weighted_sum_of_all", bilstm_size=8)
    vectors = model.layer_vectors(FEATURES)
    assert vectors.dtype == "float32"
    exact = np.random.default_rng(3).normal(size=vectors.shape).astype(np.float32)
    seen = []
    real = type(model.head).call
    model.head.call = lambda vectors, *more: seen.append(vectors.numpy()) or real(model.head, vectors, *more)
    model(FEATURES | {"layer_vectors": exact})
    np.testing.assert_array_equal(seen[0], exact)
    np.testing.assert_array_equal(model(FEATURES | {"layer_vectors": vectors}), model(FEATURES))


def test_the_encoder_gets_no_gradient_without_cached_vectors_either():
    model = BertFeatureTagger(CONFIG, 3, "last", bilstm_size=8)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(FEATURES) ** 2)
    named = named_variables(model)
    gradients = dict(zip(named, tape.gradient(loss, [each.value for each in named.values()]), strict=True))
    assert {name for name, gradient in gradients.items() if gradient is None} == {
        name for name in named if name.startswith("bert/")
    }


def test_a_full_disk_is_said(monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(finetuner.os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"has no room for the outputs of the frozen layers, 4\.0 MB \(No space left"):
        finetuner._temporary_array((1000, 1000), np.dtype("float32"))


def test_layers_and_sizes_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="a model of one layer has no second_to_last; choose last"):
        BertFeatureTagger(BertConfig.from_dict(toy.BERT_CONFIG), 3, "second_to_last", 8)
    with pytest.raises(InputError, match=r"feature_layers: must be one of embeddings, .*, got 'first'"):
        BertFeatureTagger(CONFIG, 3, "first")
    with pytest.raises(InputError, match="bilstm_size: must be even, half of it for each direction, got 7"):
        BertFeatureTagger(CONFIG, 3, "last", bilstm_size=7)


@pytest.fixture(scope="module")
def narrow():
    """BiLSTMs of 12 units instead of the paper's 768."""
    assert tagging.BILSTM_SIZE == 768
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tagging, "BILSTM_SIZE", 12)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory, narrow):
    """A folder with a model and sets, the options of a run on them, and `out`, the folder that the run has left."""
    folder = tmp_path_factory.mktemp("features")
    options = fine_tuning_runs.prepared(folder, "tagging")
    sets = []
    real = finetuner.WithFrozenFeatures.__init__
    flags = {"do_train": True, "do_eval": True, "do_predict": True, "feature_layers": "weighted_sum_of_all"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetuner.WithFrozenFeatures, "__init__", lambda self, *given: sets.append(real(self, *given)))
        fine_tuning_runs.run("tagging", options, folder / "out", **flags, learning_rate=1e-2, num_train_epochs=3.0)
    assert len(sets) == 3, "the encoder computes each set once, not for each epoch"
    return folder, options


@pytest.fixture
def out(made, tmp_path):
    """A copy of the folder of the run."""
    return shutil.copytree(made[0] / "out", tmp_path / "out")


def test_a_run_trains_all_but_the_encoder(made, out):
    first, after = (checkpoint_values(path) for path in (made[1].init_checkpoint, latest_checkpoint(str(out))))
    encoder = [each for each in first if each.startswith("bert/")]
    for each in encoder:
        np.testing.assert_array_equal(after[each], first[each], err_msg=each)
    assert not [each for each in after if each.startswith("bert/") and "adam" in each]
    assert [each for each in after if "bilstm/" in each and "adam" in each]
    log = run_log.read(str(out), run_log.TRAIN)
    assert log[-1]["loss"] < log[0]["loss"]


def test_other_layers_than_those_of_the_training_are_refused(made, out, tmp_path):
    _, options = made
    for does in ("do_train", "do_eval"):
        with pytest.raises(InputError, match="lacks features_embeddings/"):
            fine_tuning_runs.run("tagging", options, out, feature_layers="embeddings", **{does: True})
    # A folder of other layers is a start like any other model.
    start = {"feature_layers": "embeddings", "init_checkpoint": str(out)}
    fine_tuning_runs.run("tagging", options, tmp_path / "again", do_train=True, **start)


def test_a_bilstm_without_layers_is_refused(made, tmp_path):
    flags = {"do_train": True, "feature_layers": "last", "num_bilstm_layers": 0}
    with pytest.raises(InputError, match="--num_bilstm_layers=0: --feature_layers trains a BiLSTM"):
        fine_tuning_runs.run("tagging", made[1], tmp_path / "out", **flags)


def test_the_folder_knows_its_layers_and_an_export_of_it_answers_the_same(made, out, tmp_path):
    _, options = made
    expected = (out / PREDICTIONS).read_text()
    (out / PREDICTIONS).unlink()
    fine_tuning_runs.run("tagging", options, out, do_predict=True, **AGAIN)
    assert (out / PREDICTIONS).read_text() == expected

    flags = flag_list(model=out, export_dir=tmp_path / "export")
    run_here("export_saved_model.py", *flags)
    text = "the cat sat on the mat"
    answers = [Predictor(str(tmp_path / folder))(text) for folder in ("out", "export")]
    assert answers[0] == answers[1]

    (out / "task.json").unlink()
    with pytest.raises(InputError, match=r"has the head of a task, and no task\.json says of which"):
        run_here("export_saved_model.py", *flags)
