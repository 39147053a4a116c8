"""Which weights a fine-tuning changes, and how far, by the checkpoints of real runs."""

import dataclasses
import pathlib

import numpy as np
import pytest

from official_bert.checkpoints import open_checkpoint, tf1
from official_bert.checkpoints.folder import latest_checkpoint
from official_bert.config import BertConfig
from official_bert.extensions.adaptation.options import AdaptationOptions
from official_bert.extensions.adaptation.plugin import ADAPTERS_NAME, check_flags
from official_bert.io.errors import InputError
from official_bert.serving.predictor import Predictor
from official_bert.training.trainer import Trainer
from tests import training_state
from tests.commands.pretraining_run import checkpoint_values
from tests.fine_tuning_runs import prepared, run
from tests.hostile.rows import edit_json
from tests.shared import in_test_long
from tests.training.rewinding import rewind

PEAK = 1e-3
DENSE = (
    "attention/self/query",
    "attention/self/key",
    "attention/self/value",
    "attention/output/dense",
    "intermediate/dense",
    "output/dense",
)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """5 updates of a model with two layers, whose weights no checkpoint has: those of a seed."""
    options = prepared(tmp_path_factory.mktemp("task"), "classification")
    edit_json(pathlib.Path(options.bert_config_file), num_hidden_layers=2)
    changes = {
        "do_train": True,
        "init_checkpoint": None,
        "warmup_proportion": 0.0,
        "learning_rate": PEAK,
    }
    return dataclasses.replace(options, **changes)


@pytest.fixture(scope="module")
def plain(options, tmp_path_factory):
    """The folder of a run without a flag of an adaptation, which has the checkpoint of each
    step.
    """
    folder = tmp_path_factory.mktemp("plain")
    run(
        "classification",
        options,
        folder,
        do_predict=True,
        save_checkpoints_steps=1,
        keep_checkpoint_max=0,
    )
    return folder


def train(options, folder, **changes) -> dict:
    """Train a model, and return the values of its last checkpoint."""
    run("classification", options, folder, **changes)
    num_epochs = changes.get("num_train_epochs", 1.0)
    step = round(5 * num_epochs)
    return checkpoint_values(folder / f"model.ckpt-{step}")


def select_weights(values: dict) -> dict:
    """Select the weights and the step of the values of a checkpoint."""
    suffixes = ("/adam_m", "/adam_v", "/ema")
    return {name: value for name, value in values.items() if not name.endswith(suffixes)}


def list_weights(values: dict) -> set[str]:
    return select_weights(values).keys() - {"global_step"}


def test_the_rate_falls_from_layer_to_layer(options, plain, tmp_path):
    """The first update of Adam has one direction, whatever the rates are; so has its weight
    decay.
    """
    layered = train(options, tmp_path, layer_wise_lr_decay=0.5, num_train_epochs=0.2)
    before = checkpoint_values(plain / "model.ckpt-0")
    after = checkpoint_values(plain / "model.ckpt-1")
    factors = {
        "bert/embeddings/": 0.25,
        "bert/encoder/layer_0/": 0.5,
        "bert/": 1.0,
        "output": 1.0,
    }
    for name in list_weights(before):
        scope, *_ = (scope for scope in factors if name.startswith(scope))
        change = layered[name] - before[name]
        plain_change = after[name] - before[name]
        expected = factors[scope] * plain_change
        np.testing.assert_allclose(change, expected, atol=3e-7, err_msg=name)
        # Attention has hardly begun to differ.
        if "/self/" not in name:
            assert np.abs(plain_change).max() > PEAK, name


