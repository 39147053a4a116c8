"""Which weights a fine-tuning changes, and how far, by the checkpoints of real runs."""

import dataclasses
import json
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


def trained(options, folder, **changes) -> dict:
    run("classification", options, folder, **changes)
    return checkpoint_values(
        folder / f"model.ckpt-{round(5 * changes.get('num_train_epochs', 1.0))}"
    )


def weights_of(values) -> dict:
    return {
        name: value
        for name, value in values.items()
        if name.rpartition("/")[2] not in ("adam_m", "adam_v", "ema")
    }


def test_the_rate_falls_from_layer_to_layer(options, plain, tmp_path):
    """The first update of Adam has one direction, whatever the rates are; so has its weight
    decay.
    """
    layered = trained(options, tmp_path, layer_wise_lr_decay=0.5, num_train_epochs=0.2)
    before, after = (checkpoint_values(plain / f"model.ckpt-{step}") for step in (0, 1))
    factors = {"bert/embeddings/": 0.25, "bert/encoder/layer_0/": 0.5, "bert/": 1.0, "output": 1.0}
    for name in weights_of(before).keys() - {"global_step"}:
        factor = next(factor for start, factor in factors.items() if name.startswith(start))
        moved = after[name] - before[name]
        np.testing.assert_allclose(
            layered[name] - before[name], factor * moved, atol=3e-7, err_msg=name
        )
        # Attention has hardly begun to differ.
        assert np.abs(moved).max() > PEAK or "/self/" in name, name


def test_the_last_layers_begin_anew_once(options, plain, tmp_path):
    initial, base = (checkpoint_values(plain / f"model.ckpt-{step}") for step in (0, 5))
    changes = {"init_checkpoint": str(plain), "save_checkpoints_steps": 2, "reinit_layers": 1}
    after = trained(options, tmp_path, learning_rate=0.0, **changes)
    anew = ("bert/encoder/layer_1/", "bert/pooler/")
    for name, value in weights_of(after).items():
        expected = initial if name.startswith(anew) else base
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert (
        np.abs(initial["bert/pooler/dense/kernel"] - base["bert/pooler/dense/kernel"]).max() > PEAK
    )

    # A run that goes on has learnt them; its own seed would draw others.
    moved = trained(options, tmp_path, num_train_epochs=2.0, random_seed=11, **changes)
    for name in weights_of(after).keys() - {"global_step"}:
        assert np.abs(moved[name] - after[name]).max() < 10 * PEAK, name


def test_frozen_layers_stay_as_they_are_while_the_others_learn(options, plain, tmp_path):
    before = checkpoint_values(plain / "model.ckpt-0")
    after = trained(options, tmp_path, freeze_layers=1)
    frozen = ("bert/embeddings/", "bert/encoder/layer_0/")
    for name in weights_of(before).keys() - {"global_step"}:
        is_same = np.array_equal(before[name], after[name])
        assert is_same == name.startswith(frozen), name
        assert (f"{name}/adam_m" in after) != name.startswith(frozen), name


@pytest.mark.parametrize(
    ("family", "dtype"), [("squad", "bfloat16"), *in_test_long(("choice", "float32"))]
)
def test_a_frozen_encoder_stays_as_it_is_below_new_layers(tmp_path, family, dtype):
    options = prepared(tmp_path, family)
    flags = {"do_train": True, "num_bilstm_layers": 1, "learning_rate": 1e-2}
    run(family, options, tmp_path / "out", freeze_layers=1, dtype=dtype, **flags)
    first = checkpoint_values(options.init_checkpoint)
    after = checkpoint_values(latest_checkpoint(str(tmp_path / "out")))
    frozen = [name for name in first if name.startswith(("bert/embeddings", "bert/encoder"))]
    assert len(frozen) == 5 + 16
    for name in frozen:
        np.testing.assert_array_equal(after[name], first[name], err_msg=name)


def test_a_stopped_training_with_lora_ends_as_one_that_was_not(tmp_path):
    options = prepared(tmp_path, "original")
    flags = {"do_train": True, "lora_rank": 2, "ema_decay": 0.9, "num_train_epochs": 3.0}
    flags |= {"save_checkpoints_steps": 4, "keep_checkpoint_max": 0, "steps_per_loop": 3}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run("original", options, whole, **flags)
    run("original", options, rewind(whole, stopped, step=8), **flags)
    training_state.assert_equal(
        *(checkpoint_values(folder / "model.ckpt-15") for folder in (stopped, whole))
    )


