"""The feature-based tagger: which layers it reads, how it sums them, and runs of run_ner.py that leave the encoder."""

import json

import numpy as np
import pytest

from official_bert import BertConfig, InputError, Predictor
from official_bert.checkpoints import named_variables
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.jobs import frozen_features
from official_bert.modeling.feature_tagger import BertFeatureTagger
from official_bert.options.tagging import FEATURE_LAYERS
from official_bert.training.rng import seed_initial_weights
from tests import fine_tuning_runs, toy
from tests.runners.pretraining_run import checkpoint_values
from tests.scripts import flag_list, run_here

CONFIG = BertConfig.from_dict(toy.BERT_CONFIG | {"num_hidden_layers": 6, "initializer_range": 0.3})
READ = {  # of [embeddings, layers 1 to 6]
    "embeddings": [0],
    "second_to_last": [5],
    "last": [6],
    "weighted_sum_of_last_four": [3, 4, 5, 6],
    "concat_of_last_four": [3, 4, 5, 6],
    "weighted_sum_of_all": [1, 2, 3, 4, 5, 6],
}
MASK = np.array([[1] * 9, [1] * 4 + [0] * 5])
FEATURES = {"input_ids": np.random.default_rng(1).integers(5, 40, MASK.shape), "input_mask": MASK}


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
        model.sum_weights.assign(given)
        shares = np.exp(given) / np.exp(given).sum()
        x = sum(share * layer for share, layer in zip(shares, chosen, strict=True))
    else:
        x = np.concatenate(chosen, axis=-1)
    vectors = model.bilstm(x, MASK).numpy()
    assert vectors.shape == (2, 9, 8)
    expected = vectors @ model.head_weights.numpy().T + model.head_bias.numpy()
    np.testing.assert_allclose(model(FEATURES), expected, atol=1e-5)
    cached = FEATURES | {"layer_vectors": model.layer_vectors(FEATURES)}
    np.testing.assert_array_equal(model(cached), model(FEATURES))
    assert ("sum_weights" in str(list(named_variables(model)))) == ("sum" in name)


def test_it_has_two_lstm_layers_or_those_of_the_config():
    def num_layers(config):
        names = named_variables(BertFeatureTagger(config, 3, "last", 8))
        return len({name.split("/")[1] for name in names if name.startswith("bilstm/")})

    assert num_layers(CONFIG) == 2
    assert num_layers(BertConfig.from_dict(CONFIG.to_dict() | {"num_bilstm_layers": 1})) == 1


def test_other_layers_and_odd_sizes_are_refused():
    with pytest.raises(InputError, match=r"feature_layers: must be one of embeddings, .*, got 'first'"):
        BertFeatureTagger(CONFIG, 3, "first")
    with pytest.raises(InputError, match="bilstm_size: must be even, half of it for each direction, got 7"):
        BertFeatureTagger(CONFIG, 3, "last", bilstm_size=7)


@pytest.mark.parametrize("name", ["concat_of_last_four", "weighted_sum_of_all"])
def test_a_run_trains_all_but_the_encoder_and_computes_it_once(tmp_path, monkeypatch, name):
    options = fine_tuning_runs.prepared(tmp_path, "tagging")
    made = []
    real = frozen_features.WithFrozenFeatures.__init__
    monkeypatch.setattr(
        frozen_features.WithFrozenFeatures, "__init__", lambda self, *given: made.append(real(self, *given))
    )
    flags = {"do_train": True, "do_eval": True, "do_predict": True, "feature_layers": name, "bilstm_size": 12}
    flags |= {"learning_rate": 1e-2, "num_train_epochs": 3.0}
    fine_tuning_runs.run("tagging", options, tmp_path / "out", **flags)
    assert len(made) == 3, "once for each set, not for each epoch"
    first = checkpoint_values(options.init_checkpoint)
    after = checkpoint_values(latest_checkpoint(str(tmp_path / "out")))
    encoder = [each for each in first if each.startswith("bert/")]
    for each in encoder:
        np.testing.assert_array_equal(after[each], first[each], err_msg=each)
    assert not [each for each in after if each.startswith("bert/") and "adam" in each]
    assert [each for each in after if each.startswith("bilstm/") and "adam" in each]
    log = [json.loads(line) for line in (tmp_path / "out/train_log.jsonl").read_text().splitlines()]
    assert log[-1]["loss"] < log[0]["loss"]


def test_the_folder_knows_its_layers_and_an_export_of_it_answers_the_same(tmp_path):
    options = fine_tuning_runs.prepared(tmp_path, "tagging")
    flags = {"do_train": True, "do_predict": True, "feature_layers": "weighted_sum_of_all", "bilstm_size": 12}
    fine_tuning_runs.run("tagging", options, tmp_path / "out", **flags, learning_rate=1e-2)
    predictions = tmp_path / "out" / fine_tuning_runs.FAMILIES["tagging"].predictions
    expected = predictions.read_text()
    predictions.unlink()
    again = dict.fromkeys(
        ("feature_layers", "bilstm_size", "bert_config_file", "vocab_file", "init_checkpoint")
    )
    fine_tuning_runs.run("tagging", options, tmp_path / "out", do_predict=True, **again)
    assert predictions.read_text() == expected

    run_here("export_saved_model.py", *flag_list(model=tmp_path / "out", export_dir=tmp_path / "export"))
    text = "the cat sat on the mat"
    answers = [Predictor(str(tmp_path / folder))(text) for folder in ("out", "export")]
    assert answers[0] == answers[1]