def test_the_last_layers_begin_anew_once(options, plain, tmp_path):
    initial = checkpoint_values(plain / "model.ckpt-0")
    base = checkpoint_values(plain / "model.ckpt-5")
    changes = {
        "init_checkpoint": str(plain),
        "save_checkpoints_steps": 2,
        "reinit_layers": 1,
    }
    after = train(options, tmp_path, learning_rate=0.0, **changes)
    new_scopes = ("bert/encoder/layer_1/", "bert/pooler/")
    for name, value in select_weights(after).items():
        expected = initial if name.startswith(new_scopes) else base
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    name = "bert/pooler/dense/kernel"
    differences = np.abs(initial[name] - base[name])
    assert differences.max() > PEAK

    # A run that goes on has learnt them; its own seed would draw others.
    moved = train(options, tmp_path, num_train_epochs=2.0, random_seed=11, **changes)
    for name in list_weights(after):
        differences = np.abs(moved[name] - after[name])
        assert differences.max() < 10 * PEAK, name


def test_frozen_layers_stay_as_they_are_while_the_others_learn(options, plain, tmp_path):
    before = checkpoint_values(plain / "model.ckpt-0")
    after = train(options, tmp_path, freeze_layers=1)
    for name in list_weights(before):
        is_frozen = name.startswith(("bert/embeddings/", "bert/encoder/layer_0/"))
        is_same = np.array_equal(before[name], after[name])
        has_slot = f"{name}/adam_m" in after
        assert is_same == is_frozen, name
        assert has_slot != is_frozen, name


@pytest.mark.parametrize(
    ("family", "dtype"), [("squad", "bfloat16"), *in_test_long(("choice", "float32"))]
)
def test_a_frozen_encoder_stays_as_it_is_below_new_layers(tmp_path, family, dtype):
    options = prepared(tmp_path, family)
    output_dir = tmp_path / "out"
    run(
        family,
        options,
        output_dir,
        freeze_layers=1,
        dtype=dtype,
        do_train=True,
        num_bilstm_layers=1,
        learning_rate=1e-2,
    )
    first = checkpoint_values(options.init_checkpoint)
    after = checkpoint_values(latest_checkpoint(str(output_dir)))
    scopes = ("bert/embeddings", "bert/encoder")
    frozen = [name for name in first if name.startswith(scopes)]
    assert len(frozen) == 5 + 16
    for name in frozen:
        np.testing.assert_array_equal(after[name], first[name], err_msg=name)


def test_a_stopped_training_with_lora_ends_as_one_that_was_not(tmp_path):
    options = prepared(tmp_path, "original")
    flags = {
        "do_train": True,
        "lora_rank": 2,
        "ema_decay": 0.9,
        "num_train_epochs": 3.0,
        "save_checkpoints_steps": 4,
        "keep_checkpoint_max": 0,
        "steps_per_loop": 3,
    }
    whole = tmp_path / "whole"
    run("original", options, whole, **flags)
    stopped = rewind(whole, tmp_path / "stopped", step=8)
    run("original", options, stopped, **flags)
    values = checkpoint_values(stopped / "model.ckpt-15")
    expected = checkpoint_values(whole / "model.ckpt-15")
    training_state.assert_equal(values, expected)


class Begun(Exception):
    """A training has begun."""