class Begun(Exception):
    """A training has begun."""


def test_lora_trains_its_matrices_and_the_head_and_all_readers_add_them(
    options, plain, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    before = checkpoint_values(plain / "model.ckpt-5")
    given = {
        "init_checkpoint": str(plain),
        "learning_rate": 0.03,
        "eval_every_steps": 3,
        "do_eval": True,
    }
    after = trained(options, out, lora_rank=2, freeze_layers=1, do_predict=True, **given)
    head = {"output_weights", "output_bias"}
    adapters = {name for name in weights_of(after) if "lora_kernel_" in name}
    assert adapters == {
        f"bert/encoder/layer_1/{dense}/lora_kernel_{one}" for dense in DENSE for one in "ab"
    }
    for name in weights_of(before).keys() - head - {"global_step"}:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert {
        name.removesuffix("/adam_v") for name in after if name.endswith("/adam_v")
    } == adapters | head

    # The run's own prediction, and those of the folder without a flag.
    predicted = np.loadtxt(out / "test_results.tsv")
    run("classification", options, out, do_train=False, do_predict=True)
    np.testing.assert_allclose(np.loadtxt(out / "test_results.tsv"), predicted, atol=2e-6)
    texts = [
        line.split("\t")[0]
        for line in (pathlib.Path(options.data_dir) / "test.tsv").read_text().splitlines()
    ]
    rows = [list(answer["probabilities"].values()) for answer in Predictor(str(out))(texts[1:4])]
    np.testing.assert_allclose(rows, predicted[:3], atol=2e-6)
    best, name = checkpoint_values(out / "best"), "bert/encoder/layer_1/attention/self/query/kernel"
    a, b = (best[name.replace("kernel", f"lora_kernel_{one}")] for one in "ab")
    assert np.abs(a @ b).max() > 1e-3
    np.testing.assert_allclose(
        open_checkpoint(str(out)).read(name), before[name] + a @ b, atol=1e-6
    )
    assert open_checkpoint(str(out / ADAPTERS_NAME)).shapes.keys() == adapters | head

    # Weights that would stay random are an error, unless a flag allows them.
    def begin(*_):
        raise Begun

    monkeypatch.setattr(Trainer, "fit", begin)
    poor = {
        name: value
        for name, value in weights_of(before).items()
        if not name.startswith("bert/pooler")
    }
    tf1.write(str(tmp_path / "poor"), poor)
    for checkpoint, lacks in (
        (str(tmp_path / "poor"), "poor: lacks bert/pooler/dense/"),
        (None, "is not given for"),
    ):
        lacking = {"lora_rank": 2, "init_checkpoint": checkpoint}
        with pytest.raises(
            InputError, match=rf"{lacks}.*, which would stay random, since --lora_rank does not"
        ):
            trained(options, tmp_path / "none", **lacking)
        with pytest.raises(Begun):
            trained(
                options,
                tmp_path / f"random {checkpoint is None}",
                allow_missing_weights=True,
                **lacking,
            )

    with pytest.raises(
        InputError, match=r"began with --lora_rank=2, .*, and this command has --lora_rank=1;"
    ):
        trained(options, out, lora_rank=1, freeze_layers=1, num_train_epochs=2.0, **given)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"freeze_layers": 3},
            "--freeze_layers=3: is more than the number of layers, 2; give at most that",
        ),
        (
            {"reinit_layers": 3},
            "--reinit_layers=3: is more than the number of layers, 2; give at most that",
        ),
        ({"lora_rank": 1000}, "--lora_rank=1000: is more than the hidden size, "),
        (
            {"lora_rank": 2, "reinit_layers": 0},
            "--reinit_layers=0: what it draws would stay random, since --lora_rank=2",
        ),
        (
            {"reinit_layers": 2, "freeze_layers": 1},
            "--reinit_layers=2: some of what it draws would stay random, since",
        ),
        ({"lora_rank": 2, "freeze_layers": 1, "layer_wise_lr_decay": 0.9}, None),
        ({"reinit_layers": 1, "freeze_layers": 1, "layer_wise_lr_decay": 0.9}, None),
    ],
)
def test_what_excludes_one_another(options, flags, sentence):
    config = BertConfig.from_dict(json.loads(pathlib.Path(options.bert_config_file).read_text()))
    chosen = AdaptationOptions(**flags)
    if sentence is None:
        check_flags(chosen, config)
        return
    with pytest.raises(InputError, match=sentence):
        check_flags(chosen, config)