def test_lora_trains_its_matrices_and_the_head_and_all_readers_add_them(
    options, plain, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    before = checkpoint_values(plain / "model.ckpt-5")
    flags = {
        "init_checkpoint": str(plain),
        "learning_rate": 0.03,
        "eval_every_steps": 3,
        "do_eval": True,
        "freeze_layers": 1,
    }
    after = train(options, out, lora_rank=2, do_predict=True, **flags)

    # The last layer has matrices, which are trained with the head alone.
    head = {"output_weights", "output_bias"}
    adapters = set()
    for dense in DENSE:
        scope = f"bert/encoder/layer_1/{dense}"
        adapters |= {f"{scope}/lora_kernel_a", f"{scope}/lora_kernel_b"}
    assert {name for name in list_weights(after) if "lora_kernel_" in name} == adapters
    for name in list_weights(before) - head:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    slots = [name for name in after if name.endswith("/adam_v")]
    assert {name.removesuffix("/adam_v") for name in slots} == adapters | head

    # The run's own prediction, and those of the folder without a flag.
    predicted = np.loadtxt(out / "test_results.tsv")
    run("classification", options, out, do_train=False, do_predict=True)
    predicted_again = np.loadtxt(out / "test_results.tsv")
    np.testing.assert_allclose(predicted_again, predicted, atol=2e-6)
    test_set = pathlib.Path(options.data_dir) / "test.tsv"
    _header, *lines = test_set.read_text().splitlines()
    texts = [line.split("\t")[0] for line in lines[:3]]
    answers = Predictor(str(out))(texts)
    rows = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(rows, predicted[:3], atol=2e-6)

    # Readers add the product of the matrices to a kernel.
    best = checkpoint_values(out / "best")
    scope = "bert/encoder/layer_1/attention/self/query"
    product = best[f"{scope}/lora_kernel_a"] @ best[f"{scope}/lora_kernel_b"]
    assert np.abs(product).max() > 1e-3
    kernel = open_checkpoint(str(out)).read(f"{scope}/kernel")
    expected = before[f"{scope}/kernel"] + product
    np.testing.assert_allclose(kernel, expected, atol=1e-6)
    adapters_file = open_checkpoint(str(out / ADAPTERS_NAME))
    assert adapters_file.shapes.keys() == adapters | head

    message = r"began with --lora_rank=2, .*, and this command has --lora_rank=1;"
    with pytest.raises(InputError, match=message):
        train(options, out, lora_rank=1, num_train_epochs=2.0, **flags)


@pytest.mark.parametrize(
    ("has_checkpoint", "sentence"),
    [
        pytest.param(True, "poor: lacks bert/pooler/dense/", id="checkpoint without a pooler"),
        pytest.param(False, "is not given for", id="no checkpoint"),
    ],
)
def test_weights_that_would_stay_random_need_a_flag(
    options, plain, tmp_path, monkeypatch, has_checkpoint, sentence
):
    def begin(*_):
        raise Begun

    monkeypatch.setattr(Trainer, "fit", begin)
    checkpoint = None
    if has_checkpoint:
        checkpoint = str(tmp_path / "poor")
        weights = select_weights(checkpoint_values(plain / "model.ckpt-5"))
        poor = {name: weights[name] for name in weights if not name.startswith("bert/pooler")}
        tf1.write(checkpoint, poor)
    flags = {"lora_rank": 2, "init_checkpoint": checkpoint}

    message = rf"{sentence}.*, which would stay random, since this training"
    with pytest.raises(InputError, match=message):
        train(options, tmp_path / "refused", **flags)
    with pytest.raises(Begun):
        train(options, tmp_path / "random", allow_missing_weights=True, **flags)


@pytest.fixture
def config(options) -> BertConfig:
    """The configuration of two layers."""
    return BertConfig.from_json_file(options.bert_config_file)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param(
            {"freeze_layers": 3},
            "--freeze_layers=3: is more than the number of layers, 2; give at most that",
            id="more frozen layers than layers",
        ),
        pytest.param(
            {"reinit_layers": 3},
            "--reinit_layers=3: is more than the number of layers, 2; give at most that",
            id="more new layers than layers",
        ),
        pytest.param(
            {"lora_rank": 1000},
            "--lora_rank=1000: is more than the hidden size, ",
            id="rank above the hidden size",
        ),
        pytest.param(
            {"lora_rank": 2, "reinit_layers": 0},
            "--reinit_layers=0: what it draws would stay random, since --lora_rank=2",
            id="new pooler with LoRA",
        ),
        pytest.param(
            {"reinit_layers": 2, "freeze_layers": 1},
            "--reinit_layers=2: some of what it draws would stay random, since",
            id="new layer that is frozen",
        ),
    ],
)
def test_flags_that_exclude_one_another_are_refused(config, flags, sentence):
    with pytest.raises(InputError, match=sentence):
        check_flags(AdaptationOptions(**flags), config)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"lora_rank": 2}, id="LoRA"),
        pytest.param({"reinit_layers": 1}, id="new last layer"),
    ],
)
def test_a_frozen_layer_and_rates_by_layer_go_with_the_others(config, flags):
    options = AdaptationOptions(freeze_layers=1, layer_wise_lr_decay=0.9, **flags)
    check_flags(options, config)
